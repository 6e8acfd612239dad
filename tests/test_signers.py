"""Which authorized key made a signature, and what the others cost (sections 2.1, 2.4 and 4.2)."""

from __future__ import annotations

import pytest

from engine.errors import SignatureRefused
from engine.trust import signers
from engine.trust.authorized_keys import AuthorizedKeys
from engine.trust.challenges import ANY, Challenge
from engine.trust.keys import PrivateKey, PublicKey, sign, verify
from tests.authorized import keys
from tests.fakes import key
from tests.key_data import odd_key

__all__ = ["keys"]

MESSAGE = b"hatchway-auth-v1.a.b.c"


@pytest.fixture
def asked(keys: AuthorizedKeys, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The keys that a signature was verified with. Authorized are `one`, `two` and the odd one."""
    for private in (key("one"), odd_key(), key("two")):
        keys.register(private.public)
    tried: list[str] = []

    def noted(public: PublicKey, algorithm: str, message: bytes, signature: bytes) -> None:
        tried.append(public.identity)
        verify(public, algorithm, message, signature)

    monkeypatch.setattr(signers, "verify", noted)
    return tried


def signer(keys: AuthorizedKeys, identity: str, private: PrivateKey) -> str:
    """Whose signature by `private` is found to be, or why it is nobody's."""
    challenge = Challenge(identity, b"digest", 60.0)
    try:
        found = signers.signer_of(challenge, "PS256", MESSAGE, sign(private, MESSAGE), keys, key("own").public)
    except SignatureRefused as refused:
        return refused.cause
    return found.identity


def test_a_challenge_for_one_key_is_answered_by_that_key(keys: AuthorizedKeys, asked: list[str]) -> None:
    """No other is tried, however good its signature."""
    assert signer(keys, key("two").identity, key("two")) == key("two").identity
    assert signer(keys, key("two").identity, key("one")) == "wrong_signature"
    assert asked == [key("two").identity] * 2


def test_a_challenge_for_any_key_is_answered_by_any(keys: AuthorizedKeys, asked: list[str]) -> None:
    """Tried are those whose signatures are as long as this one, in the file's order, up to the one that made it."""
    assert signer(keys, ANY, key("one")) == key("one").identity
    assert signer(keys, ANY, key("two")) == key("two").identity
    assert signer(keys, ANY, odd_key()) == odd_key().identity
    assert signer(keys, ANY, key("stranger")) == "wrong_signature"
    one, two, odd = key("one").identity, key("two").identity, odd_key().identity
    assert asked == [one, one, two, odd, one, two]


@pytest.mark.parametrize("identity", ["SHA256:nobody", "", "zoe", ANY + "one", ANY.upper()])
def test_an_unknown_identity_is_nobody_s_and_costs_as_much(
    keys: AuthorizedKeys, asked: list[str], identity: str
) -> None:
    """One verify, with the engine's own key: time tells nobody which keys there are, and no signature will do."""
    causes = [signer(keys, identity, key(name)) for name in ("stranger", "one", "own")]
    assert causes == ["wrong_signature", "wrong_signature", "unknown_key"]
    assert asked == [key("own").identity] * 3


def test_without_a_key_of_that_length_one_is_tried_all_the_same(keys: AuthorizedKeys, asked: list[str]) -> None:
    """A challenge for any key, and none authorized that could have answered it."""
    for name in ("one", "two"):
        keys.unregister(key(name).identity)
    assert [signer(keys, ANY, key(name)) for name in ("one", "own")] == ["wrong_signature", "unknown_key"]
    assert asked == [key("own").identity] * 2

"""Which authorized key made a signature, and what the others cost (sections 2.1, 2.4 and 4.2)."""

from __future__ import annotations

import statistics
import time
from collections import Counter

import pytest
import trio

from hatchway.engine.access import signers
from hatchway.engine.access.challenges import ANY, ChallengeFacts
from hatchway.engine.access.signers import Search, Signed, whose
from hatchway.engine.base.errors import Refusal, SignatureRefused, TooManyRequests
from hatchway.engine.keys.authorized_keys import AuthorizedKeys
from hatchway.engine.keys.keys import PrivateKey, PublicKey, sign, verify
from tests.support.authorized_keys import keys, put
from tests.support.fakes import key
from tests.support.key_data import line_of, odd_key
from tests.support.timing import kept

__all__ = ["keys"]

MESSAGE = b"hatchway-auth-v1.a.b.c"


@pytest.fixture
def asked(keys: AuthorizedKeys, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The keys that a signature was verified with; `-256` is a stand-in for signatures of 256 bytes. Authorized are
    `one`, `two` and the odd one."""
    for private in (key("one"), odd_key(), key("two")):
        keys.register(private.public)
    tried: list[str] = []

    def noted(public: PublicKey, algorithm: str, message: bytes, signature: bytes) -> None:
        tried.append(public.identity or f"-{public.signature_length}")
        too_large = int.from_bytes(signature) >= public.rsa.public_numbers().n
        assert public.identity or not too_large, "it would be refused before anything is computed"
        verify(public, algorithm, message, signature)

    monkeypatch.setattr(signers, "verify", noted)
    return tried


def signer(keys: AuthorizedKeys, identity: str, private: PrivateKey) -> str:
    """Whose signature by `private` is found to be, or why it is nobody's."""
    return signer_of(keys, identity, sign(private, MESSAGE))


def signer_of(keys: AuthorizedKeys, identity: str, signature: bytes) -> str:
    try:
        found = signers.signer_of(Signed(identity, "PS256", MESSAGE, signature), keys)
    except SignatureRefused as refused:
        return refused.cause
    return found.identity


def test_a_challenge_for_one_key_is_answered_by_that_key(keys: AuthorizedKeys, asked: list[str]) -> None:
    """No other is tried, however good its signature."""
    assert signer(keys, key("two").identity, key("two")) == key("two").identity
    assert signer(keys, key("two").identity, key("one")) == "wrong_signature"
    assert asked[:2] == [key("two").identity] * 2
    # The stranger's signature may be a number past the named key's modulus: then a stand-in has the check's cost.
    assert asked[2:] in ([], ["-256"])


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
    """One verify, of a key as long as the signature: time tells nobody which keys there are, and none will do."""
    causes = [signer(keys, identity, key(name)) for name in ("stranger", "one", "own")]
    assert causes == ["unknown_key"] * 3
    assert asked == ["-256"] * 3


@pytest.mark.parametrize("length", [256, 257, 384, 512, 1024])
def test_a_check_costs_what_the_signature_s_length_says(keys: AuthorizedKeys, asked: list[str], length: int) -> None:
    """Whatever size the named key has, and whether there is one: a check of a modulus of the signature's own length."""
    signature = b"\x7f" * length
    for identity, cause in ((key("one").identity, "wrong_signature"), ("SHA256:nobody", "unknown_key")):
        assert signer_of(keys, identity, signature) == cause
    assert [name if name.startswith("-") else "-256" for name in asked] == [f"-{length}"] * 2
    assert (key("one").identity in asked) == (length == 256)


@pytest.mark.parametrize("length", [0, 1, 255, 1025, 4096])
def test_what_no_key_can_have_made_is_checked_by_none(keys: AuthorizedKeys, asked: list[str], length: int) -> None:
    """Known or not, a signature that is shorter or longer than any key's costs nothing."""
    for identity in (key("one").identity, "SHA256:nobody", ANY):
        assert "key" in (cause := signer_of(keys, identity, bytes(length))) or cause == "wrong_signature"
    assert asked == []


def test_a_number_larger_than_the_modulus_costs_a_check_too(
    keys: AuthorizedKeys, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a known key the library refuses it before it computes anything; so a stand-in is computed with."""
    computed: list[str] = []

    def noted(public: PublicKey, algorithm: str, message: bytes, signature: bytes) -> None:
        if int.from_bytes(signature) < public.rsa.public_numbers().n:
            computed.append(public.identity)
        verify(public, algorithm, message, signature)

    keys.register(key("one").public)
    monkeypatch.setattr(signers, "verify", noted)
    for identity in (key("one").identity, "SHA256:nobody"):
        signer_of(keys, identity, b"\xff" * 256)
        assert len(computed) == 1, identity
        computed.clear()


def test_without_a_key_of_that_length_one_is_tried_all_the_same(keys: AuthorizedKeys, asked: list[str]) -> None:
    """A challenge for any key, and none authorized that could have answered it."""
    for name in ("one", "two"):
        keys.unregister(key(name).identity)
    assert [signer(keys, ANY, key(name)) for name in ("one", "own")] == ["unknown_key"] * 2
    assert asked == ["-256"] * 2


def test_a_named_key_answers_a_challenge_for_any(keys: AuthorizedKeys) -> None:
    """`identity` narrows what is tried, and never widens it: a challenge for one key stays that key's."""
    any_, one = ChallengeFacts(ANY, b"", 60.0), ChallengeFacts("SHA256:one", b"", 60.0)
    assert [whose(any_, None), whose(any_, "SHA256:x"), whose(any_, ANY)] == [ANY, "SHA256:x", ANY]
    assert [whose(one, None), whose(one, "SHA256:one")] == ["SHA256:one"] * 2
    for named in ("SHA256:x", ANY):
        with pytest.raises(SignatureRefused):
            whose(one, named)


@pytest.fixture
def crowd(keys: AuthorizedKeys) -> AuthorizedKeys:
    """Two thousand keys of 2048 bits, whose last is `one`."""
    lines = [f"{line_of(number)}\n" for number in range(2000)]
    put(keys, "".join(lines) + key("one").public.openssh() + "\n")
    return keys


async def test_however_many_keys_there_are_nobody_waits_for_a_search(crowd: AuthorizedKeys) -> None:
    """The key that made the signature is found among two thousand, and others had their turn after every four."""
    turns, over = 0, False

    async def another() -> None:
        nonlocal turns
        while not over:
            turns += 1
            await trio.lowlevel.checkpoint()

    signed = Signed(ANY, "PS256", MESSAGE, sign(key("one"), MESSAGE))
    assert not signers.is_quick(signed, crowd)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(another)
        assert (await Search(crowd).signer_of(signed, "192.0.2.1")).identity == key("one").identity
        over = True
    assert turns > 400


async def test_an_address_has_one_search_at_a_time(crowd: AuthorizedKeys, monkeypatch: pytest.MonkeyPatch) -> None:
    """Others of its own wait, those of another address don't wait for it; in all there are two, and 64 that wait."""
    running, most = Counter[bytes](), Counter[int]()

    def noted(public: PublicKey, algorithm: str, message: bytes, signature: bytes) -> None:
        running[message] += 1
        raise SignatureRefused("wrong_signature")

    monkeypatch.setattr(signers, "verify", noted)
    monkeypatch.setattr(signers, "WAITING", 3)
    search, refused = Search(crowd), list[type[Refusal]]()
    ended: list[bytes] = []

    async def one(name: bytes, address: str) -> None:
        try:
            await search.signer_of(Signed(ANY, "PS256", name, bytes(256)), address)
        except Refusal as refusal:
            refused.append(type(refusal))
        ended.append(name)
        most[len([other for other in running if other not in ended])] += 1

    async with trio.open_nursery() as nursery:
        for number in range(6):
            nursery.start_soon(one, b"%d" % number, "192.0.2.1")
        nursery.start_soon(one, b"other", "192.0.2.2")
    assert Counter(refused) == {SignatureRefused: 5, TooManyRequests: 2}
    assert max(most) <= 1, "one more beside the one that ended"
    assert ended.index(b"other") <= 4, "before the others of the first address"


@pytest.mark.parametrize("bits", [2048, 3072, 4096, 8192])
@pytest.mark.parametrize("length", [256, 384, 512, 1024])
def test_time_tells_nobody_which_keys_there_are(keys: AuthorizedKeys, bits: int, length: int) -> None:
    """D6: with a wrong signature of any length a known identity takes as long as an unknown one, whatever its size.

    The quickest tenths of 200 in turn, within a fifth or 10 us: a stand-in of another size would differ by 40 to 500 %.
    What a busy machine adds to a call is not in them.
    """
    put(keys, line_of(1, bits) + "\n")
    ((known,),) = [[entry.identity for entry in keys.of_length(bits // 8)]]

    def difference() -> float:
        times: dict[str, list[float]] = {known: [], "SHA256:" + "x" * 43: []}
        for turn in range(400):
            identity = tuple(times)[turn % 2]
            signed = Signed(identity, "RS256", MESSAGE, b"\x11" * length)
            before = time.perf_counter()
            with pytest.raises(SignatureRefused):
                signers.signer_of(signed, keys)
            times[identity].append(time.perf_counter() - before)
        quickest = [statistics.quantiles(values, n=10)[0] for values in times.values()]
        return abs(quickest[0] - quickest[1]) / max(0.00001, 0.2 * min(quickest))

    time.sleep(0.06)  # the file is no longer of this very moment, and is not read at each look
    kept(1, difference)

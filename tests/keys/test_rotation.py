"""New keys for the engine: in which order they take the old ones' place, and how long those still count."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import load_pem_public_key

from hatchway.engine.base import files
from hatchway.engine.base.errors import EngineUnavailable, FileRefused, KeyRefused
from hatchway.engine.base.permissions import FIVE, MASTER
from hatchway.engine.base.text import counted
from hatchway.engine.keys import keys as key_room
from hatchway.engine.keys.authorized_keys import AuthorizedKeys
from hatchway.engine.keys.key_edits import Edit
from hatchway.engine.keys.keys import generate_token_key, read_private_key, read_token_key, token_key_pem
from hatchway.engine.keys.rotation import next_token_key, rotate_engine_key, rotate_token_key
from hatchway.statecharts.session import LONGEST_LIFETIME
from tests.support.fakes import SetClock, key
from tests.support.key_writers import pool

ROTATED = 1_000_000.0


@pytest.fixture
def own(home: Path, monkeypatch: pytest.MonkeyPatch) -> AuthorizedKeys:
    """An engine's folder with its key and somebody else's; the next key is `two`, since making one takes a while."""
    files.make_private_dir(home)
    files.write_private(home / "private-key.pem", key("own").pem())
    authorized = AuthorizedKeys(home / "authorized_keys")
    authorized.register(key("own").public, (MASTER,), "engine", own=True)
    authorized.register(key("one").public, FIVE, "somebody")
    monkeypatch.setattr(key_room, "generate_key", lambda: key("two"))
    return authorized


def held(authorized: AuthorizedKeys) -> dict[str, tuple[str, ...]]:
    """Permissions by identity."""
    return {entry.identity: entry.permissions for entry in authorized.entries()}


def test_the_engine_is_never_without_a_key_that_is_authorized(home: Path, own: AuthorizedKeys) -> None:
    """The new one is authorized before it is the engine's, and the old one until then: a crash in between costs it."""
    old, new = key("own").identity, key("two").identity
    moments: list[tuple[str, set[str]]] = []

    def edit(change: Edit[Any]) -> Any:
        done = own.edit(change)
        engine_s = read_private_key((home / "private-key.pem").read_bytes()).identity
        moments.append((engine_s, set(held(own))))
        assert engine_s in held(own)
        return done

    assert rotate_engine_key(home, edit) == (old, new)
    somebody = key("one").identity
    assert moments == [(old, {old, new, somebody}), (new, {new, somebody})]
    assert held(own) == {new: (MASTER,), somebody: FIVE}
    assert own.find(new).comment == "engine"  # type: ignore[union-attr]
    files.check_private(home / "private-key.pem")


def test_the_new_one_is_called_as_the_old_one_was(home: Path, own: AuthorizedKeys) -> None:
    """In a fleet that is with its host's name."""
    own.register(key("own").public, (MASTER,), "engine node7", own=True)
    _, new = rotate_engine_key(home, own.edit)
    assert own.find(new).comment == "engine node7"  # type: ignore[union-attr]


def test_a_key_that_is_authorized_no_more_can_be_replaced(home: Path, own: AuthorizedKeys) -> None:
    """Taken out by hand: it is how its owner gets back in."""
    own.unregister(key("own").identity, force=True)
    for public in pool():
        own.register(public)
    others = held(own)
    rotate_engine_key(home, own.edit)
    assert held(own) == others | {key("two").identity: (MASTER,)}


def test_an_old_key_that_stays_is_named(home: Path, own: AuthorizedKeys) -> None:
    """Where it can't be taken out, as the keys' store is away by then: the refusal has the command that does it."""
    old, new = key("own").identity, key("two").identity
    edits: list[Edit[Any]] = []

    def edit(change: Edit[Any]) -> Any:
        edits.append(change)
        if len(edits) > 1:
            raise EngineUnavailable("the store is away")
        return own.edit(change)

    with pytest.raises(
        EngineUnavailable, match=f"the store is away; .*`hatchway key unregister {re.escape(old)} --force`"
    ):
        rotate_engine_key(home, edit)
    assert read_private_key(files.read_private(home / "private-key.pem")).identity == new
    own.unregister(old, force=True)
    assert held(own)[new] == (MASTER,)


def test_without_a_key_there_is_nothing_to_rotate(home: Path) -> None:
    """Before the first start nobody is authorized, and no file is made but the lock."""
    with pytest.raises(EngineUnavailable, match=r"private-key\.pem is missing"):
        rotate_engine_key(home, lambda change: pytest.fail("authorized"))
    with pytest.raises(EngineUnavailable, match=r"token-key\.pem is missing"):
        rotate_token_key(home, SetClock())
    assert [path.name for path in home.iterdir()] == ["rotation.lock"]


def test_a_folder_that_others_may_enter_gets_no_new_key(home: Path, own: AuthorizedKeys) -> None:
    """It is refused as at a start, with the command that closes it."""
    files.write_private(home / "token-key.pem", token_key_pem(generate_token_key()))
    before = {path.name: path.read_bytes() for path in home.iterdir()}
    home.chmod(0o755)
    for rotate in (lambda: rotate_engine_key(home, own.edit), lambda: rotate_token_key(home, SetClock(2e9))):
        with pytest.raises(FileRefused, match="chmod 700"):
            rotate()
    assert {path.name: path.read_bytes() for path in home.iterdir()} == before


def test_the_old_token_key_verifies_for_as_long_as_a_token_may_live(home: Path) -> None:
    """Its public half lies beside the new key; a second rotation would end its tokens, and is refused unless forced."""
    files.make_private_dir(home)
    first = generate_token_key()
    files.write_private(home / "token-key.pem", token_key_pem(first))
    clock = SetClock(1_800_000_000.0)
    rotate_token_key(home, clock)
    second = (home / "token-key.pem").read_bytes()
    assert second != token_key_pem(first)
    assert (home / "token-key-old.pub").read_bytes() == public_pem(token_key_pem(first))
    clock.now = (home / "token-key-old.pub").stat().st_mtime + LONGEST_LIFETIME - 1
    with pytest.raises(KeyRefused, match="--force"):
        rotate_token_key(home, clock)
    assert (home / "token-key.pem").read_bytes() == second
    rotate_token_key(home, clock, force=True)
    third = (home / "token-key.pem").read_bytes()
    assert (home / "token-key-old.pub").read_bytes() == public_pem(second)
    clock.now = (home / "token-key-old.pub").stat().st_mtime + LONGEST_LIFETIME
    rotate_token_key(home, clock)
    assert (home / "token-key-old.pub").read_bytes() == public_pem(third)
    for name in ("token-key.pem", "token-key-old.pub"):
        files.check_private(home / name)


def public_pem(private: bytes) -> bytes:
    """The public half of a token key, as it is kept."""
    return next_token_key(private, 0, ROTATED, force=True)[1]


@pytest.mark.parametrize(("left", "minutes"), [(0.5, 1), (59.9, 1), (60.0, 2), (3599.0, 60)])
def test_a_rotation_too_soon_says_how_long_to_wait(left: float, minutes: int) -> None:
    """In minutes, never fewer than there are."""
    now = ROTATED + LONGEST_LIFETIME - left
    current = token_key_pem(generate_token_key())
    with pytest.raises(KeyRefused, match=f"for at most {counted(minutes, 'minute')};") as refused:
        next_token_key(current, ROTATED, now)
    assert refused.value.cause == "rotating"
    for settled in (next_token_key(current, ROTATED, now, force=True), next_token_key(current, ROTATED, now + left)):
        made, public = settled
        assert made != current
        old = load_pem_public_key(public)
        assert isinstance(old, Ed25519PublicKey)
        old.verify(read_token_key(current).sign(b"token"), b"token")
        with pytest.raises(InvalidSignature):
            old.verify(read_token_key(made).sign(b"token"), b"token")

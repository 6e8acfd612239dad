"""Our edits of authorized_keys: what they change, keep and refuse (section 2.4; cases D13, D34, D36)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from hatchway.engine.base.errors import FileRefused, KeyRefused
from hatchway.engine.base.permissions import FIVE, MASTER
from hatchway.engine.base.ticks import LoopTicks, loop_ticks
from hatchway.engine.keys.authorized_keys import AuthorizedKeys
from hatchway.engine.keys.keys import PublicKey, read_public_key
from tests.support.authorized_keys import LINE, A, B, C, granted, keys, put
from tests.support.fakes import ROOT
from tests.support.key_writers import KEPT, pool

__all__ = ["keys"]

HAND = f"""# keys of the lab\r
\t
{B.openssh()} b
no-pty {C.openssh()} c
ssh-ed25519 AAAA foreign
hello""".encode()


def test_a_register_keeps_every_other_byte(keys: AuthorizedKeys) -> None:
    """Comments, blank, foreign and bad lines survive; a missing final newline glues nothing."""
    put(keys, HAND)
    done = keys.register(A, ("SHELL",), "a")
    assert (done.outcome, done.before, done.entry.line) == ("added", None, 7)
    assert keys.path.read_bytes() == HAND + f'\npermissions="SHELL" {LINE} a\n'.encode()
    found = keys.find(A.identity)
    assert found is not None
    assert (found.permissions, found.comment, found.line) == (("SHELL",), "a", 7)


def test_an_unregister_keeps_every_other_byte(keys: AuthorizedKeys) -> None:
    """Only the key's own lines go."""
    put(keys, HAND + f"\n{LINE} a\n# end".encode())
    assert keys.unregister("a")[0] == A.identity
    assert keys.path.read_bytes() == HAND + b"\n# end"


@pytest.mark.parametrize("number", range(3))
def test_one_key_of_three(keys: AuthorizedKeys, number: int) -> None:
    """Whichever it is, and however its fingerprint sorts: changed, or taken out, it is the only one."""
    three = sorted((A, B, C), key=lambda key: key.identity)
    for key in three:
        keys.register(key, FIVE, key.identity)
    one = three[number].identity
    keys.register(three[number], ("SHELL",))
    assert granted(keys) == {key.identity: ("SHELL",) if key.identity == one else FIVE for key in three}
    keys.unregister(one)
    assert granted(keys) == {key.identity: FIVE for key in three if key.identity != one}


def test_the_same_key_again_replaces_what_it_holds(keys: AuthorizedKeys) -> None:
    """In its own line, with the line end it had; said aloud, with what it held before."""
    put(keys, f"# x\r\n{LINE} me\r\n{B.openssh()} b\r\n")
    done = keys.register(A, ("RUNTIME:READ",))
    assert (done.outcome, done.before) == ("replaced", FIVE)
    assert keys.path.read_bytes() == f'# x\r\npermissions="RUNTIME:READ" {LINE} me\r\n{B.openssh()} b\r\n'.encode()
    assert keys.register(A, ("RUNTIME:READ",)).outcome == "unchanged"
    assert keys.register(A).before == ("RUNTIME:READ",)
    assert len(keys.entries()) == 2


def test_one_key_in_two_encodings_is_one_entry(keys: AuthorizedKeys) -> None:
    """PKCS#1 and SPKI of one key replace each other."""
    own = ROOT / "tests/data/own/keys"
    for name in ("rsa2048.spki.pub", "rsa2048.pkcs1.pub", "rsa2048.ssh.pub", "crlf.spki.pub"):
        keys.register(read_public_key((own / name).read_bytes()))
    assert len(keys.entries()) == 1


def test_a_restriction_is_never_dropped_by_a_register(keys: AuthorizedKeys) -> None:
    """A line with a foreign option is refused, not replaced; a broken permission list is replaced."""
    put(keys, HAND)
    with pytest.raises(KeyRefused, match=r"line 4 .* option no-pty"):
        keys.register(C)
    assert keys.path.read_bytes() == HAND
    put(keys, f'permissions="BOGUS" {LINE} a\n')
    assert keys.register(A).outcome == "replaced"
    assert granted(keys) == {"a": FIVE}


def test_master_is_for_the_engine_s_own_key_alone(keys: AuthorizedKeys) -> None:
    """Nobody else gets it; the engine's own key keeps it, and is removed by force only."""
    with pytest.raises(KeyRefused, match="MASTER"):
        keys.register(A, (MASTER,))
    assert not keys.path.exists()
    keys.register(A, (MASTER,), "engine", own=True)
    with pytest.raises(KeyRefused, match="own key"):
        keys.register(A, ("SHELL",))
    for selector in ("engine", A.identity):
        with pytest.raises(KeyRefused, match="--force"):
            keys.unregister(selector)
    assert granted(keys) == {"engine": (MASTER,)}
    identity, entry = keys.unregister("engine", force=True)
    assert identity == A.identity
    assert entry is not None
    assert entry.permissions == (MASTER,)


def test_the_engine_s_own_key_is_guarded_also_without_master(keys: AuthorizedKeys) -> None:
    """Narrowed by hand, it is still the engine's."""
    put(keys, f'permissions="SHELL" {LINE} engine\n')
    with pytest.raises(KeyRefused, match="--force"):
        keys.unregister("engine", own=A.identity)
    assert keys.unregister("engine", own=B.identity)[0] == A.identity


def test_a_key_goes_by_identity_prefix_or_comment(keys: AuthorizedKeys) -> None:
    """Each of them, where it is one key's alone."""
    for selector in (A.identity, A.identity[:12], "mine", "my key"):
        for key, comment in ((A, "mine" if selector != "my key" else selector), (B, "other"), (C, "")):
            keys.register(key, comment=comment)
        assert keys.unregister(selector)[0] == A.identity
        assert {entry.identity for entry in keys.entries()} == {B.identity, C.identity}


@pytest.mark.parametrize("selector", ["", "S", "SHA256:", "SHA256:zzzz", "sha256:", "min", "MINE", "#", "\x1b[2J"])
def test_a_selector_that_means_no_key_removes_nothing(keys: AuthorizedKeys, selector: str) -> None:
    """A typo is told, and is printable in the message."""
    keys.register(A, comment="mine")
    keys.register(B)
    before = keys.path.read_bytes()
    with pytest.raises(KeyRefused, match="no authorized key") as refused:
        keys.unregister(selector)
    assert "\x1b" not in refused.value.detail
    assert keys.path.read_bytes() == before


def test_a_selector_that_means_two_keys_removes_nothing(keys: AuthorizedKeys) -> None:
    """One comment on two keys, or a comment that is another's prefix."""
    keys.register(A, comment="lab")
    keys.register(B, comment="lab")
    keys.register(C, comment=A.identity[:12])
    for selector in ("lab", A.identity[:12]):
        with pytest.raises(KeyRefused, match="2 authorized keys go by"):
            keys.unregister(selector)
    assert len(keys.entries()) == 3


def test_no_later_line_of_a_removed_key_comes_to_count(keys: AuthorizedKeys) -> None:
    """Unregistering takes every line of the key."""
    put(keys, f'permissions="SHELL" {LINE} one\n{LINE} two\nno-pty {LINE} three\n')
    keys.unregister(A.identity)
    assert keys.path.read_bytes() == b""


def test_a_comment_cannot_write_a_line_of_its_own(keys: AuthorizedKeys) -> None:
    """Newlines and escapes of a comment are no newlines in the file."""
    keys.register(A, ("SHELL",), f'x\n{B.openssh()}\r\npermissions="MASTER" y\x1b')
    assert len(keys.path.read_bytes().splitlines()) == 1
    assert [entry.identity for entry in keys.entries()] == [A.identity]


@given(st.text(max_size=60), st.sampled_from([A, B, C]))
def test_what_is_registered_is_what_is_read(comment: str, key: PublicKey) -> None:
    """Any comment comes back as it was reported."""
    with TemporaryDirectory() as folder:
        keys = AuthorizedKeys(Path(folder) / "authorized_keys")
        done = keys.register(key, ("SHELL",), comment)
        found = keys.find(key.identity)
        assert found is not None
        assert (found.permissions, found.comment, found.line) == (("SHELL",), done.entry.comment, 1)


@pytest.mark.parametrize("kind", ["symlink", "wide", "folder"])
def test_a_file_that_is_not_private_is_refused_at_every_use(keys: AuthorizedKeys, kind: str) -> None:
    """Looks and edits are refused with the command that mends it, the target untouched; once mended all is well."""
    target = keys.path.with_name("target")
    target.write_text(LINE)
    target.chmod(0o600)
    if kind == "symlink":
        keys.path.symlink_to(target)
    elif kind == "wide":
        put(keys, LINE)
        keys.path.chmod(0o640)
    else:
        keys.path.mkdir()
    uses = (keys.entries, keys.faults, lambda: keys.find(""), lambda: keys.register(B), lambda: keys.unregister("x"))
    for use in uses:
        with pytest.raises(FileRefused, match="mend it with: ") as refused:
            use()
    assert keys.version() == -1
    subprocess.run(["sh", "-c", refused.value.detail.split("mend it with: ")[1]], check=True)
    assert len(keys.entries()) == (kind == "wide")
    assert target.read_text() == LINE


def test_a_folder_that_cannot_be_reached_is_refused(keys: AuthorizedKeys) -> None:
    """As one on a network whose server is away: no key is taken for removed, and what looks after keys goes on."""
    put(keys, LINE)
    assert keys.find(A.identity) is not None
    keys.path.parent.rename(keys.path.parent.with_name("away"))
    keys.path.parent.touch()
    with pytest.raises(FileRefused, match="authorized_keys can't be read: Not a directory"):
        keys.find(A.identity)


def test_an_open_folder_is_refused_before_an_edit(keys: AuthorizedKeys) -> None:
    """Others could put a file of theirs there."""
    keys.path.parent.chmod(0o770)
    with pytest.raises(FileRefused, match="chmod 700"):
        keys.register(A)
    assert not keys.path.exists()


def run(kind: str, keys: AuthorizedKeys) -> None:
    """Many processes on the file."""
    subprocess.run(
        [sys.executable, "-m", "tests.support.key_writers", kind, str(keys.path.parent)], check=True, cwd=ROOT
    )


def test_twenty_registers_at_once_lose_no_key(keys: AuthorizedKeys) -> None:
    """All twenty entries are there, and the file has nothing else."""
    put(keys, KEPT)
    run("together", keys)
    data = keys.path.read_bytes()
    assert data.startswith(KEPT + b"\n")
    assert data.count(b"\n") == KEPT.count(b"\n") + 1 + 20
    assert {entry.identity for entry in keys.entries()} == {key.identity for key in pool()}


def test_a_register_killed_at_any_moment_loses_no_key(keys: AuthorizedKeys) -> None:
    """After `kill -9` at 50 random moments the file parses, holds what was acknowledged, and no leftover stays."""
    put(keys, KEPT)
    run("killed", keys)


async def test_one_look_serves_a_tick_of_the_event_loop_and_no_more(keys: AuthorizedKeys) -> None:
    """A change shows in the next turn, where everything is that is asked after it; our own edit shows at once."""
    keys = AuthorizedKeys(keys.path, loop_ticks())
    put(keys, f"{LINE} a\n")
    assert granted(keys) == {"a": FIVE}
    put(keys, f'permissions="SHELL" {LINE} a\n')
    assert granted(keys) == {"a": FIVE}
    await trio.lowlevel.checkpoint()
    assert granted(keys) == {"a": ("SHELL",)}
    keys.register(A, ("AGENT",), "a")
    assert granted(keys) == {"a": ("AGENT",)}
    put(keys, f"{LINE} a\n")
    assert granted(keys) == {"a": ("AGENT",)}
    keys.look_anew()
    assert granted(keys) == {"a": FIVE}


async def test_a_refused_file_is_looked_at_anew_in_the_same_turn(keys: AuthorizedKeys) -> None:
    """A refusal is not kept for the turn: what mends the file is seen by the next look."""
    keys = AuthorizedKeys(keys.path, loop_ticks())
    put(keys, f"{LINE} a\n")
    keys.path.chmod(0o666)
    for _ in range(2):
        with pytest.raises(FileRefused):
            keys.entries()
    keys.path.chmod(0o600)
    assert granted(keys) == {"a": FIVE}


@pytest.mark.parametrize("number", [0, 1, 2])
def test_the_first_look_of_any_turn_is_a_look(keys: AuthorizedKeys, number: int) -> None:
    """Also of the first turns there are; so is the next one after an edit of ours, or where it was asked for."""
    ticks = LoopTicks()
    ticks.number = number
    keys = AuthorizedKeys(keys.path, ticks)
    put(keys, f"{LINE} a\n")
    assert granted(keys) == {"a": FIVE}
    put(keys, f'permissions="SHELL" {LINE} a\n')
    assert granted(keys) == {"a": FIVE}
    keys.look_anew()
    assert granted(keys) == {"a": ("SHELL",)}
    keys.register(A, ("AGENT",), "a")
    assert granted(keys) == {"a": ("AGENT",)}


def test_what_changes_nothing_writes_nothing(keys: AuthorizedKeys) -> None:
    """The same again leaves the file itself in its place: whoever watches it sees no change."""
    keys.register(A, ("SHELL",), "a")

    def seen() -> tuple[int, int, int]:
        status = keys.path.stat()
        return status.st_ino, status.st_mtime_ns, status.st_ctime_ns

    before = seen()
    assert keys.register(A, ("SHELL",), "a").outcome == "unchanged"
    with pytest.raises(KeyRefused):
        keys.unregister("nobody")
    assert seen() == before


def test_an_edit_clears_up_after_one_that_was_killed(keys: AuthorizedKeys) -> None:
    """What it had not put in its place holds keys, and must not lie about for ever."""
    leftover = keys.path.with_name(".authorized_keys.0123456789abcdef.new")
    leftover.touch(0o600)
    keys.register(A)
    assert not leftover.exists()

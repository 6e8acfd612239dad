"""Lines of authorized_keys: what each grants, and why a bad one grants nothing (section 2.4; cases D19 and D36)."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hatchway.engine.base.permissions import FIVE, MASTER
from hatchway.engine.keys.authorized_keys import AuthorizedKeys
from hatchway.engine.keys.key_lines import LONGEST_LINE, parse_file, render
from tests.support.authorized_keys import LINE, A, B, C, granted, keys, put
from tests.support.fakes import vectors

__all__ = ["keys"]

GRANTS = {
    f"{LINE}": FIVE,
    f"{LINE} me@home": FIVE,
    f" \t{LINE}   me  ": FIVE,
    f'permissions="SHELL" {LINE} me': ("SHELL",),
    f'permissions="AGENT,SHELL,AGENT" {LINE}': ("SHELL", "AGENT"),
    f'permissions="RUNTIME:READ" {LINE}': ("RUNTIME:READ",),
    f'permissions="MASTER"\t{LINE}': (MASTER,),
    f'from="10.0.0.0/8,!10.1.0.0/16",permissions="SHELL" {LINE}': ("SHELL",),
    f'expiry-time="20270101Z",instances="4",lifetime="8h" {LINE}': FIVE,
    f"{LINE}\r": FIVE,
    f"\ufeff{LINE}": FIVE,
}
NOTHING = {
    f'permissions="" {LINE}': "an empty name",
    f"permissions {LINE}": "an empty name",
    f"permissions=SHELL {LINE}": "neither a key",
    f'permissions="shell" {LINE}': "'shell' is not a permission",
    f'permissions="SHELL,TELEPORT" {LINE}': "'TELEPORT' is not a permission",
    f'permissions="SHELL",permissions="AGENT" {LINE}': "stands twice",
    f'permissions="SHELL",no-pty {LINE}': "the option no-pty",
    f'environment="A=1",permissions="SHELL" {LINE}': "the option environment",
    f'FROM="10.0.0.0/8" {LINE}': "the option FROM",
    f'from="10.0.0.0/8",from="10.0.0.0/8" {LINE}': "stands twice",
    f'from="" {LINE}': "wants a value",
    f'from="10.0.0.1/8" {LINE}': "has bits set behind its mask",
    f'from="10.1" {LINE}': "is no address",
    f'from="10.0.0.0/8," {LINE}': "neither an address",
    f'expiry-time="20270230" {LINE}': "is no time",
    f'expiry-time="2027-01-01" {LINE}': "is no time",
    f'instances="-1" {LINE}': "instances wants a number",
    f'lifetime="8" {LINE}': "lifetime wants a whole number",
    f'permissions="SHELL",restrict {LINE}': "the option restrict",
    f'principals="me" {LINE}': "the option principals",
    f'command="echo \\"hi, you\\" there" {LINE}': "the option command",
    f'PERMISSIONS="SHELL" {LINE}': "the option PERMISSIONS",
    f"\ufeff{LINE}": "neither a key",
    f'permissions="SHELL"{LINE}': "neither a key",
    f'permissions="SHELL", {LINE}': "neither a key",
    f'permissions="SHELL {LINE}': "neither a key",
    LINE[:300]: "damaged",
    "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA me": "of small order",
    "hello": "neither a key",
    LINE.replace("AAAA", "!AAA", 1): "base64",
    LINE.replace("AAAA", "AA\0A", 1): "base64",
    "\x1b[2J": "neither a key",
    LINE + " " + "x" * 1_048_576: "longer than",
}


@pytest.mark.parametrize("line", GRANTS, ids=lambda line: line[:30])
def test_a_good_line_grants_its_permissions(keys: AuthorizedKeys, line: str) -> None:
    """The five without `permissions=`, else exactly those listed."""
    put(keys, f"{line}\n")
    entry = keys.find(A.identity)
    assert entry is not None
    assert entry.permissions == GRANTS[line]
    assert keys.faults() == ()


@pytest.mark.parametrize("line", NOTHING, ids=lambda line: repr(line[:30]))
def test_a_bad_line_grants_nothing_is_named_and_stops_no_other(keys: AuthorizedKeys, line: str) -> None:
    """Its number and its reason are told; the lines around it work."""
    put(keys, f"# first\n{B.openssh()} b\n{line}\n{C.openssh()} c\n")
    assert granted(keys) == {"b": FIVE, "c": FIVE}
    (fault,) = keys.faults()
    assert fault.line == 3
    assert NOTHING[line] in fault.reason
    assert len(fault.reason) < 300


def test_binary_between_good_lines_harms_nobody(keys: AuthorizedKeys) -> None:
    """Bytes that are no text are one bad line."""
    put(keys, f"{B.openssh()} b\n".encode() + b"\x80\xff\x00\x01" * 1000 + f"\n{C.openssh()} c".encode())
    assert granted(keys) == {"b": FIVE, "c": FIVE}
    assert [fault.line for fault in keys.faults()] == [2]


@pytest.mark.parametrize("first", ['permissions="SHELL" ', 'permissions="BOGUS" ', "no-pty "])
def test_of_two_lines_with_one_key_the_first_counts(keys: AuthorizedKeys, first: str) -> None:
    """Also where the first grants nothing: a later line never widens an earlier one."""
    put(keys, f"{first}{LINE} one\n{LINE} two\n")
    entry = keys.find(A.identity)
    assert (entry.permissions if entry else None) == (("SHELL",) if "SHELL" in first else None)
    assert "the key of line 1 again" in keys.faults()[-1].reason


@pytest.mark.vectors
def test_a_weak_key_added_by_hand_grants_nothing(keys: AuthorizedKeys) -> None:
    """The rules of `key register` hold for hand edits: too small, ROCA."""
    lines = [(vectors() / "roca" / name).read_text().strip() for name in ("ssh05.pub", "ssh06.pub", "ssh01.pub")]
    put(keys, "\n".join(lines))
    assert [entry.line for entry in keys.entries()] == [3]
    assert [fault.reason.split(": ")[1][:8] for fault in keys.faults()] == ["it is to", "it is a "]


def test_a_comment_holds_no_control_characters(keys: AuthorizedKeys) -> None:
    """Escapes of a hand-written comment are none any more; what else no terminal must get is escaped as it is shown."""
    put(keys, f"{LINE} \x1b]0;x\x07 me \u202e {'y' * 300}\n")
    (entry,) = keys.entries()
    assert entry.comment.startswith("?]0;x? me \u202e yyy")
    assert len(entry.comment) == 200


@settings(max_examples=300)
@given(
    st.lists(
        st.binary(max_size=80)
        | st.sampled_from([line.encode() for line in [*GRANTS, *NOTHING] if len(line) < 2000])
        | st.builds(lambda key, cut: key.openssh().encode()[cut:], st.sampled_from([A, B, C]), st.integers(0, 400)),
        max_size=6,
    ),
    st.sampled_from([b"\n", b"\r\n", b"\r", b""]),
)
def test_no_file_is_more_than_read(lines: list[bytes], end: bytes) -> None:
    """Whatever the file holds, every byte is accounted for, and what is granted is known permissions, once a key."""
    data = end.join(lines)
    parsed = parse_file(data)
    assert b"".join(line.raw for line in parsed) == data
    entries = [line.entry for line in parsed if line.entry]
    assert len({entry.identity for entry in entries}) == len(entries)
    assert all(entry.permissions and "BOGUS" not in entry.permissions for entry in entries)
    assert all(line.fault is None or line.entry is None for line in parsed)


def test_a_line_is_written_as_it_is_read() -> None:
    """Permissions, key and comment, in that order; without a comment there is nothing behind the key."""
    assert render(A, ("SHELL", "AGENT"), "me") == f'permissions="SHELL,AGENT" {LINE} me'.encode()
    assert render(A, (MASTER,), "") == f'permissions="MASTER" {LINE}'.encode()


def test_the_longest_line_is_one_of_16384_bytes() -> None:
    """With its end; one byte more is not looked at."""
    comment = " " + "x" * (LONGEST_LINE - len(LINE) - 2)
    (line,) = parse_file(f"{LINE}{comment}\n".encode())
    assert line.entry is not None
    (line,) = parse_file(f"{LINE}{comment}x\n".encode())
    assert line.fault == "longer than 16384 bytes"

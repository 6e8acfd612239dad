"""A code as typed is the code as shown; a stranger's bytes are shown one by one (section 2.5)."""

from __future__ import annotations

import pytest

from hatchway.engine.pairings.claims import AGENT_LENGTH, escaped_agent
from hatchway.engine.pairings.codes import ALPHABET, LENGTH, LONGEST_TYPED, new_code, normalise


def test_a_new_code_is_one_as_typed() -> None:
    """Eight characters of the alphabet, which folding leaves alone."""
    for _ in range(100):
        code = new_code()
        assert len(code) == LENGTH
        assert set(code) <= set(ALPHABET)
        assert normalise(code) == code


@pytest.mark.parametrize(
    ("typed", "read"),
    [
        ("abcd-efgh", "ABCDEFGH"),
        (" ab cd\tef\ngh ", "ABCDEFGH"),
        ("ab\u2011cd\u2013ef\u2014gh", "ABCDEFGH"),
        ("oil0OIL1", "01100111"),
        ("\uff21bcd1234", "ABCD1234"),
        ("abcd_1234", "ABCD_1234"),
        ("abcd.1234", "ABCD.1234"),
        ("abcd(1234", "ABCD(1234"),
        ("abcd+1234", "ABCD+1234"),
        ("A" * LONGEST_TYPED, "A" * LONGEST_TYPED),
        ("A" * (LONGEST_TYPED + 1), ""),
    ],
)
def test_what_typing_does_not_change(typed: str, read: str) -> None:
    """Case, spaces, every hyphen and full-width forms are nothing; O, I and L are digits; any other sign stays."""
    assert normalise(typed) == read


@pytest.mark.parametrize("byte", range(256))
def test_each_byte_on_a_terminal(byte: int) -> None:
    """0x20 to 0x7E as they are, but for backslash and quote; all others by their number."""
    plain = 0x20 <= byte <= 0x7E and byte not in (0x22, 0x5C)
    assert escaped_agent(bytes([byte])) == (chr(byte) if plain else f"\\x{byte:02x}")


def test_a_long_agent_is_cut_between_two_signs() -> None:
    """At 200 characters after escaping, and never inside an escape."""
    assert escaped_agent(b"a" * 300) == "a" * AGENT_LENGTH
    assert escaped_agent(b"\0" * 300) == "\\x00" * (AGENT_LENGTH // 4)
    assert escaped_agent(b"a" * 197 + b"\0b") == "a" * 197

"""Pairing codes as drawn and as typed (section 2.5), and a stranger's text made fit for a terminal."""

from __future__ import annotations

import secrets
import unicodedata

from hatchway.statecharts.pairing import CHART

ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
"""Crockford base32: no I L O U. Eight of them are 40 bits."""

LENGTH = 8

LAST_EVENTS = CHART.final | {"failed"}
"""Events after which a terminal hears nothing more of its code: a final state, or an approval without a session."""

LONGEST_TYPED = 64
"""Characters of a code as typed, with its spaces and hyphens; a longer text is no code."""

AGENT_LENGTH = 200
"""Characters of a user agent shown at most, after escaping."""

_FOLDED = str.maketrans({"O": "0", "I": "1", "L": "1"})


def new_code() -> str:
    """A random code: eight characters of `ALPHABET`, 40 bits."""
    return "".join(secrets.choice(ALPHABET) for _ in range(LENGTH))


def normalise(text: str) -> str:
    """A code as typed: any case, spaces and hyphens ignored, O read as 0, I and L as 1."""
    if len(text) > LONGEST_TYPED:
        return ""
    folded = unicodedata.normalize("NFKC", text).upper()
    kept = "".join(sign for sign in folded if not (sign.isspace() or unicodedata.category(sign) == "Pd"))
    return kept.translate(_FOLDED)


def printable(agent: bytes) -> str:
    """Bytes from a stranger as text for a terminal: 0x20-0x7E only, `\\`, `"` and all others as \\xNN, cut at 200."""
    shown: list[str] = []
    length = 0
    for byte in agent[:AGENT_LENGTH]:
        piece = chr(byte) if 0x20 <= byte <= 0x7E and byte not in b'\\"' else f"\\x{byte:02x}"
        length += len(piece)
        if length > AGENT_LENGTH:
            break
        shown.append(piece)
    return "".join(shown)

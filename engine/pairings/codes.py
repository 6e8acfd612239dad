"""Pairing codes as drawn and as typed, and when one is over (sections 2.5 and 3.1)."""

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


def is_code(text: str) -> bool:
    """Whether a text, as typed, has the form of a code."""
    code = normalise(text)
    return len(code) == LENGTH and set(code) <= set(ALPHABET)

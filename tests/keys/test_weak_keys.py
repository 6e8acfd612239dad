"""The bounds of an RSA key's numbers, without a key (decision on keys; case D13)."""

from __future__ import annotations

import pytest

from hatchway.engine.keys.weak_keys import out_of_bounds, prime_modulus

MODULUS = 2**2048 - 1


@pytest.mark.parametrize("exponent", [65537, 65539, 2**32 - 1])
def test_an_odd_exponent_of_17_to_32_bits_is_taken(exponent: int) -> None:
    """The bounds themselves too."""
    assert out_of_bounds(MODULUS, exponent) is None


@pytest.mark.parametrize("exponent", [1, 3, 65535, 65536, 65538, 2**32 - 2, 2**32, 2**32 + 1])
def test_any_other_exponent_is_refused(exponent: int) -> None:
    """An even one undoes no signature; whatever a library says of it, it is said here."""
    assert "exponent" in (out_of_bounds(MODULUS, exponent) or "")


@pytest.mark.parametrize(
    ("modulus", "words"),
    [
        (2**2047 - 1, "too small: 2047 bits, 2048 at least"),
        (2**2047, None),
        (2**8192 - 1, None),
        (2**8192, "too large: 8193 bits, 8192 at most"),
    ],
)
def test_a_modulus_has_from_2048_to_8192_bits(modulus: int, words: str | None) -> None:
    """Both included, and the one that breaks a bound is told both."""
    told = out_of_bounds(modulus, 65537)
    assert told == (words and f"it is {words}")


def test_a_prime_is_no_modulus() -> None:
    """2^2203 - 1 is one; beside it is none."""
    assert "prime" in (prime_modulus(2**2203 - 1) or "")
    assert prime_modulus(2**2203 - 3) is None

"""The known weak kinds of RSA key, by badkeys' checks that need neither network nor block list (keys decision; D13)."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from functools import cache, lru_cache
from importlib.resources import files
from typing import Any

from hatchway.engine.base.imports import without

SMALLEST, LARGEST = 2048, 8192
"""Bits of the modulus, both included."""

_KINDS = {
    "smallfactors": "its modulus has a small factor",
    "roca": "it is a ROCA key (CVE-2017-15361)",
    "fermat": "its two primes are too close (Fermat factoring)",
    "rsapoly": "its modulus has a pattern that lets it be factored",
    "sharedprimes": "it shares a prime with another known key",
}


def out_of_bounds(n: int, e: int) -> str | None:
    """Which bound on size or exponent the key breaks, in words, or None."""
    bits = n.bit_length()
    if bits < SMALLEST:
        return f"it is too small: {bits} bits, {SMALLEST} at least"
    if bits > LARGEST:
        return f"it is too large: {bits} bits, {LARGEST} at most"
    if not (e % 2 and 65537 <= e < 2**32):
        return "its public exponent is not an odd number from 65537 to 2^32 - 1"
    return None


@lru_cache(maxsize=4096)
def weakness(n: int, e: int) -> str | None:
    """Which weak kind the key is, in words, or None: about 0.4 ms a key, and 10 ms once for the imports.

    Debian's weak keys and other leaked ones need a downloaded block list and are not looked for.
    """
    return _weakness_but_for(frozenset(), n, e)


def _weakness_but_for(checked: Collection[str], n: int, e: int) -> str | None:
    # The import costs 10 ms, and only reading a key needs it. pyOpenSSL, for certificates, would cost 40 ms more.
    with without("OpenSSL"):
        from badkeys import rsakeys
    for check, words in _KINDS.items():
        if check not in checked and getattr(rsakeys, check)(n, e=e):
            return words
    return None


FEW = 16
"""Keys for which it does not pay to make the products of `_sharing_none`."""

BATCH = 256
"""Keys that `_sharing_none` looks at together: larger products take longer to multiply than they save."""


def weaknesses(numbers: Sequence[tuple[int, int]]) -> list[str | None]:
    """As `weakness` of each modulus and exponent, for many keys: in 0.1 ms a key in place of 0.4."""
    if len(numbers) < FEW:
        return [weakness(n, e) for n, e in numbers]
    lengths: dict[int, list[int]] = {}
    for n, _ in numbers:
        lengths.setdefault(n.bit_length(), []).append(n)
    clean: set[int] = set()
    for moduli in lengths.values():
        for first in range(0, len(moduli), BATCH):
            clean |= _sharing_none(moduli[first : first + BATCH])
    return [_weakness_but_for(_BY_FACTOR, n, e) if n in clean else weakness(n, e) for n, e in numbers]


_BY_FACTOR = frozenset({"smallfactors", "sharedprimes"})
"""The checks that are a greatest common divisor with a number which is the same for every key of a length."""


def _sharing_none(moduli: Sequence[int]) -> set[int]:
    """Those of the moduli, all of one length, that surely have none of the factors which `_BY_FACTOR` looks for.

    The product of all these factors is divided by the product of all moduli, the remainder by that of each half of
    them, and so on down to each modulus, which is a few large divisions in place of a large one for each key.
    """
    import gmpy2

    products: list[list[Any]] = [[gmpy2.mpz(n) for n in moduli]]
    while len(products[-1]) > 1:
        below = products[-1]
        products.append([math.prod(below[at : at + 2]) for at in range(0, len(below), 2)])
    remainders = [_factors(moduli[0].bit_length())]
    for level in reversed(products):
        remainders = [remainders[at // 2] % product for at, product in enumerate(level)]
    return {n for n, rest in zip(moduli, remainders, strict=True) if gmpy2.gcd(n, rest) == 1}


@cache
def _factors(bits: int) -> Any:
    """The product of all primes that make a modulus of this length weak: the small ones, and those of badkeys' data."""
    import gmpy2

    small = gmpy2.primorial(65537)
    data = files("badkeys") / "keydata" / f"primes{bits}.dat"
    return small * gmpy2.from_binary(data.read_bytes()) if data.is_file() else small


_P = 2**255 - 19
_ORDER_8 = int.from_bytes(bytes.fromhex("26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05"), "little")
_SMALL_ORDER = frozenset({0, 1, _P - 1, _ORDER_8, _P - _ORDER_8})
"""The y of the points of order 1, 2, 4 and 8 on edwards25519 (RFC 7748, 4.1)."""


def small_order(point: bytes) -> str | None:
    """Words if the 32 bytes of an Ed25519 key are a point of small order, whose signatures anybody can make, or not a
    point's one spelling (RFC 8032, 5.1.3)."""
    y = int.from_bytes(point, "little") & (1 << 255) - 1
    if y >= _P:
        return "its point is not written in the one way that there is"
    return "its point is of small order, so that anybody could sign for it" if y in _SMALL_ORDER else None


def prime_modulus(n: int) -> str | None:
    """Words if `n` is itself prime, and so gives the private exponent away. 2 ms at 2048 bits, 80 ms at 8192."""
    import gmpy2  # imported here, as only reading a key needs it; Python's own pow takes ten times as long

    return "its modulus is a prime number" if gmpy2.powmod(2, n - 1, n) == 1 else None

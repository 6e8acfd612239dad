"""The known weak kinds of RSA key, by badkeys' checks that need neither network nor block list (keys decision; D13)."""

from __future__ import annotations

from functools import lru_cache

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
    # The import costs 10 ms, and only reading a key needs it. pyOpenSSL, for certificates, would cost 40 ms more.
    with without("OpenSSL"):
        from badkeys import rsakeys
    for check, words in _KINDS.items():
        if getattr(rsakeys, check)(n, e=e):
            return words
    return None


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

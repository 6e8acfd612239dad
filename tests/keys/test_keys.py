"""RSA keys: which are taken, and the weak kinds that are not (sections 2.4 and 5; case D13)."""

from __future__ import annotations

import subprocess
import sys
from base64 import encodebytes
from functools import cache
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey, RSAPublicNumbers
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from hatchway.engine.base.errors import KeyRefused
from hatchway.engine.keys import weak_keys
from hatchway.engine.keys.key_files import load_public
from hatchway.engine.keys.keys import (
    PassphraseWanted,
    PrivateKey,
    PublicKey,
    read_private_key,
    read_public_half,
    read_public_key,
)
from tests.support.fakes import ROOT, key, vectors
from tests.support.key_data import BASELINE, MANIFEST, OWN, refusal

# What is read (manifest of own keys)


@pytest.mark.parametrize("name", MANIFEST["register_public"])
def test_each_public_key_of_the_corpus_gets_its_verdict(name: str) -> None:
    """Accepted keys of one pair have one identity in every encoding; refused ones name a reason."""
    expect, data = MANIFEST["register_public"][name]["expect"], (OWN / name).read_bytes()
    if expect.startswith("reject") and "extra-permissions" not in expect:
        assert refusal(read_public_key, data).detail
        return
    public = read_public_key(data)
    assert ("same-identity" not in expect) or public.identity == BASELINE
    assert read_public_key(public.pem()).identity == public.identity
    assert read_public_key(public.openssh().encode()).identity == public.identity
    # Text around the key means nothing: no permission, no comment comes of it.
    assert public.comment == ""


@cache
def private_key(name: str) -> PrivateKey:
    """A key of the corpus. Showing that the primes of one of 8192 bits are primes takes seconds."""
    return read_private_key((OWN / name).read_bytes())


@pytest.mark.parametrize("name", MANIFEST["signin_private"])
def test_each_private_key_of_the_corpus_gets_its_verdict(name: str) -> None:
    """PKCS#1 and PKCS#8 are read; the rest is refused, an OpenSSH key with the contract's hint."""
    expect, data = MANIFEST["signin_private"][name], (OWN / name).read_bytes()
    if expect == "accept":
        assert private_key(name).public.bits >= 2048
    elif "passphrase" in expect:
        assert isinstance(refusal(read_private_key, data), PassphraseWanted)
        assert read_private_key(data, b"x").identity == BASELINE
        assert refusal(read_private_key, data, b"wrong").cause == "passphrase"
    else:
        assert not isinstance(refusal(read_private_key, data), PassphraseWanted)


def test_the_fingerprint_is_openssh_s_own() -> None:
    """`key list` and `ssh-keygen -l` name a key alike."""
    assert read_public_key((OWN / "rsa2048.spki.pub").read_bytes()).identity == BASELINE


BADKEYS = MANIFEST["register_badkeys"] | {
    # badkeys brings the list of known primes along, so this one is found too.
    "rsa-sharedprimes.key": "reject",
    # Its list of leaked keys has to be fetched, which registering a key must not do.
    "rsa-debianweak.key": "accept",
    "rsa-large-e.key": "reject",
}
REASONS = {
    "rsa-e1.key": "exponent",
    "rsa-e-larger-n.key": "exponent",
    "rsanzero.key": "modulus",
    "rsazerozero.key": "modulus",
    "rsa-large-e.key": "private key",
    "rsa-small-d.key": "exponent",
    "rsa-fermat-pkcs1.key": "Fermat",
    "rsa-fermat-pkcs8.key": "Fermat",
    "rsa-smallfactors-corrupt.key": "small factor",
    "rsa-smallfactors-valid.key": "small factor",
    "rsa-roca.key": "ROCA",
    "rsapoly32.key": "too small",
    "rsapoly128.key": "pattern",
    "rsa-pattern.key": "pattern",
    "rsa-sharedprimes.key": "shares a prime",
    "rsa-nprime.key": "prime number",
}


@pytest.mark.vectors
@pytest.mark.parametrize("name", BADKEYS)
def test_known_weak_keys_are_refused_for_what_they_are(name: str) -> None:
    """Each weak kind is named; ordinary and vanity keys are taken."""
    data = (vectors() / "badkeys" / name).read_bytes()
    if BADKEYS[name] == "accept":
        assert read_public_key(data).bits >= 2048
    else:
        assert REASONS[name] in refusal(read_public_key, data).detail


@pytest.mark.vectors
def test_many_keys_get_the_verdicts_that_each_gets_alone() -> None:
    """The factors of many keys are looked for together; whatever is weak about one of them is found all the same."""
    odd = [numbers for name in BADKEYS if (numbers := _numbers((vectors() / "badkeys" / name).read_bytes()))]
    sound = [key(name).public.rsa.public_numbers() for name in ("one", "two", "three")]
    many = [(one.n, one.e) for one in [*odd, *sound * weak_keys.BATCH, *odd]]
    told = weak_keys.weaknesses(many)
    assert told == [weak_keys.weakness(n, e) for n, e in many]
    words = " ".join(one for one in told if one)
    for kind in ("small factor", "shares a prime", "ROCA", "Fermat", "pattern"):
        assert kind in words


def _numbers(data: bytes) -> RSAPublicNumbers | None:
    try:
        public, _ = load_public(data)
    except KeyRefused:
        return None
    return public.public_numbers() if isinstance(public, RSAPublicKey) else None


@pytest.mark.vectors
def test_damaged_files_are_refused_by_both_readers() -> None:
    """Fragments, wrong versions and other kinds of key are a refusal each, never an error of a library."""
    for path in (vectors() / "badkeys/defect").iterdir():
        assert refusal(read_public_key, path.read_bytes()).detail
        assert refusal(read_private_key, path.read_bytes()).detail


@pytest.mark.vectors
def test_roca_keys_are_told_from_others() -> None:
    """ROCA's own test data: key 3 and ssh 6 are affected; ssh 5 is merely too small."""
    files = [*(vectors() / "roca").glob("pubkey*"), *(vectors() / "roca").glob("ssh*")]
    refused = {path.name: refusal(read_public_key, path.read_bytes()).detail for path in files if not _is_taken(path)}
    assert {name for name, why in refused.items() if "ROCA" in why} == {"pubkey03.pem", "ssh06.pub"}
    assert set(refused) == {"pubkey03.pem", "ssh06.pub", "ssh05.pub"}


@pytest.mark.vectors
@pytest.mark.parametrize("number", range(1, 10))
def test_roca_moduli_get_the_verdict_of_the_paper(number: int) -> None:
    """A modulus is affected if, modulo each small prime, it is a power of 65537 (CVE-2017-15361's fingerprint)."""
    modulus = int((vectors() / f"roca/mod0{number}.txt").read_text().strip(), 16)
    primes = [p for p in range(3, 168) if all(p % q for q in range(2, p))]
    affected = all(modulus % p in {pow(65537, power, p) for power in range(p)} for p in primes)
    assert ("ROCA" in (weak_keys.weakness(modulus, 65537) or "")) == affected


def _is_taken(path: Path) -> bool:
    try:
        return bool(read_public_key(path.read_bytes()))
    except KeyRefused:
        return False


def built(n: int, e: int) -> bytes:
    """A public key of these numbers, as a file."""
    public = RSAPublicNumbers(e, n).public_key()
    return PublicKey("", public, public.key_size).pem()


@pytest.mark.parametrize("exponent", [3, 17, 65535, 2**32 - 1, 2**32 + 15, 2**64 + 13])
def test_the_exponent_keeps_its_bounds(exponent: int) -> None:
    """Odd, from 65537, below 2^32: a huge one makes verifying slow, a small one forging easy."""
    n = key().public.rsa.public_numbers().n
    if exponent == 2**32 - 1:
        assert read_public_key(built(n, exponent)).bits == 2048
    else:
        assert "exponent" in refusal(read_public_key, built(n, exponent)).detail


def test_a_modulus_over_8192_bits_is_refused() -> None:
    """Verifying with a modulus of 16,384 bits takes 2 ms a try."""
    assert "too large" in refusal(read_public_key, built(2**8193 + 1, 65537)).detail


def test_checking_a_key_needs_no_network_and_writes_nothing() -> None:
    """The checks of weak kinds open no socket and write no file, and are imported only when a key is read."""
    code = """
import sys
import hatchway.engine.keys.keys as keys
assert "badkeys" not in sys.modules and "gmpy2" not in sys.modules
def audit(event, args):
    assert not event.startswith("socket."), event
    if event == "open":
        assert args[1] in (None, "r", "rb") and not (args[2] or 0) & 3, args
sys.dont_write_bytecode = True
sys.addaudithook(audit)
keys.read_public_key(sys.stdin.buffer.read())
assert "badkeys" in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], input=key().public.pem(), check=True, cwd=ROOT)


# The engine's own key


@pytest.mark.parametrize("name", MANIFEST["signin_private"])
def test_the_own_key_is_read_as_any_private_key(name: str) -> None:
    """A file that no private key could be read from is refused for the same reason; another has the same half."""
    data = (OWN / name).read_bytes()
    if MANIFEST["signin_private"][name].startswith("accept"):
        assert read_public_half(data) == private_key(name).public
    else:
        assert refusal(read_public_half, data).detail == refusal(read_private_key, data).detail


@pytest.mark.parametrize("change", [2, -2])
@pytest.mark.parametrize("number", ["p", "q", "d"])
def test_a_private_key_whose_numbers_do_not_belong_together_is_damaged(number: str, change: int) -> None:
    """One number of the file changed: nobody signs with it, and as the engine's own it is not started on, though that
    needs the public half alone."""
    whole = getattr(key().rsa.private_numbers(), number)
    size = (whole.bit_length() + 7) // 8
    der = key().key.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption())
    broken = der.replace(whole.to_bytes(size, "big"), (whole + change).to_bytes(size, "big"))
    data = b"-----BEGIN PRIVATE KEY-----\n" + encodebytes(broken) + b"-----END PRIVATE KEY-----\n"
    assert broken != der
    assert [refusal(read, data).cause for read in (read_private_key, read_public_half)] == ["damaged", "damaged"]

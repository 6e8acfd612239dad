"""Signing and verifying, with and without Wycheproof's vectors (section 5; case D5)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import padding
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicNumbers
from cryptography.hazmat.primitives.hashes import SHA1, SHA256, SHA512
from cryptography.hazmat.primitives.serialization import (
    load_pem_public_key,
)
from hypothesis import given
from hypothesis import strategies as st

from hatchway.engine.base.errors import SignatureRefused
from hatchway.engine.keys import keys, weak_keys
from hatchway.engine.keys.keys import Algorithm, PublicKey, read_private_key, read_public_key, sign, verify
from tests.support.fakes import key, vectors
from tests.support.key_data import odd_key, refusal

MESSAGE = b"hatchway-auth-v1.a.b.c"
N_BYTES = 256


def test_each_algorithm_verifies_its_own_signature_alone() -> None:
    """RS256 and PS256 are told apart and never tried by trial; each is as long as the modulus."""
    pairs: tuple[tuple[Algorithm, Algorithm], ...] = (("RS256", "PS256"), ("PS256", "RS256"))
    for algorithm, other in pairs:
        signature = sign(key(), MESSAGE, algorithm)
        assert len(signature) == N_BYTES
        verify(key().public, algorithm, MESSAGE, signature)
        for wrong in (
            (key().public, other, MESSAGE),
            (key("two").public, algorithm, MESSAGE),
            (key().public, algorithm, MESSAGE + b"\n"),
            (key().public, algorithm.lower(), MESSAGE),
            (key().public, "none", MESSAGE),
        ):
            with pytest.raises(SignatureRefused):
                verify(*wrong, signature)


@pytest.mark.parametrize("algorithm", ["RS256", "PS256"])
def test_a_signature_is_as_long_as_a_modulus_of_an_odd_size(algorithm: Algorithm) -> None:
    """A key of 2049 bits signs in 257 bytes; one byte more or less is told as such, before any arithmetic."""
    private = odd_key()
    signature = sign(private, MESSAGE, algorithm)
    assert (private.public.bits, len(signature)) == (2049, 257)
    verify(private.public, algorithm, MESSAGE, signature)
    for wrong in (signature[1:], signature[:-1], signature + b"\0", b"\0" + signature):
        with pytest.raises(SignatureRefused) as refused:
            verify(private.public, algorithm, MESSAGE, wrong)
        assert refused.value.cause == "signature_length"


FOREIGN: dict[str, tuple[padding.AsymmetricPadding, SHA1 | SHA256 | SHA512]] = {
    "RS1": (padding.PKCS1v15(), SHA1()),
    "RS512": (padding.PKCS1v15(), SHA512()),
    "PSS without salt": (padding.PSS(padding.MGF1(SHA256()), 0), SHA256()),
    "PSS, salt 20": (padding.PSS(padding.MGF1(SHA256()), 20), SHA256()),
    "PSS, salt 31": (padding.PSS(padding.MGF1(SHA256()), 31), SHA256()),
    "PSS, longest salt": (padding.PSS(padding.MGF1(SHA256()), padding.PSS.MAX_LENGTH), SHA256()),
    "PSS, MGF1 with SHA-1": (padding.PSS(padding.MGF1(SHA1()), 32), SHA256()),
    "PS512": (padding.PSS(padding.MGF1(SHA512()), 64), SHA512()),
}


@pytest.mark.parametrize("kind", FOREIGN)
def test_other_paddings_and_hashes_are_refused(kind: str) -> None:
    """A correct signature by any other scheme is none."""
    signature = key().rsa.sign(MESSAGE, *FOREIGN[kind])
    for algorithm in ("RS256", "PS256"):
        with pytest.raises(SignatureRefused):
            verify(key().public, algorithm, MESSAGE, signature)


def test_forged_signatures_are_refused() -> None:
    """Zeros, the ends of the range, one byte more or less, s + n, one bit changed."""
    n = key().public.rsa.public_numbers().n
    algorithms: tuple[Algorithm, ...] = ("RS256", "PS256")
    for algorithm in algorithms:
        good = sign(key(), MESSAGE, algorithm)
        s = int.from_bytes(good)
        numbers = (0, 1, 2, n - 1, n, n + 1, s ^ 1, s ^ (1 << 2047))
        forged = [number.to_bytes(N_BYTES) for number in numbers]
        forged += [b"", good[:-1], good + b"\0", b"\0" + good, (s + n).to_bytes(257), good * 2]
        for signature in forged:
            with pytest.raises(SignatureRefused):
                verify(key().public, algorithm, MESSAGE, signature)


@given(st.binary(max_size=300))
def test_no_bytes_are_a_signature(signature: bytes) -> None:
    """Random bytes of any length are refused by our refusal."""
    for algorithm in ("RS256", "PS256"):
        with pytest.raises(SignatureRefused):
            verify(key().public, algorithm, MESSAGE, signature)


WYCHEPROOF = [
    *(f"rsa_signature_{bits}_sha256" for bits in (2048, 3072, 4096, 8192)),
    "rsa_signature_2048_sha512",
    *(f"rsa_pss_{bits}_sha256_mgf1_32" for bits in (2048, 3072, 4096)),
    "rsa_pss_2048_sha256_mgf1_0",
    "rsa_pss_2048_sha256_mgf1sha1_20",
    "rsa_pss_2048_sha256_mgf1_32_params",
    "rsa_pss_misc",
    "rsa_pss_misc_params",
]


def wycheproof(name: str) -> list[dict[str, Any]]:
    """The groups of one file."""
    groups: list[dict[str, Any]] = json.loads((vectors() / f"wycheproof/{name}_test.json").read_text())["testGroups"]
    return groups


def _of_group(group: dict[str, Any]) -> PublicKey | None:
    """The group's key, from its bare numbers; None where our rules refuse it."""
    numbers = RSAPublicNumbers(*(int(group["publicKey"][part], 16) for part in ("publicExponent", "modulus")))
    public = numbers.public_key()
    if weak_keys.out_of_bounds(numbers.n, numbers.e):
        return None
    return PublicKey(keys.identity_of(public), public, public.key_size)


PS256_PARAMETERS = {"sha": "SHA-256", "mgf": "MGF1", "mgfSha": "SHA-256", "sLen": 32}
RS256_PARAMETERS = {"type": "RsassaPkcs1Verify", "sha": "SHA-256"}


def _verdicts(group: dict[str, Any], result: str) -> dict[str, bool]:
    """Whether a signature of this result verifies, by algorithm of ours; only where the vectors say so.

    What is valid under other parameters must be refused under ours. What is invalid under others may be a good
    signature under ours (the vectors hold swapped hashes and paddings), so it has no verdict here.
    """
    verdicts = {}
    for algorithm, parameters in (("RS256", RS256_PARAMETERS), ("PS256", PS256_PARAMETERS)):
        if parameters.items() <= group.items():
            verdicts[algorithm] = result == "valid"
        elif result == "valid":
            verdicts[algorithm] = False
    return verdicts


@pytest.mark.vectors
@pytest.mark.parametrize("name", WYCHEPROOF)
def test_wycheproof_verdicts(name: str) -> None:
    """0 wrong: valid signatures of our two algorithms verify; invalid ones, and valid ones of others, are refused.

    "Acceptable" (RS256 without the NULL) is refused. Keys with e = 3 fall to the rules for keys, before any signature.
    """
    wrong, counted = [], 0
    for group in wycheproof(name):
        public = _of_group(group)
        if public is None:
            assert group["publicKey"]["publicExponent"] == "03"
            continue
        for test in group["tests"]:
            message, signature = bytes.fromhex(test["msg"]), bytes.fromhex(test["sig"])
            for algorithm, expected in _verdicts(group, test["result"]).items():
                counted += 1
                if _verifies(public, algorithm, message, signature) != expected:
                    wrong.append((test["tcId"], algorithm, test["comment"]))
    assert wrong == []
    assert counted


def _verifies(public: PublicKey, algorithm: str, message: bytes, signature: bytes) -> bool:
    try:
        verify(public, algorithm, message, signature)
    except SignatureRefused:
        return False
    return True


@pytest.mark.vectors
@pytest.mark.parametrize("name", WYCHEPROOF)
def test_wycheproof_keys_by_their_files(name: str) -> None:
    """The same keys as PEM: read, but for e = 3 and for those bound to RSASSA-PSS parameters."""
    for group in wycheproof(name):
        data = group["publicKeyPem"].encode()
        if group["publicKey"]["publicExponent"] == "03":
            assert "exponent" in refusal(read_public_key, data).detail
        elif name.endswith("params"):
            assert refusal(read_public_key, data).cause == "pss_only"
        else:
            expected = load_pem_public_key(data)
            assert read_public_key(data).key == expected


@pytest.mark.vectors
def test_wycheproof_signatures_are_made_as_known() -> None:
    """RS256 is deterministic: signing the known messages gives the known bytes. Keys under 2048 bits are refused."""
    for group in wycheproof("rsa_pkcs1_1024_sig_gen"):
        assert "too small" in refusal(read_private_key, group["privateKeyPem"].encode()).detail
    for group in wycheproof("rsa_pkcs1_2048_sig_gen"):
        if group["privateKey"]["publicExponent"] == "03":
            assert "exponent" in refusal(read_private_key, group["privateKeyPem"].encode()).detail
            continue
        if group["sha"] != "SHA-256":
            continue
        private = read_private_key(group["privateKeyPem"].encode())
        for test in group["tests"]:
            assert sign(private, bytes.fromhex(test["msg"]), "RS256").hex() == test["sig"]

"""Others' vectors on JWS, JWK and the RFCs' own examples, against our token reader and what it is built on."""

from __future__ import annotations

import json
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicNumbers
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from hatchway.engine.access.tokens import Tokens, key_id
from hatchway.engine.base.base64url import decode, encode
from hatchway.engine.base.errors import KeyRefused, SignatureRefused, TokenRefused
from hatchway.engine.keys.keys import PublicKey, identity_of, read_public_key, verify
from tests.support.fakes import vectors

pytestmark = pytest.mark.vectors

FAULTY = {
    **dict.fromkeys((367, 370), "labelled invalid, and byte for byte the valid 357"),
    **dict.fromkeys((372, 373), "labelled valid, with a `?` in base64url"),
    **dict.fromkeys((346, 350), "the header says PS384, the key PS256"),
    **dict.fromkeys((353, 354, 355, 356), "depend on a JWK's use and key_ops, which we do not have"),
}
"""Cases of json_web_signature_test.json that are left out, each with why."""


def wycheproof(name: str) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Every case of a file, with its group."""
    groups = json.loads((vectors() / f"wycheproof/{name}_test.json").read_text())["testGroups"]
    return [(group, case) for group in groups for case in group["tests"]]


def rfc(name: str) -> Any:
    return json.loads((vectors() / "rfc/jose_rfc_vectors.json").read_text())[name]


@pytest.mark.parametrize("name", ["json_web_signature", "json_web_key", "json_web_crypto"])
def test_no_jws_of_the_world_is_a_session_token(name: str) -> None:
    """D14: Wycheproof's, valid or not, are all refused by our one refusal; none raises anything else."""
    reader = Tokens("engine", Ed25519PrivateKey.generate())
    cases = [case.get("jws") or case.get("jwe") for _, case in wycheproof(name)]
    for text in cases:
        with pytest.raises(TokenRefused):
            reader.read(text if isinstance(text, str) else json.dumps(text))
    assert len(cases) == {"json_web_signature": 401, "json_web_key": 26, "json_web_crypto": 83}[name]


def test_rsa_jws_by_our_own_verify() -> None:
    """A JWS read with our strict base64url and verified by the function that verifies sign-ins: no wrong verdict."""
    ran = 0
    for group, case in wycheproof("json_web_signature"):
        algorithm = (group.get("public") or {}).get("alg")
        if algorithm in ("RS256", "PS256") and case["tcId"] not in FAULTY:
            ran += 1
            assert _verifies(group["public"], algorithm, case["jws"]) == (case["result"] == "valid"), case
    assert ran == 233 + 50 - 2, "346 and 350 are of these groups"


def _verifies(jwk: dict[str, Any], algorithm: str, jws: Any) -> bool:
    try:
        header, payload, signature = jws.split(".")
        decode(payload)
        if json.loads(decode(header)).get("alg") != algorithm:
            return False
        verify(_public(jwk), algorithm, f"{header}.{payload}".encode(), decode(signature))
    except (SignatureRefused, ValueError, AttributeError):
        return False
    return True


def _public(jwk: dict[str, Any]) -> PublicKey:
    n, e = (int.from_bytes(decode(jwk[part])) for part in ("n", "e"))
    key = RSAPublicNumbers(e, n).public_key()
    return PublicKey(identity_of(key), key, key.key_size)


def test_rsa_jwks_by_our_rules_for_keys() -> None:
    """The ROCA key, the 1024-bit one and the exponent 1 can't be registered; the sound one can."""
    verdicts = {}
    for group, case in wycheproof("json_web_key"):
        keys = [jwk for jwk in (group.get("public") or {"keys": []})["keys"] if "n" in jwk]
        if len(keys) == 1 and case["comment"] != "rejectsWrongUse":  # we have no `use`
            verdicts[case["comment"]] = _registers(keys[0]), case["result"] == "valid"
    assert len(verdicts) == 4
    assert all(ours == theirs for ours, theirs in verdicts.values()), verdicts


def _registers(jwk: dict[str, Any]) -> bool:
    try:
        pem = _public(jwk).key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
        read_public_key(pem)
    except (KeyRefused, ValueError):
        return False
    return True


def test_rfc_8037_a4() -> None:
    """The example's key makes the example's signature, and has the thumbprint of appendix A.3."""
    example = rfc("rfc8037_A4_EdDSA")
    private = Ed25519PrivateKey.from_private_bytes(decode(example["jwk"]["d"]))
    header = b'{"alg":"EdDSA"}'
    text = f"{encode(header)}.{encode(example['payload'].encode())}"
    assert f"{text}.{encode(private.sign(text.encode()))}" == example["jws"]
    assert key_id(private.public_key()) == "kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k"
    reader = Tokens("engine", private)
    assert reader.jwks()["keys"][0]["x"] == example["jwk"]["x"]
    with pytest.raises(TokenRefused):
        reader.read(example["jws"])  # signed by the very key, and still of another kind


def test_rfc_7515_a1_and_7519_6_1() -> None:
    """An HS256 token that verifies by the RFC's key, and one without a signature: no session tokens."""
    example = rfc("rfc7515_A1_HS256")
    jwt.decode(example["jws"], decode(example["k"]), algorithms=["HS256"], options={"verify_exp": False})
    reader = Tokens("engine", Ed25519PrivateKey.generate())
    for text in (example["jws"], rfc("rfc7519_6_1_none")["jwt"]):
        with pytest.raises(TokenRefused):
            reader.read(text)

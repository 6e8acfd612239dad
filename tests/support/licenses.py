"""Licenses of a vendor that the tests are."""

from __future__ import annotations

from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

VENDOR, STRANGER = Ed25519PrivateKey.generate(), Ed25519PrivateKey.generate()
PEM = VENDOR.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()
EXPIRY = 1_801_396_800
"""2027-01-31 12:00:00 UTC."""


def issued(signer: Any = VENDOR, algorithm: str = "EdDSA", **changes: Any) -> str:
    """A license of the vendor's for two modules; None takes a claim out."""
    payload = {"licensee": "Lab 4", "modules": ["runtime", "shell"], "exp": EXPIRY} | changes
    payload = {name: value for name, value in payload.items() if value is not None}
    return jwt.encode(payload, signer, algorithm=algorithm)

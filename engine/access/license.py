"""The license: which modules the vendor grants, and until when (section 5, rule 4; `license info`)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import jwt
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import load_pem_public_key

from hatchway.engine.base import files
from hatchway.engine.base.clock import Clock
from hatchway.engine.base.errors import FileRefused, LicenseRefused, ModuleNotLicensed, SettingRefused
from hatchway.engine.base.permissions import FIVE
from hatchway.engine.keys.key_files import one_line
from hatchway.engine.settings.home import expanded

MODULES = tuple(name.lower() for name in FIVE)
"""One for each permission."""

_LATEST = datetime(9999, 1, 1, tzinfo=UTC).timestamp()


@dataclass(frozen=True, slots=True)
class License:
    """What was read at start or reload; `expires_at` in epoch seconds, None for the license that never ends.

    `problem` says why nothing is granted: no license, a forged one, or one that can't be read. Expiry is looked at on
    every call, since a license can end while the engine runs.
    """

    clock: Clock
    licensee: str
    modules: frozenset[str]
    expires_at: float | None = None
    problem: str | None = None

    def grants(self, module: str) -> bool:
        """Whether the module may be used now."""
        return module in self.modules and self.why_not() is None

    def require(self, module: str) -> None:
        """Raises `ModuleNotLicensed` unless the license grants the module."""
        if not self.grants(module):
            raise ModuleNotLicensed(module)

    def why_not(self) -> str | None:
        """Why nothing at all is granted, in words, or None."""
        if self.problem is None and self.expires_at is not None and self.expires_at <= self.clock.wall():
            return f"the license expired on {self.expiry()}"
        return self.problem

    def expiry(self) -> str | None:
        """When it ends, with the time zone: `2027-01-31 12:00:00 UTC`."""
        return None if self.expires_at is None else _moment(self.expires_at)


def load_license(path: Path, vendor_key: str | None, clock: Clock) -> License:
    """The license in force. `vendor_key` is the vendor's Ed25519 public key, as PEM text or the path of such a file.

    Without a vendor key everything is granted; with one, only what a license of that vendor grants. Raises
    SettingRefused where the vendor key can't be read.
    """
    if vendor_key is None:
        return License(clock, "community", frozenset(MODULES))
    key = _vendor_key(vendor_key)
    try:
        token = files.read_small(path).strip()
        return _read(jwt.decode(token, key, algorithms=["EdDSA"], options=_OPTIONS), clock)
    except FileNotFoundError:
        problem = f"there is no license: {path} is missing"
    except (FileRefused, LicenseRefused) as refused:
        problem = refused.detail
    except jwt.InvalidSignatureError:
        problem = "the license is forged or damaged: it is not signed with the vendor's key"
    except (jwt.PyJWTError, ValueError):
        problem = "the license is not one: no JWT that is signed with EdDSA"
    return License(clock, "none", frozenset(), None, problem)


# PyJWT would compare times with the system's clock; ours may be another.
_OPTIONS: Any = {
    "verify_exp": False,
    "verify_nbf": False,
    "verify_iat": False,
    "verify_aud": False,
    "verify_iss": False,
}


def _read(payload: dict[str, Any], clock: Clock) -> License:
    licensee, modules, expires_at = (payload.get(name) for name in ("licensee", "modules", "exp"))
    if not isinstance(licensee, str) or not licensee.strip():
        raise LicenseRefused("the license is damaged: it names no licensee")
    if not isinstance(modules, list) or not all(isinstance(module, str) for module in modules):
        raise LicenseRefused("the license is damaged: modules is not a list of names")
    if isinstance(expires_at, bool) or not isinstance(expires_at, int | float) or not 0 < expires_at < _LATEST:
        raise LicenseRefused("the license is damaged: exp is not a time")
    return License(clock, one_line(licensee), frozenset(modules) & set(MODULES), float(expires_at))


def _vendor_key(text: str) -> Ed25519PublicKey:
    try:
        data = text.encode() if "-----BEGIN" in text else files.read_small(expanded(text))
        key = load_pem_public_key(data)
    except (OSError, FileRefused, ValueError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, Ed25519PublicKey):
        raise SettingRefused("vendor_key is neither an Ed25519 public key in PEM form nor the path of such a file")
    return key


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(math.floor(seconds), UTC).strftime("%Y-%m-%d %H:%M:%S UTC")

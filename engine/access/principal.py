"""What is known of a session, what a sign-in returns, and the principal that a token stands for."""

from __future__ import annotations

from typing import Literal, NamedTuple

import msgspec

from hatchway.engine.base import permissions
from hatchway.engine.base.errors import PermissionDenied

Method = Literal["key", "pairing"]


class SessionFacts(msgspec.Struct, frozen=True, gc=False):
    """What is known of a session. Times in epoch seconds; `latest` bounds every renewal."""

    identity: str
    method: Method
    permissions: tuple[str, ...]
    lifetime: int
    started_at: float
    latest: float
    address: str
    label: str = ""
    """What people tell the session by; `agent` is the program that asked for it, as it named itself."""
    agent: str = ""
    renewed_at: float = 0.0
    """From when the lifetime counts; 0 in sessions of releases that did not note it."""


class IssuedSession(NamedTuple):
    """What a sign-in or a renewal answers (section 2.2); `expires_at` in epoch seconds."""

    token: str
    permissions: tuple[str, ...]
    expires_at: int
    key_expires_at: int | None = None
    """When the key is no longer accepted, in epoch seconds, where that is near."""


class Principal(NamedTuple):
    """Who a good token belongs to, and what it may do now. `expires_at` is when the token ends, with its
    session at the latest, in epoch seconds."""

    session: str
    identity: str
    method: Method
    permissions: tuple[str, ...]
    expires_at: int
    key_expires_at: int | None = None
    """As of IssuedSession."""


def require(principal: Principal, needed: str) -> None:
    """Raises PermissionDenied unless the principal has the permission, in the grade that is needed."""
    if not permissions.allows(principal.permissions, needed):
        raise PermissionDenied(needed)

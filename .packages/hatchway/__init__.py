"""Hatchway: sign-in and sessions for engines on remote hosts. `from hatchway import Client, AsyncClient`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hatchway.api.client import *  # noqa: F403 - every name of the client's own list


def __getattr__(name: str) -> Any:
    """Load the client when it is asked for: the engine and the command need nothing of it."""
    from hatchway.api import client

    if name not in client.__all__:
        raise AttributeError(f"module 'hatchway' has no attribute {name!r}")
    return getattr(client, name)

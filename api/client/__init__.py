"""The Python client, sync and async, over one description of its calls. It imports nothing of the engine's services."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hatchway.api.client.agent import AgentFault
    from hatchway.api.client.async_client import AsyncClient
    from hatchway.api.client.client import Client
    from hatchway.api.client.flows import Ask, StoredToken
    from hatchway.api.client.signers import read_key
    from hatchway.api.client.ssh.faults import SshFault
    from hatchway.api.client.wire import (
        Accepted,
        CertificateRefused,
        ChallengeRefused,
        ClientFault,
        Inspection,
        KeyMissing,
        NotAnEngine,
        Refused,
        SignedIn,
        Started,
        Unreachable,
    )

__all__ = [
    "Accepted",
    "AgentFault",
    "Ask",
    "AsyncClient",
    "CertificateRefused",
    "ChallengeRefused",
    "Client",
    "ClientFault",
    "Inspection",
    "KeyMissing",
    "NotAnEngine",
    "Refused",
    "SignedIn",
    "SshFault",
    "Started",
    "StoredToken",
    "Unreachable",
    "read_key",
]


def __getattr__(name: str) -> Any:
    """Load the client when it is asked for: the engine and the command need nothing of it."""
    if name not in __all__:
        raise AttributeError(f"module 'hatchway.api.client' has no attribute {name!r}")
    from hatchway.api.client import agent, async_client, client, flows, signers, wire
    from hatchway.api.client.ssh import faults

    modules = (client, async_client, flows, wire, signers, agent, faults)
    return next(getattr(module, name) for module in modules if hasattr(module, name))

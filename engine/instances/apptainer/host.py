"""What this host can enforce: processors, memory, the cgroup controllers that our user may use, GPUs."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from hatchway.engine.base.errors import ResourcesUnavailable
from hatchway.engine.base.text import counted
from hatchway.engine.instances.request import InstanceRequest


class Host(NamedTuple):
    """What a host has. `memory` is in bytes; `controllers` are the cgroup controllers that our user may use."""

    cpus: int
    memory: int
    controllers: frozenset[str]
    gpus: int


def this_host() -> Host:
    """This host as it is now: controllers may have been delegated, or a GPU added, since the last call."""
    return Host(
        os.cpu_count() or 1,
        os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        _controllers(os.geteuid()),
        len(list(Path("/dev").glob("nvidia[0-9]*"))),
    )


def _controllers(uid: int) -> frozenset[str]:
    """The cgroup controllers by which Apptainer can set limits. It uses systemd, and for an ordinary user the part of
    cgroups v2 that systemd has delegated to that user."""
    if not Path("/run/systemd/system").is_dir():
        return frozenset()
    below = f"user.slice/user-{uid}.slice/user@{uid}.service/" if uid else ""
    try:
        return frozenset(Path(f"/sys/fs/cgroup/{below}cgroup.controllers").read_text().split())
    except OSError:
        return frozenset()


def check_limits(request: InstanceRequest, host: Host) -> None:
    """Raises ResourcesUnavailable, which names each limit that can't be enforced here. None is dropped silently."""
    errors = {
        name: why
        for name, why in (
            ("cpu", _cpu(request, host)),
            ("memory", _memory(request, host)),
            ("gpu", _gpu(request, host)),
        )
        if why
    }
    if errors:
        raise ResourcesUnavailable("; ".join(f"{name}: {why}" for name, why in errors.items()), errors=errors)


def _cpu(request: InstanceRequest, host: Host) -> str | None:
    if request.cpu is None:
        return None
    if "cpu" not in host.controllers:
        return "this host can't enforce it (no cgroup controller `cpu` for the engine's user)"
    return f"this host has {counted(host.cpus, 'processor')}" if request.cpu > host.cpus * 1000 else None


def _memory(request: InstanceRequest, host: Host) -> str | None:
    if request.memory is None:
        return None
    if "memory" not in host.controllers:
        return "this host can't enforce it (no cgroup controller `memory` for the engine's user)"
    return f"this host has {host.memory} bytes" if request.memory > host.memory else None


def _gpu(request: InstanceRequest, host: Host) -> str | None:
    if request.gpu is None:
        return None
    if not host.gpus:
        return "this host has no GPU"
    if request.gpu != "all" and request.gpu != host.gpus:
        return f"this host can only give all that it has: {counted(host.gpus, 'GPU')}"
    return None

"""Turns a body's fields into a request that keeps every rule (section 2.6), for Apptainer and Slurm alike."""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import msgspec

from hatchway.engine.base.errors import ImageNotFound, InvalidRequest
from hatchway.engine.instances.images import read_image
from hatchway.engine.instances.quantities import read_cpu, read_gpu, read_memory
from hatchway.engine.instances.request import InstanceFields, InstanceRequest, Policy, Volume
from hatchway.engine.instances.volumes import check_apart, read_volume
from hatchway.engine.settings.settings import TABLE

T = TypeVar("T")

MOST_ITEMS = 64
"""Items that `command` and `volume` may have."""

MOST_VARIABLES = 256
LONGEST_ITEM, LONGEST_VARIABLE = 8192, 32768
"""Bytes at most of one item of `command`, and of one of `env`. The kernel's own limit is 128 KiB."""

OF_SLURM = ("partition", "account", "time_limit")
"""Fields that only the platform `slurm` takes."""

_IDENTITY = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")
_VARIABLE = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)
_RUNTIMES_OWN = frozenset({"HOME", "UID", "EUID", "GID"})
"""Variables that the runtime sets itself. It would ignore another value silently, so a request must not have one."""


def confine(fields: InstanceFields, policy: Policy) -> InstanceRequest:
    """The confined request. Raises InvalidRequest, which names every wrong field; ImageNotFound where only that is."""
    errors: dict[str, str] = {}

    def read(name: str, reader: Callable[[], T]) -> T | None:
        try:
            return reader()
        except ValueError as wrong:
            errors[name] = str(wrong)
            return None

    identity = read("identity", lambda: _identity(fields.identity))
    command = read("command", lambda: _command(fields.command))
    env = read("env", lambda: _env(fields.env))
    cpu = read("cpu", lambda: read_cpu(fields.cpu))
    memory = read("memory", lambda: read_memory(fields.memory))
    gpu = read("gpu", lambda: read_gpu(fields.gpu))
    volumes = read("volume", lambda: _volumes(fields.volume, policy))
    read("fakeroot", lambda: _fakeroot(fields.fakeroot, volumes or (), policy))
    slurm = {name: read(name, partial(_of_slurm, name, fields, policy)) for name in OF_SLURM}
    image, absent = None, None
    try:
        image = read("image", lambda: read_image(fields.image, policy))
    except ImageNotFound as refused:
        absent = refused
    if errors:
        raise InvalidRequest(errors)
    if absent:
        raise absent
    assert identity is not None  # a wrong one has raised InvalidRequest
    assert image is not None
    request = InstanceRequest(
        identity, image, command or (), cpu, memory, gpu, env or (), volumes or (), fields.fakeroot
    )
    return msgspec.structs.replace(request, **slurm)


def _identity(text: str | msgspec.UnsetType) -> str:
    if isinstance(text, msgspec.UnsetType):
        return "hw-" + secrets.token_hex(5)
    if not _IDENTITY.fullmatch(text):
        raise ValueError("must be 1 to 63 letters, digits, '_', '.' or '-', beginning with a letter or digit")
    return text


def _command(items: list[str]) -> tuple[str, ...]:
    if len(items) > MOST_ITEMS:
        raise ValueError(f"must have at most {MOST_ITEMS} items")
    for item in items:
        _text(item, LONGEST_ITEM)
    if items and not items[0]:
        raise ValueError("must begin with a program")
    return tuple(items)


def _text(item: str, longest: int) -> None:
    if "\0" in item:
        raise ValueError("must not hold a NUL character")
    if len(item.encode()) > longest:
        raise ValueError(f"must have items of at most {longest} bytes")


def _env(items: list[str]) -> tuple[str, ...]:
    if len(items) > MOST_VARIABLES:
        raise ValueError(f"must have at most {MOST_VARIABLES} items")
    names = set()
    for item in items:
        _text(item, LONGEST_VARIABLE)
        found = _VARIABLE.fullmatch(item)
        if not found:
            raise ValueError("must be NAME=value, the name of letters, digits and '_', not beginning with a digit")
        _variable(found[1], found[2])
        names.add(found[1])
    if len(names) != len(items):
        raise ValueError("must name each variable once")
    return tuple(items)


def _variable(name: str, value: str) -> None:
    if name.upper().startswith(("APPTAINER", "SINGULARITY")):
        raise ValueError("must not name variables of the runtime's own (APPTAINER..., SINGULARITY...)")
    if name in _RUNTIMES_OWN:
        raise ValueError(f"must not name {name}: the runtime sets it")
    if "\r\n" in value:
        raise ValueError("must not hold a carriage return before a line feed: it would not arrive")


def _volumes(items: list[str], policy: Policy) -> tuple[Volume, ...]:
    if len(items) > MOST_ITEMS:
        raise ValueError(f"must have at most {MOST_ITEMS} items")
    volumes = tuple(read_volume(item, policy) for item in items)
    check_apart(volumes)
    return volumes


def _fakeroot(wanted: bool, volumes: tuple[Volume, ...], policy: Policy) -> None:
    if wanted and not policy.allow_fakeroot:
        raise ValueError("is off: the setting `allow_fakeroot` allows it")
    if wanted and any(volume.writable for volume in volumes):
        raise ValueError("does not go with a volume that may be written")


def _of_slurm(name: str, fields: InstanceFields, policy: Policy) -> Any:
    """The value that the request asks for, where it may; else that of the settings, None where there is none."""
    asked = getattr(fields, name)
    if policy.slurm is None:
        if asked:
            raise ValueError("is for Slurm: this engine's setting `platform` is another")
        return None
    if not asked:
        return getattr(policy.slurm, name)
    if name not in policy.slurm.allow_request:
        raise ValueError("may not be asked for here: the setting `slurm.allow_request` does not name it")
    return TABLE[f"slurm.{name}"].kind.read(asked)

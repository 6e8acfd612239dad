"""What may be asked of the platform (section 2.6): the body's fields, and the request they become once checked."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec

from engine.settings import Settings


class InstanceFields(msgspec.Struct, forbid_unknown_fields=True):
    """The body as it comes. An empty `cpu`, `memory` or `gpu` is no limit; an absent `identity` is drawn."""

    image: str
    identity: str | msgspec.UnsetType = msgspec.UNSET
    command: list[str] = []
    cpu: str = ""
    memory: str = ""
    gpu: str = ""
    env: list[str] = []
    volume: list[str] = []
    fakeroot: bool = False


class Image(msgspec.Struct, frozen=True):
    """`name` is a resolved path of the host, or a reference with its transport; `registry` is where that is fetched."""

    name: str
    registry: str | None = None


class Volume(msgspec.Struct, frozen=True):
    """A folder or file of the host, resolved, and where the container sees it."""

    source: str
    destination: str
    writable: bool


class InstanceRequest(msgspec.Struct, frozen=True):
    """A request that keeps every rule; only `confine` makes one.

    `cpu` in thousandths of a processor, `memory` in bytes, `gpu` a count or `all`; None is no limit. `env` holds
    `NAME=value`.
    """

    identity: str
    image: Image
    command: tuple[str, ...] = ()
    cpu: int | None = None
    memory: int | None = None
    gpu: int | Literal["all"] | None = None
    env: tuple[str, ...] = ()
    volumes: tuple[Volume, ...] = ()
    fakeroot: bool = False


class Policy(msgspec.Struct, frozen=True):
    """Where images and volumes may come from. `home` is the engine's folder, out of reach of every container."""

    home: Path
    image_folders: tuple[str, ...] = ()
    registries: tuple[str, ...] = ()
    volume_roots: tuple[str, ...] = ()
    allow_fakeroot: bool = False

    @classmethod
    def of(cls, home: Path, settings: Settings) -> Policy:
        return cls(home, settings.image_folders, settings.registries, settings.volume_roots, settings.allow_fakeroot)

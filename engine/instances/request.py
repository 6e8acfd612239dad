"""What may be asked of the platform (section 2.6): the body's fields, and the request they become once checked."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from hatchway.engine.instances.own_paths import own_paths
from hatchway.engine.instances.paths import overlap
from hatchway.engine.settings.settings import Settings, SlurmSettings


def _told(**schema: Any) -> msgspec.Meta:
    """What the API's description says of a field; `confine` is what checks it, in its own words."""
    return msgspec.Meta(extra_json_schema=schema)


class InstanceFields(msgspec.Struct, forbid_unknown_fields=True):
    """The body as it comes. An empty `cpu`, `memory` or `gpu` is no limit; an absent `identity` is drawn.

    `partition`, `account` and `time_limit` are for Slurm, where its settings let them be asked for.
    """

    image: Annotated[str, _told(examples=["/srv/images/tool.sif", "docker://alpine:3.20"])]
    identity: Annotated[str, _told(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$")] | msgspec.UnsetType = msgspec.UNSET
    command: Annotated[list[str], _told(maxItems=64)] = []
    cpu: Annotated[str, _told(pattern=r"^(|[0-9]{1,3}(\.[0-9]{1,3})?|[0-9]{1,6}m)$", examples=["2", "500m"])] = ""
    memory: Annotated[str, _told(pattern="^(|[0-9]{1,15}([KMG]i?)?)$", examples=["512M", "2Gi"])] = ""
    gpu: Annotated[str, _told(pattern="^(|all|[0-9]{1,3})$", examples=["all", "1"])] = ""
    env: Annotated[list[Annotated[str, _told(pattern="^[A-Za-z_][A-Za-z0-9_]*=")]], _told(maxItems=256)] = []
    volume: Annotated[list[Annotated[str, _told(pattern="^/[^:]*:/[^:]*(:r[ow])?$")]], _told(maxItems=64)] = []
    fakeroot: bool = False
    partition: Annotated[str, _told(pattern="^(|[A-Za-z0-9_][A-Za-z0-9_.,-]{0,254})$")] = ""
    account: Annotated[str, _told(pattern="^(|[A-Za-z0-9_][A-Za-z0-9_.,-]{0,254})$")] = ""
    time_limit: Annotated[str, _told(pattern="^(|[0-9]+[mh]|[0-9]+m[0-9]+s)$", examples=["30m", "2h"])] = ""


class Image(msgspec.Struct, frozen=True):
    """An image: `name` is a resolved path of the host, or a reference with its transport and `registry` its host."""

    name: str
    registry: str | None = None


class Volume(msgspec.Struct, frozen=True):
    """A folder or file of the host, resolved, and where the container sees it."""

    source: str
    destination: str
    writable: bool
    folder: bool = True


class InstanceRequest(msgspec.Struct, frozen=True):
    """A request that keeps every rule; only `confine` makes one.

    `cpu` in thousandths of a processor, `memory` in bytes, `gpu` a count or `all`; None is no limit. `env` holds
    `NAME=value`. `partition`, `account` and `time_limit` (seconds) are Slurm's; None is its own choice.
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
    partition: str | None = None
    account: str | None = None
    time_limit: int | None = None


class Policy(msgspec.Struct, frozen=True):
    """What a request may ask for. No container may reach `own`: the engine's paths, its folder `home` among them.

    `slurm` is what jobs are given and what of it a request may choose; None where the platform is another.
    """

    home: Path
    image_folders: tuple[str, ...] = ()
    registries: tuple[str, ...] = ()
    volume_roots: tuple[str, ...] = ()
    allow_fakeroot: bool = False
    slurm: SlurmSettings | None = None
    own: tuple[Path, ...] = ()

    @classmethod
    def of(cls, home: Path, settings: Settings) -> Policy:
        """The policy of these settings, for an engine whose folder is `home`."""
        roots = (settings.image_folders, settings.registries, settings.volume_roots)
        slurm = settings.slurm if settings.platform == "slurm" else None
        return cls(home, *roots, settings.allow_fakeroot, slurm, own_paths(home, settings))

    def closes(self, path: Path) -> bool:
        """Whether a resolved path is, is in, or holds something of the engine's own."""
        return any(overlap(path, own) for own in (self.home.resolve(), *self.own))

    def holds_images(self, path: Path) -> bool:
        """Whether a resolved path is, is in, or holds a folder that images are taken from."""
        return any(overlap(path, Path(folder).resolve()) for folder in self.image_folders)

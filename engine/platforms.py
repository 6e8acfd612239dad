"""Which platform runs an engine's instances, by the setting `platform`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from hatchway.engine.instances.apptainer.apptainer import Apptainer
from hatchway.engine.instances.protocol import Platform
from hatchway.engine.settings.settings import Settings


def make_platform(settings: Callable[[], Settings], home: Path, member: str | None) -> Platform:
    """The platform for an engine on `home`. `member` is the engine's id in its fleet, None for an engine of no fleet.

    The platform itself stays until a restart; what else the settings say of it is taken up at each reload.
    """

    def allow_root() -> bool:
        return settings().allow_root_instances

    def log_bytes() -> int:
        return settings().limits.instance_log_bytes

    if settings().platform == "slurm":
        from hatchway.engine.instances.slurm.slurm import Slurm  # few engines have a cluster, and load this

        return Slurm(jobs_folder(settings(), home, member), allow_root, log_bytes)
    return Apptainer(home / "instances", allow_root, log_bytes=log_bytes)


def jobs_folder(settings: Settings, home: Path, member: str | None) -> Path:
    """Where Slurm's jobs leave their files. Engines of a fleet may share the folder that `slurm.folder` names, and a
    name that was one engine's instance may be another's next: so each has a folder of its own in it."""
    shared = settings.slurm.folder
    if shared is None:
        return home / "slurm"
    return shared if member is None else shared / member.rpartition(":")[2]

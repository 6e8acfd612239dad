"""A confined request as what Apptainer is given: on this host, and in a Slurm job alike. Never a shell."""

from __future__ import annotations

from pathlib import Path

from hatchway.engine.instances.binds import Bind
from hatchway.engine.instances.request import InstanceRequest, Volume

ISOLATION = ("--containall", "--cleanenv", "--no-eval")
"""No home, no host environment, own processes; and no evaluation of what a variable or a command holds."""


EMPTY = "empty"
"""Name of the folder that lies beneath each volume, in the folder of the instance."""


def start_argv(
    program: str, request: InstanceRequest, folder: Path, *, userns: bool = False, limits: bool = True
) -> list[str]:
    """Starts the instance, whose own folder holds an empty one, `EMPTY`, where there are volumes.

    Without `limits` somebody else enforces them, such as Slurm.
    """
    return [
        *(program, "instance", "start", *ISOLATION),
        *(["--userns"] if userns else []),
        *(["--fakeroot"] if request.fakeroot else []),
        *(_limits(request) if limits else []),
        *(["--nv"] if request.gpu else []),
        *_plain_http(request),
        *(option for volume in request.volumes for option in _mounts(volume, folder / EMPTY)),
        *("--", request.image.name, request.identity),
    ]


def exec_argv(program: str, request: InstanceRequest, *, userns: bool = False) -> list[str]:
    """Runs the request's command in the started instance; it wants the request's `variables` like the start."""
    return [
        *(program, "exec", *ISOLATION),
        *(["--userns"] if userns else []),
        *("--", f"instance://{request.identity}", *request.command),
    ]


def variables(request: InstanceRequest) -> dict[str, str]:
    """The request's variables, for the environment of the runtime's call: its arguments everybody may read."""
    pairs = (variable.split("=", 1) for variable in request.env)
    return {f"APPTAINERENV_{name}": value for name, value in pairs}


def stop_argv(program: str, identity: str, seconds: int) -> list[str]:
    """Ends the instance, by force after `seconds`."""
    return [program, "instance", "stop", "--timeout", str(seconds), "--", identity]


def list_argv(program: str) -> list[str]:
    """Prints the user's instances as JSON."""
    return [program, "instance", "list", "--json"]


def binds(request: InstanceRequest) -> list[Bind]:
    """Its volumes, as what they are bound to is compared."""
    return [(volume.source, volume.destination, volume.writable) for volume in request.volumes]


def _limits(request: InstanceRequest) -> list[str]:
    cpu = ["--cpus", f"{request.cpu / 1000:.3f}"] if request.cpu is not None else []
    return cpu + (["--memory", str(request.memory)] if request.memory is not None else [])


def _plain_http(request: InstanceRequest) -> list[str]:
    """A registry on this very host needs no TLS; any other has to have it."""
    host = (request.image.registry or "").partition(":")[0]
    return ["--no-https"] if host in ("localhost", "127.0.0.1") else []


def _mounts(volume: Volume, empty: Path) -> list[str]:
    """A folder is bound over an empty one of ours.

    What is missing of any destination the runtime makes on the host, in the source of the first bind that it finds
    above, and follows every link that lies there. An image can lead it below a volume by a link of its own, whatever
    the destinations say; so the first bind is of a folder that has no links. The slash at the end keeps the runtime
    from taking the two for one.
    """
    beneath = [_mount(str(empty), volume.destination + "/", writable=False)] if volume.folder else []
    mounts = [*beneath, _mount(volume.source, volume.destination, writable=volume.writable)]
    return [word for mount in mounts for word in ("--mount", mount)]


def _mount(source: str, destination: str, *, writable: bool) -> str:
    source, destination = _csv(f"source={source}"), _csv(f"destination={destination}")
    return f"type=bind,{source},{destination}" + ("" if writable else ",ro")


def _csv(text: str) -> str:
    return '"' + text.replace('"', '""') + '"'

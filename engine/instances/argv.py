"""The command lines of Apptainer for a confined request, on this host and in a Slurm job alike. No shell reads them."""

from __future__ import annotations

from pathlib import Path

from hatchway.engine.instances.binds import Bind
from hatchway.engine.instances.request import InstanceRequest, Volume

ISOLATION = ("--containall", "--cleanenv", "--no-eval")
"""No home folder, no environment of the host, processes of its own; `--no-eval` leaves `$` in variables as it is."""


EMPTY = "empty"
"""Name, in the instance's folder, of the empty folder that is bound below each volume (see `_mounts`)."""


def start_argv(
    program: str, request: InstanceRequest, folder: Path, *, userns: bool = False, limits: bool = True
) -> list[str]:
    """Starts the instance. `folder` is its own, which must hold the folder `EMPTY` where there are volumes.

    Without `limits` cpu and memory are not limited here: Slurm does that.
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
    """Runs the request's command in the started instance. Its environment must hold `variables(request)`."""
    return [
        *(program, "exec", *ISOLATION),
        *(["--userns"] if userns else []),
        *("--", f"instance://{request.identity}", *request.command),
    ]


def variables(request: InstanceRequest) -> dict[str, str]:
    """The request's variables as the runtime takes them from its environment: its arguments any user can read."""
    pairs = (variable.split("=", 1) for variable in request.env)
    return {f"APPTAINERENV_{name}": value for name, value in pairs}


def stop_argv(program: str, identity: str, seconds: int) -> list[str]:
    """Ends the instance, by force after `seconds`."""
    return [program, "instance", "stop", "--timeout", str(seconds), "--", identity]


def list_argv(program: str) -> list[str]:
    """Prints the user's instances as JSON."""
    return [program, "instance", "list", "--json"]


def binds(request: InstanceRequest) -> list[Bind]:
    """The request's volumes, as `binds.differs` compares them."""
    return [(volume.source, volume.destination, volume.writable) for volume in request.volumes]


def _limits(request: InstanceRequest) -> list[str]:
    cpu = ["--cpus", f"{request.cpu / 1000:.3f}"] if request.cpu is not None else []
    return cpu + (["--memory", str(request.memory)] if request.memory is not None else [])


def _plain_http(request: InstanceRequest) -> list[str]:
    """A registry on this very host needs no TLS; any other has to have it."""
    host = (request.image.registry or "").partition(":")[0]
    return ["--no-https"] if host in ("localhost", "127.0.0.1") else []


def _mounts(volume: Volume, empty: Path) -> list[str]:
    """The options that bind a folder: first an empty folder of ours to the destination, then the volume over it.

    Where a destination is missing in the image, the runtime makes it on the host: in the source of whatever bind the
    path leads into, following every link there. An image can have such a path lead into a volume. With the empty
    folder bound first, the path leads into a folder without links. The slash at the end of the second destination
    keeps the runtime from dropping it as a repetition.
    """
    beneath = [_mount(str(empty), volume.destination + "/", writable=False)] if volume.folder else []
    mounts = [*beneath, _mount(volume.source, volume.destination, writable=volume.writable)]
    return [word for mount in mounts for word in ("--mount", mount)]


def _mount(source: str, destination: str, *, writable: bool) -> str:
    source, destination = _csv(f"source={source}"), _csv(f"destination={destination}")
    return f"type=bind,{source},{destination}" + ("" if writable else ",ro")


def _csv(text: str) -> str:
    return '"' + text.replace('"', '""') + '"'

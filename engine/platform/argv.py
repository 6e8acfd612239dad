"""A confined request as Apptainer's argument vectors: on this host, and in a Slurm job alike. Never a shell."""

from __future__ import annotations

from engine.platform.request import InstanceRequest, Volume

ISOLATION = ("--containall", "--cleanenv", "--no-eval")
"""No home, no host environment, own processes; and no evaluation of what a variable or a command holds."""


def start_argv(program: str, request: InstanceRequest, *, userns: bool = False, limits: bool = True) -> list[str]:
    """Starts the instance. Without `limits` somebody else enforces them, such as Slurm."""
    return [
        *(program, "instance", "start", *ISOLATION),
        *(["--userns"] if userns else []),
        *(["--fakeroot"] if request.fakeroot else []),
        *(_limits(request) if limits else []),
        *(["--nv"] if request.gpu else []),
        *_plain_http(request),
        *_env(request.env),
        *(option for volume in request.volumes for option in ("--mount", _mount(volume))),
        *("--", request.image.name, request.identity),
    ]


def exec_argv(program: str, request: InstanceRequest, *, userns: bool = False) -> list[str]:
    """Runs the request's command in the started instance; the variables of the start don't reach it by themselves."""
    return [
        *(program, "exec", *ISOLATION),
        *(["--userns"] if userns else []),
        *_env(request.env),
        *("--", f"instance://{request.identity}", *request.command),
    ]


def stop_argv(program: str, identity: str, seconds: int) -> list[str]:
    """Ends the instance, by force after `seconds`."""
    return [program, "instance", "stop", "--timeout", str(seconds), "--", identity]


def list_argv(program: str) -> list[str]:
    return [program, "instance", "list", "--json"]


def _limits(request: InstanceRequest) -> list[str]:
    cpu = ["--cpus", f"{request.cpu / 1000:.3f}"] if request.cpu is not None else []
    return cpu + (["--memory", str(request.memory)] if request.memory is not None else [])


def _plain_http(request: InstanceRequest) -> list[str]:
    """A registry on this very host needs no TLS; any other has to have it."""
    host = (request.image.registry or "").partition(":")[0]
    return ["--no-https"] if host in ("localhost", "127.0.0.1") else []


def _env(variables: tuple[str, ...]) -> list[str]:
    return [part for variable in variables for part in ("--env", _variable(variable))]


def _variable(variable: str) -> str:
    """One variable as one CSV record, so that no comma or quote in it makes a second.

    pflag reads CSV only where it counts two `=` or more, and else strips quotes: a lone one is said twice.
    """
    quoted = _csv(variable)
    return f"{quoted},{quoted}" if variable.count("=") == 1 else quoted


def _mount(volume: Volume) -> str:
    source, destination = _csv(f"source={volume.source}"), _csv(f"destination={volume.destination}")
    return f"type=bind,{source},{destination}" + ("" if volume.writable else ",ro")


def _csv(text: str) -> str:
    return '"' + text.replace('"', '""') + '"'

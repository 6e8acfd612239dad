"""The platform's protocol: what the instance service asks of Apptainer or Slurm, which run containers (section 4.5)."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, Protocol

import msgspec

from hatchway.engine.base.errors import Refusal
from hatchway.engine.instances.request import InstanceRequest

Stream = Literal["out", "err"]


class ListedInstance(msgspec.Struct, frozen=True, rename="camel"):
    """An instance as the runtime's own list has it (section 2.7), in that list's spelling on the wire."""

    instance: str
    pid: int
    img: str
    ip: str
    log_err_path: str
    log_out_path: str


class ConfirmedStart(msgspec.Struct, frozen=True):
    """A start that the runtime's list confirms.

    `since` tells the process (or the job) from a later one of the same number. `session` is the session id of its
    processes on this host. `log_from` are the offsets in the logs, out and err, where this instance's output begins:
    the runtime appends to the logs of an earlier instance of that name. `node` is where it runs, empty for this host.
    """

    entry: ListedInstance
    since: str
    log_from: tuple[int, int] = (0, 0)
    session: int = 0
    node: str = ""


class StartFailed(Exception):
    """A start failed. `exit_code` is the runtime's, `refusal` what the caller may know."""

    def __init__(self, refusal: Refusal, exit_code: int) -> None:
        super().__init__(refusal.detail)
        self.refusal, self.exit_code = refusal, exit_code


class Lost(Exception):
    """The platform ended an instance: `cause` for programs, `why` for people, its command's exit code if there is
    one."""

    def __init__(self, cause: str, why: str, exit_code: int | None = None) -> None:
        super().__init__(why)
        self.cause, self.why, self.exit_code = cause, why, exit_code


class Report(Protocol):
    """Callbacks for a start that has to queue. After a restart of the engine they may be called again."""

    async def queued(self, job: str) -> None:
        """The start waits in the scheduler's queue, as this job."""

    async def placed(self) -> None:
        """The start has left the queue."""


class Platform(Protocol):
    """Runs instances. The service starts none under a name before the last one has ended or was undone."""

    async def run(self) -> None:
        """What is to be done for all instances together, for ever. The service runs it beside them."""

    def admit(self, request: InstanceRequest) -> None:
        """Raises ResourcesUnavailable where a limit can't be enforced, RuntimeUnavailable where there is no runtime."""

    async def start(self, request: InstanceRequest, report: Report) -> ConfirmedStart:
        """Start the instance and its command. Raises StartFailed. When it is cancelled, the runtime goes on."""

    async def adopt(self, request: InstanceRequest, report: Report) -> ConfirmedStart:
        """Finish a `start` that an earlier run of the engine began. Raises StartFailed."""

    async def undo(self, identity: str) -> None:
        """Remove what is left of a start that failed or was given up.

        Raises a Refusal or an OSError where that can't be done or known now: it is called again until it can.
        """

    async def wait_ended(self, request: InstanceRequest, started: ConfirmedStart) -> int | None:
        """Wait until the instance has ended and its name is free. Returns the command's exit code, None if unknown.

        Raises Lost where the platform ended it; a Refusal or an OSError where its end can't be seen or noted now: it
        is called again until it can.
        """

    async def stop(self, request: InstanceRequest, started: ConfirmedStart) -> None:
        """Tell the instance to end; `wait_ended` returns when it has."""

    async def kill(self, request: InstanceRequest, started: ConfirmedStart) -> None:
        """End the instance by force; `wait_ended` returns when it has."""

    async def heard(self) -> None:
        """Wait until all that was asked so far has reached the runtime or the scheduler.

        Raises RuntimeUnavailable, with `retry_after`, where that does not answer. It is asked again all the same.
        """

    def progress(self, identity: str) -> str:
        """What a start is doing now, in a few words; where it is queued, also why."""

    def log(self, started: ConfirmedStart, stream: Stream) -> tuple[Path, int]:
        """The file that holds a stream of the instance's output, and the offset at which its own begins."""

    def forget(self, identity: str) -> None:
        """Remove what is kept of an ended instance, its log among it."""

"""The platform's protocol: what the instance service asks of whatever runs containers (section 4.5)."""

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

    `since` tells the process (or the job) from a later one of the same number; `session` is the one that all of its
    processes on this host belong to. `log_from` is where in the logs, out and err, this instance's output begins: the
    runtime appends to those of an earlier one of that name. `node` is where it runs, empty for this host.
    """

    entry: ListedInstance
    since: str
    log_from: tuple[int, int] = (0, 0)
    session: int = 0
    node: str = ""


class StartFailed(Exception):
    """A start came to nothing. `exit_code` is the runtime's, `refusal` what the caller may know."""

    def __init__(self, refusal: Refusal, exit_code: int) -> None:
        super().__init__(refusal.detail)
        self.refusal, self.exit_code = refusal, exit_code


class Lost(Exception):
    """An instance was ended by what runs it: `cause` for programs, `why` for people, its command's exit code if any."""

    def __init__(self, cause: str, why: str, exit_code: int | None = None) -> None:
        super().__init__(why)
        self.cause, self.why, self.exit_code = cause, why, exit_code


class Report(Protocol):
    """Told of a start that has to queue. What was told before a restart may be told again."""

    async def queued(self, job: str) -> None:
        """It is the scheduler's, under this number."""

    async def placed(self) -> None:
        """It has left the queue."""


class Platform(Protocol):
    """Runs instances. A name is one instance's from `start` until its end or `undo`: the service sees to that."""

    async def run(self) -> None:
        """What goes on beside all instances, for as long as they are minded."""

    def admit(self, request: InstanceRequest) -> None:
        """Raises ResourcesUnavailable for a limit that nobody enforces, RuntimeUnavailable for want of a runtime."""

    async def start(self, request: InstanceRequest, report: Report) -> ConfirmedStart:
        """Start it, with its command. Raises StartFailed; cancelled, it leaves the runtime to go on."""

    async def adopt(self, request: InstanceRequest, report: Report) -> ConfirmedStart:
        """`start`, where an engine before this one has begun it."""

    async def undo(self, identity: str) -> None:
        """Nothing of a start that failed or was given up is left when this returns.

        Raises RuntimeUnavailable; with `retry_after` where it is to be asked again until it succeeds.
        """

    async def wait_ended(self, request: InstanceRequest, started: ConfirmedStart) -> int | None:
        """Returns when the instance is over and its name free: the command's exit code, None where none is known.

        Raises Lost where it did not end by itself.
        """

    async def stop(self, request: InstanceRequest, started: ConfirmedStart) -> None:
        """Have it end; `wait_ended` tells when it has."""

    async def kill(self, request: InstanceRequest, started: ConfirmedStart) -> None:
        """End it by force."""

    async def heard(self) -> None:
        """Returns when what it was asked so far has reached what runs instances.

        Raises RuntimeUnavailable, with `retry_after`, where that does not answer: it is asked on all the same.
        """

    def progress(self, identity: str) -> str:
        """What a start is doing now, in a word or two; of one that is queued, with why."""

    def log(self, started: ConfirmedStart, stream: Stream) -> tuple[Path, int]:
        """The file that holds a stream of its output, and where in it this instance's begins."""

    def forget(self, identity: str) -> None:
        """Its record is dropped: so is what was kept beside it."""

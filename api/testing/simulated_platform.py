"""A platform that runs nothing: its instances start, queue, fail and end by a script."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec
import trio

from hatchway.api.testing.faults import Seconds
from hatchway.engine.base.errors import InstanceNotFound, RuntimeUnavailable
from hatchway.engine.instances.protocol import ConfirmedStart, ListedInstance, Report, StartFailed, Stream
from hatchway.engine.instances.request import InstanceRequest

ExitCode = Annotated[int, msgspec.Meta(ge=0, le=255)]


class InstanceScript(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What becomes of an instance: it waits `queues` seconds in a queue, if that is given; the start takes `takes`
    seconds and fails with the message `fails`, if there is one; it ends by itself after `runs` seconds, or when it is
    told to; with `exit_code`, of the command or of the failed start. Seconds are by the engine's clock."""

    takes: Seconds = 0.0
    queues: Seconds | None = None
    fails: str | None = None
    runs: Seconds | None = None
    exit_code: ExitCode = 0


class _SimulatedRun:
    def __init__(self, script: InstanceScript) -> None:
        self.script, self.code = script, script.exit_code
        self.over = trio.Event()

    def end(self, code: int) -> None:
        self.code = code
        self.over.set()


class SimulatedPlatform:
    """The platform of an engine under test."""

    def __init__(self, folder: Path) -> None:
        """`folder` is for the instances' logs."""
        self._folder = folder
        self._script = InstanceScript()
        self._scripts: dict[str, InstanceScript] = {}
        self.running: dict[str, _SimulatedRun] = {}
        self._jobs = 0

    def set_script(self, name: str | None, script: InstanceScript) -> None:
        """What becomes of instances of that name from now on, or of all others."""
        if name is None:
            self._script = script
        else:
            self._scripts[name] = script

    def end(self, name: str, exit_code: int = 0) -> None:
        """An instance ends by itself, now. Raises InstanceNotFound."""
        if name not in self.running:
            raise InstanceNotFound(f"no instance named {name} runs here")
        self.running[name].end(exit_code)

    async def run(self) -> None:
        """Nothing: there is nothing to do for all instances together."""

    def admit(self, request: InstanceRequest) -> None:
        """Nothing: every limit counts as enforced."""

    async def start(self, request: InstanceRequest, report: Report) -> ConfirmedStart:
        name = request.identity
        script = self._scripts.get(name, self._script)
        if script.queues is not None:
            self._jobs += 1
            await report.queued(str(self._jobs))
            await trio.sleep(script.queues)
            await report.placed()
        await trio.sleep(script.takes)
        if script.fails is not None:
            raise StartFailed(RuntimeUnavailable(script.fails, retry_after=30), script.exit_code or 255)
        out, err = (self._path(name, stream) for stream in ("out", "err"))
        for path in (out, err):
            path.touch(0o600)
        self.running[name] = _SimulatedRun(script)
        entry = ListedInstance(name, 4711, request.image.name, "", str(err), str(out))
        return ConfirmedStart(entry, "test", (out.stat().st_size, err.stat().st_size))

    async def adopt(self, request: InstanceRequest, report: Report) -> ConfirmedStart:
        return await self.start(request, report)

    async def undo(self, identity: str) -> None:
        self.running.pop(identity, None)

    async def wait_ended(self, request: InstanceRequest, started: ConfirmedStart) -> int | None:
        run = self.running[request.identity]
        with trio.move_on_after(float("inf") if run.script.runs is None else run.script.runs):
            await run.over.wait()
        self.running.pop(request.identity, None)
        return run.code

    async def stop(self, request: InstanceRequest, started: ConfirmedStart) -> None:
        if request.identity in self.running:
            self.end(request.identity, 143)

    async def kill(self, request: InstanceRequest, started: ConfirmedStart) -> None:
        await self.stop(request, started)

    async def heard(self) -> None:
        """Nothing: what is asked counts at once."""

    def progress(self, identity: str) -> str:
        return "as the test said"

    def log(self, started: ConfirmedStart, stream: Stream) -> tuple[Path, int]:
        return self._path(started.entry.instance, stream), started.log_from[stream == "err"]

    def _path(self, name: str, stream: str) -> Path:
        return self._folder / f"{name}.{stream}"

    def forget(self, identity: str) -> None:
        """Nothing: logs are removed with the engine's folder."""

"""A platform that runs nothing: what the instance service and the fleet ask of one, and who asks for it."""

from __future__ import annotations

from collections import Counter, defaultdict
from pathlib import Path

import trio

from hatchway.engine.base.errors import RuntimeUnavailable
from hatchway.engine.instances.protocol import ConfirmedStart, ListedInstance, Lost, Report, Stream
from hatchway.engine.instances.request import InstanceRequest
from hatchway.engine.runtime.records import Origin

ORIGIN = Origin("SHA256:somebody", "127.0.0.1", "r-1")


class TestPlatform:
    """Runs nothing, and tells what it was asked. `takes` seconds a start, `fails` what it comes to; `faults` what calls
    raise by their words, one each."""

    __test__ = False

    def __init__(self) -> None:
        self.takes = 1.0
        self.fails: Exception | None = None
        self.deaf = False
        self.told: list[tuple[str, str]] = []
        self.running: dict[str, trio.Event] = {}
        self.code: int | None = 0
        self.queue: trio.Event | None = None
        self.lost: Lost | None = None
        self.faults: defaultdict[str, list[Exception]] = defaultdict(list)
        self.silent = False

    def admit(self, request: InstanceRequest) -> None:
        self.told.append(("admit", request.identity))

    async def run(self) -> None:
        self.told.append(("run", ""))

    async def start(self, request: InstanceRequest, report: Report) -> ConfirmedStart:
        return await self._begin("start", request, report)

    async def adopt(self, request: InstanceRequest, report: Report) -> ConfirmedStart:
        return await self._begin("adopt", request, report)

    async def _begin(self, how: str, request: InstanceRequest, report: Report) -> ConfirmedStart:
        self.told.append((how, request.identity))
        if self.queue is not None:
            await report.queued("7")
            await self.queue.wait()
            await report.placed()
        await trio.sleep(self.takes)
        if self.fails:
            raise self.fails
        self.running[request.identity] = trio.Event()
        return ConfirmedStart(
            ListedInstance(request.identity, 4711, "/i.sif", "", "/l.err", "/l.out"), "boot:1", (3, 4)
        )

    async def undo(self, identity: str) -> None:
        await trio.sleep(0.5)
        self.told.append(("undo", identity))
        self._fail("undo")
        self.running.pop(identity, None)

    async def heard(self) -> None:
        await trio.sleep(0.1)
        if self.silent:
            raise RuntimeUnavailable("no word", retry_after=30)

    async def wait_ended(self, request: InstanceRequest, started: ConfirmedStart) -> int | None:
        self.told.append(("watch", request.identity))
        self._fail("watch")
        await self.running.setdefault(request.identity, trio.Event()).wait()
        if self.lost:
            raise self.lost
        return self.code

    async def stop(self, request: InstanceRequest, started: ConfirmedStart) -> None:
        self.told.append(("stop", request.identity))
        if not self.deaf:
            self.running[request.identity].set()

    async def kill(self, request: InstanceRequest, started: ConfirmedStart) -> None:
        self.told.append(("kill", request.identity))
        if self.words("kill") > 1:
            self.running[request.identity].set()

    def _fail(self, word: str) -> None:
        if self.faults[word]:
            raise self.faults[word].pop(0)

    def words(self, word: str) -> int:
        return Counter(word for word, _ in self.told)[word]

    def progress(self, identity: str) -> str:
        return "fetching image"

    def log(self, started: ConfirmedStart, stream: Stream) -> tuple[Path, int]:
        return Path(started.entry.log_out_path), started.log_from[0]

    def forget(self, identity: str) -> None:
        self.told.append(("forget", identity))

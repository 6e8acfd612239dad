"""Supervises instances: the effects of the instance chart, which start, watch and end instances on the platform."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, TypeVar

import msgspec
import structlog
import trio

from hatchway.engine.base.errors import Refusal, RuntimeUnavailable, StoreUnavailable
from hatchway.engine.base.tasks import kept_up
from hatchway.engine.instances.protocol import ConfirmedStart, Lost, Platform, Report, StartFailed
from hatchway.engine.instances.request import InstanceRequest
from hatchway.engine.runtime import Actor, Data, Effect, Runtime
from hatchway.statecharts import instance
from hatchway.statecharts.interpreter import EventRefused

log = structlog.get_logger(__name__)

LOCAL_STARTS, FETCHING_STARTS = 8, 4
"""Starts that run at once: of images on this host, and of images that a registry must be asked for."""

STORE_RETRY = 1.0
"""Seconds until an event of the runtime's that could not be stored is sent again."""

GIVEN_UP = 137
"""The exit code of a start that was given up: 128 and SIGKILL's number."""

QUEUE_HELD = 15.0
"""Seconds that a start may be queued before the request that asked for it is answered with 202."""

RETRY = 5.0
"""Seconds until a start that could not be undone, or an end that could not be seen, is tried again."""

T = TypeVar("T")
Start = Callable[[InstanceRequest, Report], Awaitable[ConfirmedStart]]


class InstanceFacts(msgspec.Struct, frozen=True):
    """One instance. Times in epoch seconds; `exit_code` is its command's, `failure` says why it failed."""

    request: InstanceRequest
    owner: str
    requested_at: float
    started: ConfirmedStart | None = None
    started_at: float | None = None
    ended_at: float | None = None
    exit_code: int | None = None
    failure: str | None = None
    job: str | None = None


class Waiter:
    """A task that waits for a start, and the identity that asked for it, `owner`. It is woken once."""

    def __init__(self, owner: str) -> None:
        self.owner = owner
        self._done = trio.Event()
        self._failed: StartFailed | None = None

    def answer(self, failed: StartFailed | None) -> None:
        if self._done.is_set():
            return
        self._failed = failed
        self._done.set()

    async def wait(self) -> None:
        await self._done.wait()
        if self._failed:
            raise self._failed


class InstanceSupervisor:
    """Runs the tasks of all instances, in `run` and not in the requests that caused them: a client that leaves changes
    nothing."""

    def __init__(self, runtime: Runtime, platform: Platform) -> None:
        self._runtime, self._platform = runtime, platform
        self._nursery: trio.Nursery | None = None
        self._limits = {False: trio.CapacityLimiter(LOCAL_STARTS), True: trio.CapacityLimiter(FETCHING_STARTS)}
        self._calls: dict[Actor, trio.CancelScope] = {}
        self.waiters: dict[str, Waiter] = {}
        self.ends: dict[str, trio.Event] = {}

    @property
    def effects(self) -> Mapping[str, Effect]:
        """The handlers of the chart's effects."""
        return {
            "queue_start": lambda actor, data: self._spawn(self._take_turn, actor),
            "call_runtime": lambda actor, data: self._call_runtime(actor, self._platform.start),
            "confirm_start": lambda actor, data: self._answer(actor, None),
            "hold_answer": lambda actor, data: self._spawn(self._answer_later, actor),
            "refuse_start": self._refuse_start,
            "undo_start": lambda actor, data: self._undo_start(actor),
            "watch_end": lambda actor, data: self._spawn(self._watch, actor),
            "stop_instance": lambda actor, data: self._spawn(self._end, actor, self._platform.stop),
            "kill_instance": lambda actor, data: self._spawn(self._end, actor, self._platform.kill),
            "report_end": lambda actor, data: self.ends.pop(actor.id, trio.Event()).set(),
        }

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Take up the instances that an earlier run of the engine began, and supervise all of them for ever."""
        async with trio.open_nursery() as self._nursery:
            self._nursery.start_soon(kept_up, self._platform.run)
            for actor in await self._runtime.restore("instance"):
                self._resume(actor)
            task_status.started()
            await trio.sleep_forever()

    def _resume(self, actor: Actor) -> None:
        if actor.state == "requested":
            self._spawn(self._take_turn, actor)
        elif actor.state in ("starting", "queued"):
            self._call_runtime(actor, self._platform.adopt)
        elif actor.state in ("running", "stopping") and actor.facts.started:
            self._spawn(self._watch, actor)
            if actor.state == "stopping":
                self._spawn(self._end, actor, self._platform.stop)
        elif actor.state == "stopping":
            self._spawn(self._undo, actor, _given_up())

    def _spawn(self, task: Callable[..., Awaitable[None]], actor: Actor, *arguments: Any) -> None:
        assert self._nursery is not None, "an instance was asked for before `run`"
        self._nursery.start_soon(partial(_mind, task, actor, *arguments))

    # Starting

    async def _take_turn(self, actor: Actor) -> None:
        slots = self._slots_of(actor)
        await slots.acquire_on_behalf_of(actor)
        try:
            await self._tell(actor, "begin")
        except EventRefused:  # it was stopped, or its start window was over, while it waited for its turn
            slots.release_on_behalf_of(actor)

    def _slots_of(self, actor: Actor) -> trio.CapacityLimiter:
        return self._limits[actor.facts.request.image.registry is not None]

    def _call_runtime(self, actor: Actor, start: Start) -> None:
        self._calls[actor] = trio.CancelScope()
        self._spawn(self._call, actor, start)

    async def _call(self, actor: Actor, start: Start) -> None:
        """Call `start`. In the end the runtime has the instance and the chart says so, or neither is true."""
        try:
            failed: StartFailed | None = _given_up()
            with self._calls[actor]:
                failed = await self._try(actor, start)
            if failed is not None:
                await self._undo(actor, failed)
        finally:
            del self._calls[actor]
            self._end_turn(actor)

    def _end_turn(self, actor: Actor) -> None:
        slots = self._slots_of(actor)
        if actor in slots.statistics().borrowers:
            slots.release_on_behalf_of(actor)

    async def _try(self, actor: Actor, start: Start) -> StartFailed | None:
        try:
            started = await start(actor.facts.request, _Progress(self, actor))
            await self._tell(actor, "confirm", {"started": started, "started_at": self._runtime.clock.wall()})
        except StartFailed as failed:
            return failed
        except EventRefused:  # it was stopped, or its start window was over, just then
            return _given_up()
        except Refusal as refused:
            return StartFailed(refused, GIVEN_UP)
        except Exception:
            log.exception("instance_start_broke", instance=actor.id)
            return StartFailed(RuntimeUnavailable("the start broke off; the engine's log has why"), GIVEN_UP)
        return None

    def _undo_start(self, actor: Actor) -> None:
        """Have the start's own task undo it; another one where a fault has ended that."""
        call = self._calls.get(actor)
        if call is None:
            self._spawn(self._undo, actor, _given_up())
        else:
            call.cancel()

    async def _undo(self, actor: Actor, failed: StartFailed) -> None:
        """Undo the start, however often that takes: until then it may run, and must not be called failed."""
        undone = partial(self._undone, actor, failed)
        await _insist(undone, lambda why: log.warning("instance_not_undone", instance=actor.id, why=why))

    async def _undone(self, actor: Actor, failed: StartFailed) -> None:
        with trio.CancelScope(shield=True):
            await self._platform.undo(actor.id)
            changes = self._ended(actor, failure=failed.refusal.detail)
            await self._tell(actor, "fail", changes, failed=failed, cause=failed.refusal.cause)

    def _answer(self, actor: Actor, failed: StartFailed | None) -> None:
        waiter = self.waiters.get(actor.id)
        if waiter:
            waiter.answer(failed)

    async def _answer_later(self, actor: Actor) -> None:
        await trio.sleep(QUEUE_HELD)
        if actor.state == "queued":
            self._answer(actor, None)

    async def queued(self, actor: Actor, job: str) -> None:
        """The start waits in the scheduler's queue. Another start may begin here meanwhile."""
        if actor.state == "starting" and actor.facts.job is None:
            await self._tell(actor, "queue", {"job": job})
        self._end_turn(actor)

    async def placed(self, actor: Actor) -> None:
        """The start has left the scheduler's queue."""
        if actor.state == "queued":
            await self._tell(actor, "place")

    def _refuse_start(self, actor: Actor, data: Data) -> None:
        self._answer(actor, data.get("failed") or _given_up())

    # Ending

    async def _watch(self, actor: Actor) -> None:
        wait = partial(self._platform.wait_ended, actor.facts.request, actor.facts.started)
        try:
            code = await _insist(wait, lambda why: log.warning("instance_not_watched", instance=actor.id, why=why))
        except Lost as lost:
            if actor.state != "stopping":
                changes = self._ended(actor, exit_code=lost.exit_code, failure=lost.why)
                await self._tell(actor, "fail", changes, cause=lost.cause)
                return
            code = lost.exit_code  # it was told to end, so that the platform ended it is no failure
        await self._tell(actor, "end", self._ended(actor, exit_code=code))

    async def _end(self, actor: Actor, by: Callable[[InstanceRequest, ConfirmedStart], Awaitable[None]]) -> None:
        await by(actor.facts.request, actor.facts.started)

    def _ended(self, actor: Actor, **changes: Any) -> dict[str, Any]:
        """The changes to an ended instance's facts. Of its variables the names are kept, and no values."""
        request: InstanceRequest = actor.facts.request
        names = tuple(f"{variable.partition('=')[0]}=" for variable in request.env)
        kept = msgspec.structs.replace(request, env=names)
        return {"request": kept, "ended_at": self._runtime.clock.wall(), **changes}

    async def _tell(self, actor: Actor, event: str, changes: Mapping[str, Any] | None = None, **data: Any) -> None:
        """Send an event of the runtime's. It has happened, so where the store can't be written it is sent again."""
        while True:
            try:
                await self._runtime.send("instance", actor.id, event, changes=changes, **data)
            except StoreUnavailable as refused:
                log.warning("instance_event_not_stored", instance=actor.id, what=event, why=refused.why)
                await trio.sleep(STORE_RETRY)
            else:
                return


class _Progress:
    """A `Report` that sends the progress of one start in the scheduler's queue to the chart."""

    def __init__(self, supervisor: InstanceSupervisor, actor: Actor) -> None:
        self._supervisor, self._actor = supervisor, actor

    async def queued(self, job: str) -> None:
        await self._supervisor.queued(self._actor, job)

    async def placed(self) -> None:
        await self._supervisor.placed(self._actor)


async def _insist(once: Callable[[], Awaitable[T]], tell: Callable[[str], None]) -> T:
    """The result of `once`, called again where the host or the platform lacks what it takes. `tell` gets each reason
    once."""
    told: set[str] = set()
    while True:
        try:
            return await once()
        except (Refusal, OSError, ExceptionGroup) as failed:  # a group is what tasks of the platform's met
            why = failed.why if isinstance(failed, Refusal) else repr(failed)
            if why not in told:
                tell(why)
            told.add(why)
        await trio.sleep(RETRY)


async def _mind(task: Callable[..., Awaitable[None]], actor: Actor, *arguments: Any) -> None:
    """Run a task of one instance. An error in it is logged, and does not end the tasks of other instances."""
    try:
        await task(actor, *arguments)
    except Exception:
        log.exception("instance_task_failed", instance=actor.id)


def _given_up() -> StartFailed:
    return StartFailed(RuntimeUnavailable("the start took too long, or was stopped", retry_after=30), GIVEN_UP)


def start_window(facts: InstanceFacts, now: float) -> float:
    """The deadline of a start. It is later where the image must be fetched from a registry first."""
    fetched = facts.request.image.registry is not None
    return now + (instance.FETCHED_START_WINDOW if fetched else instance.LOCAL_START_WINDOW)

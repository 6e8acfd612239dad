"""The instance service over a platform of the test's own: who gets a name, who waits, what survives what."""

from __future__ import annotations

import errno
import os
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio
from structlog.testing import capture_logs
from trio.testing import MockClock

from hatchway.api.testing.memory import InterruptibleStore
from hatchway.engine.base.clock import TrioClock
from hatchway.engine.base.errors import (
    FileRefused,
    ImageNotFound,
    InstanceExists,
    InstanceNotFound,
    Refusal,
    RuntimeUnavailable,
    StoreUnavailable,
    TooManyInstances,
)
from hatchway.engine.instances.instances import KEPT_COUNT, KEPT_SECONDS, Instances
from hatchway.engine.instances.protocol import Lost, StartFailed
from hatchway.engine.instances.request import InstanceFields
from hatchway.engine.instances.supervisor import FETCHING_STARTS, LOCAL_STARTS, QUEUE_HELD
from hatchway.engine.runtime import Runtime
from hatchway.engine.runtime.records import Origin, Records
from hatchway.engine.settings.settings import Limits, Settings
from hatchway.engine.store.memory import MemoryStore
from tests.support.fake_platform import ORIGIN, TestPlatform
from tests.support.fakes import Watchers


class Service:
    """An instance service that runs, and everything behind it."""

    def __init__(self, instances: Instances, platform: TestPlatform, store: MemoryStore, clock: TrioClock) -> None:
        self.instances, self.platform, self.store, self.clock = instances, platform, store, clock

    async def start(self, name: str = "one", **fields: Any) -> Any:
        return await self.instances.start(InstanceFields("docker://x", identity=name, **fields), ORIGIN)

    def state(self, name: str = "one") -> str:
        return self.instances.show(name).state


@asynccontextmanager
async def service(
    platform: TestPlatform | None = None, store: MemoryStore | None = None, **settings: Any
) -> AsyncIterator[Service]:
    clock, platform = TrioClock(), platform or TestPlatform()
    store = store or MemoryStore(clock)
    watchers = Watchers()
    runtime = Runtime(clock, Records(clock, watchers))
    known = Settings(registries=("docker.io",), **settings)
    instances = Instances(runtime, store, platform, lambda: known, Path("/engine"))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(runtime.run)
        await nursery.start(instances.run)
        yield Service(instances, platform, store, clock)
        nursery.cancel_scope.cancel()
    watchers.check()


async def until_state(here: Service, state: str, name: str = "one") -> None:
    with trio.fail_after(3600):
        while here.state(name) != state:
            await trio.sleep(0.1)


async def test_a_life(autojump_clock: MockClock) -> None:
    """Started, shown, stopped: the runtime's entry is kept, and the command's exit code."""
    async with service() as here:
        here.platform.code = 7
        actor = await here.start(command=["x"])
        assert (actor.state, actor.facts.started.entry.pid, actor.facts.owner) == ("running", 4711, "SHA256:somebody")
        assert [actor.id for actor in here.instances.shown()] == ["one"]
        assert here.instances.log(actor, "out") == (Path("/l.out"), 3)
        await trio.sleep(1)
        ended = await here.instances.stop("one", ORIGIN)
        assert (ended.state, ended.facts.exit_code) == ("stopped", 7)
        assert ended.facts.ended_at > ended.facts.started_at > ended.facts.requested_at


async def test_six_starts_of_one_name(autojump_clock: MockClock) -> None:
    """One is started; five are refused before the runtime is asked anything."""
    async with service() as here:
        outcomes: list[str] = []

        async def one() -> None:
            try:
                outcomes.append((await here.start()).state)
            except InstanceExists as refused:
                outcomes.append(refused.code)

        async with trio.open_nursery() as nursery:
            for _ in range(6):
                nursery.start_soon(one)
        assert Counter(outcomes) == {"running": 1, "instance_exists": 5}
        assert here.platform.words("start") == 1


async def test_an_end_by_itself_frees_the_name(autojump_clock: MockClock) -> None:
    """The same name starts again, and again; what was kept of the one before goes."""
    async with service() as here:
        for _ in range(3):
            await here.start()
            here.platform.running["one"].set()
            await until_state(here, "stopped")
        assert here.platform.words("start") == 3
        assert here.platform.words("forget") == 2
        assert len(await here.store.live("instance")) == 1


@pytest.mark.parametrize(("image", "seconds"), [("docker://x", 600), ("box.sif", 60)])
async def test_a_start_that_takes_too_long(autojump_clock: MockClock, tmp_path: Path, image: str, seconds: int) -> None:
    """A minute for an image that is here, ten for one to be fetched: then it is undone and refused."""
    (tmp_path / "box.sif").touch()
    platform = TestPlatform()
    platform.takes = 10_000
    async with service(platform, image_folders=(str(tmp_path),)) as here:
        begun = trio.current_time()
        with pytest.raises(StartFailed) as failed:
            await here.instances.start(InstanceFields(image, identity="one"), ORIGIN)
        assert trio.current_time() - begun == pytest.approx(seconds, abs=1)
        assert failed.value.refusal.code == "runtime_unavailable"
        assert here.state() == "stopping"
        with pytest.raises(InstanceExists):
            await here.start()
        await until_state(here, "failed")
        assert platform.told[-1] == ("undo", "one")


async def test_a_start_that_fails(autojump_clock: MockClock) -> None:
    """Undone before it is told; the record says why, and the name is free."""
    async with service() as here:
        here.platform.fails = StartFailed(ImageNotFound("no such image"), 255)
        with pytest.raises(StartFailed) as failed:
            await here.start()
        assert failed.value.exit_code == 255
        assert here.instances.show("one").facts.failure == "no such image"
        assert here.platform.told[-1] == ("undo", "one")
        with pytest.raises(InstanceNotFound):
            here.instances.log(here.instances.show("one"), "out")
        here.platform.fails = None
        assert (await here.start()).state == "running"


@pytest.mark.parametrize("fault", [RuntimeUnavailable("gone"), ValueError("a fault of ours"), OSError("no memory")])
async def test_a_platform_that_breaks(autojump_clock: MockClock, fault: Exception) -> None:
    """One start's fault is that start's failure, and nobody else's."""
    async with service() as here:
        here.platform.fails = fault
        with pytest.raises(StartFailed) as failed:
            await here.start()
        assert failed.value.refusal.code == "runtime_unavailable"
        assert "a fault of ours" not in failed.value.refusal.detail
        here.platform.fails = None
        assert (await here.start("two")).state == "running"


async def test_a_client_that_leaves(autojump_clock: MockClock) -> None:
    """Its start is finished and listed all the same, or was never begun."""
    async with service() as here:
        with trio.move_on_after(0.5):
            await here.start()
        assert here.state() == "starting"
        assert here.instances.progress(here.instances.show("one")) == "fetching image"
        await until_state(here, "running")
        assert here.instances.progress(here.instances.show("one")) is None


async def test_a_stop_while_it_starts(autojump_clock: MockClock) -> None:
    """The start is undone; both callers are told."""
    async with service() as here:
        here.platform.takes = 30
        refused: list[StartFailed] = []

        async def start() -> None:
            with pytest.raises(StartFailed) as failed:
                await here.start()
            refused.append(failed.value)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(start)
            await trio.sleep(1)
            ended = await here.instances.stop("one", ORIGIN)
        assert ended.state == "failed"
        assert refused
        assert not here.platform.running


async def test_a_deaf_instance_is_killed(autojump_clock: MockClock) -> None:
    """After thirty seconds, and again after thirty more, until it has ended."""
    async with service() as here:
        here.platform.deaf = True
        await here.start()
        begun = trio.current_time()
        async with trio.open_nursery() as nursery:  # two who wait for the same end
            nursery.start_soon(here.instances.stop, "one", ORIGIN)
            nursery.start_soon(here.instances.stop, "one", ORIGIN)
        assert trio.current_time() - begun == pytest.approx(60, abs=1)
        assert [word for word, _ in here.platform.told[-3:]] == ["stop", "kill", "kill"]


async def test_a_stop_while_its_platform_is_silent(autojump_clock: MockClock) -> None:
    """Whoever asks for it is told within moments that no answer came, each time; it is done all the same."""
    async with service() as here:
        here.platform.deaf = here.platform.silent = True
        await here.start("one")
        for _ in range(2):
            with trio.fail_after(1), pytest.raises(RuntimeUnavailable) as refused:
                await here.instances.stop("one", ORIGIN)
            assert refused.value.retry_after == 30
            assert here.state("one") == "stopping"
        here.platform.silent = False
        here.platform.running["one"].set()
        assert (await here.instances.stop("one", ORIGIN)).state == "stopped"


async def test_nothing_to_stop(autojump_clock: MockClock) -> None:
    """Unknown, or ended: not found."""
    async with service() as here:
        for _ in range(2):
            with pytest.raises(InstanceNotFound):
                await here.instances.stop("one", ORIGIN)
            await here.start()
            await here.instances.stop("one", ORIGIN)


async def test_how_many_may_live(autojump_clock: MockClock) -> None:
    """Those under way count, those that ended do not."""
    async with service(max_instances=2) as here:
        async with trio.open_nursery() as nursery:
            for name in ("one", "two"):
                nursery.start_soon(here.start, name)
            await trio.sleep(0.5)
            with pytest.raises(TooManyInstances) as refused:
                await here.start("three")
            assert refused.value.retry_after
        await here.instances.stop("one", ORIGIN)
        assert (await here.start("three")).state == "running"


async def test_how_many_an_identity_may_hold(autojump_clock: MockClock) -> None:
    """Fifty starts at once come to no more than the limit; another identity still has room; the refusal says whose."""
    async with service(limits=Limits(instances_per_identity=3)) as here:
        outcomes: list[str] = []
        refusals: list[TooManyInstances] = []

        async def one(name: str, origin: Origin) -> None:
            try:
                await here.instances.start(InstanceFields("docker://x", identity=name), origin)
                outcomes.append("running")
            except TooManyInstances as refused:
                refusals.append(refused)
                outcomes.append(refused.code)

        async with trio.open_nursery() as nursery:
            for number in range(50):
                nursery.start_soon(one, f"n{number}", ORIGIN)
        assert Counter(outcomes) == {"running": 3, "too_many_instances": 47}
        assert all(refused.retry_after and "per_identity" in refused.detail for refused in refusals)
        await one("another", ORIGIN._replace(identity="SHA256:another"))
        await here.instances.stop(here.instances.shown()[0].id, ORIGIN)
        await one("again", ORIGIN)
        assert outcomes[-2:] == ["running", "running"]


async def test_starts_take_turns(autojump_clock: MockClock) -> None:
    """So many at once, the others wait and may be stopped meanwhile; none is forgotten."""
    async with service() as here:
        here.platform.takes = 10
        async with trio.open_nursery() as nursery:
            for number in range(FETCHING_STARTS + 2):
                nursery.start_soon(_quietly, partial(here.start, f"n{number}"))
            await trio.sleep(1)
            waiting = [actor for actor in here.instances.shown() if actor.state == "requested"]
            assert (here.platform.words("start"), len(waiting)) == (FETCHING_STARTS, 2)
            assert here.instances.progress(waiting[0]) == "waiting"
            assert (await here.instances.stop(waiting[0].id, ORIGIN)).state == "stopped"
        states = Counter(actor.state for actor in here.instances.shown())
        assert states == {"running": FETCHING_STARTS + 1, "stopped": 1}
        assert FETCHING_STARTS < LOCAL_STARTS


async def _quietly(start: Callable[[], Any]) -> None:
    with suppress(Refusal, StartFailed):
        await start()


async def test_a_restart_takes_up_every_state(autojump_clock: MockClock) -> None:
    """What was requested is started, what was starting adopted, what ran is watched, what was stopping is stopped."""
    clock = TrioClock()
    store, platform = MemoryStore(clock), TestPlatform()
    platform.takes, platform.deaf = 10, True
    async with service(platform, store) as here, trio.open_nursery() as nursery:
        platform.takes = 0
        await here.start("ran")
        await here.start("stopped")
        await here.start("stopping")
        platform.running["stopped"].set()
        platform.takes = 100
        nursery.start_soon(here.instances.stop, "stopping", ORIGIN)
        for number in range(FETCHING_STARTS + 1):
            nursery.start_soon(here.start, f"n{number}")
        await trio.sleep(1)
        nursery.cancel_scope.cancel()
    kept = {name: stored.state for name, stored in await store.live("instance")}
    assert Counter(kept.values()) == {"running": 1, "stopped": 1, "stopping": 1, "starting": 4, "requested": 1}
    asked = next(name for name, state in kept.items() if state == "requested")
    platform.told.clear()
    platform.takes, platform.deaf = 1, False
    async with service(platform, store) as here:
        await trio.sleep(5)
        states = {actor.id: actor.state for actor in here.instances.shown()}
        assert set(states.values()) == {"running", "stopped"}
        assert states["stopped"] == states["stopping"] == "stopped"
        assert ("start", asked) in platform.told
        assert platform.words("adopt") == FETCHING_STARTS
        assert ("watch", "ran") in platform.told
        platform.running["ran"].set()
        await until_state(here, "stopped", "ran")


async def test_an_end_that_cannot_be_stored(autojump_clock: MockClock) -> None:
    """It happened: it is told again until the store takes it. A request then is refused and leaves nothing."""
    store = InterruptibleStore(TrioClock())
    async with service(store=store) as here:
        await here.start()
        store.set_away(True)
        here.platform.running["one"].set()
        await trio.sleep(10)
        assert here.state() == "running"
        with pytest.raises(StoreUnavailable):
            await here.start("two")
        with pytest.raises(InstanceNotFound):
            here.instances.show("two")
        store.set_away(False)
        await until_state(here, "stopped")
        assert (await here.start("two")).state == "running"


SHORT = BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
"""What a host at its limit of processes makes of a fork."""

FULL = FileRefused("logs can't be written: No space left on device", cause="unwritable")


async def test_an_end_that_cannot_be_seen_or_noted(autojump_clock: MockClock) -> None:
    """Whatever the host is short of meanwhile, it is looked for again: the end is told, and a stop returns. The log
    has each reason once."""
    async with service() as here:
        files = ExceptionGroup("of a nursery", [OSError(errno.EMFILE, os.strerror(errno.EMFILE))])
        here.platform.faults["watch"] = [SHORT, SHORT, FULL, files, SHORT]
        with capture_logs() as told:
            await here.start()
            here.platform.running["one"].set()
            await until_state(here, "stopped")
        lines = [line["why"] for line in told if line["event"] == "instance_not_watched"]
        assert lines == [repr(SHORT), FULL.why, repr(files)]
        here.platform.faults["watch"] = [SHORT]
        await here.start("two")
        with trio.fail_after(60):
            assert (await here.instances.stop("two", ORIGIN)).state == "stopped"


@pytest.mark.parametrize("fault", [SHORT, FULL, RuntimeUnavailable("not installed")])
async def test_a_start_that_cannot_be_undone(autojump_clock: MockClock, fault: Exception) -> None:
    """It may run, so it is not called failed: it is undone again until nothing is left."""
    async with service() as here:
        here.platform.takes, here.platform.faults["undo"] = 30, [fault] * 3
        here.platform.running["one"] = trio.Event()  # the runtime has begun it
        with capture_logs() as told, trio.fail_after(600):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_quietly, here.start)
                await trio.sleep(1)
                assert (await here.instances.stop("one", ORIGIN)).state == "failed"
        assert not here.platform.running
        assert here.platform.words("undo") == 4
        assert [line["event"] for line in told].count("instance_not_undone") == 1


async def test_a_stop_where_a_fault_ended_the_starts_task(autojump_clock: MockClock) -> None:
    """What is left of the start is undone by another task, and both callers are told."""
    async with service() as here, trio.open_nursery() as nursery:
        here.platform.fails = StartFailed(ImageNotFound("no such image"), 255)
        here.platform.faults["undo"] = [ValueError("a fault of ours")]
        nursery.start_soon(_quietly, here.start)
        await trio.sleep(10)
        assert here.state() == "starting"
        with trio.fail_after(60):
            assert (await here.instances.stop("one", ORIGIN)).state == "failed"


async def test_ended_ones_are_kept_for_a_day(autojump_clock: MockClock) -> None:
    """With their exit code, and without the values of their variables."""
    async with service() as here:
        await here.start(env=["TOKEN=secret"])
        await here.instances.stop("one", ORIGIN)
        (_, stored), *_ = await here.store.live("instance")
        assert b"secret" not in msgspec.msgpack.encode(stored.facts)
        await trio.sleep(KEPT_SECONDS - 60)
        assert here.instances.shown()
        await trio.sleep(120)
        assert not here.instances.shown()
        await here.start("two")
        assert [name for name, _ in await here.store.live("instance")] == ["two"]


async def test_no_more_ended_ones_than_so_many(autojump_clock: MockClock) -> None:
    """The oldest go first."""
    async with service() as here:
        for number in range(KEPT_COUNT + 3):
            await here.start(f"n{number}")
            await here.instances.stop(f"n{number}", ORIGIN)
        shown = [actor.id for actor in here.instances.shown()]
        assert (len(shown), shown[0]) == (KEPT_COUNT, "n3")
        assert len(await here.store.live("instance")) <= KEPT_COUNT + 1


# A platform that has a queue


async def test_whoever_asks_is_told_that_it_is_queued(autojump_clock: MockClock) -> None:
    """A start that queues is answered after a while; it runs when its turn comes, whoever has left."""
    platform = TestPlatform()
    platform.queue = trio.Event()
    async with service(platform) as here:
        begun = trio.current_time()
        actor = await here.start()
        assert (actor.state, actor.facts.job, actor.facts.started) == ("queued", "7", None)
        assert trio.current_time() - begun == pytest.approx(QUEUE_HELD, abs=0.1)
        assert here.instances.progress(actor) == "fetching image"
        await trio.sleep(86_400)
        assert here.state() == "queued"
        platform.queue.set()
        await until_state(here, "running")
        assert platform.words("start") == 1


async def test_who_queues_takes_no_turn(autojump_clock: MockClock) -> None:
    """However many are queued, others are submitted too."""
    platform = TestPlatform()
    platform.queue = trio.Event()
    async with service(platform) as here, trio.open_nursery() as nursery:
        for number in range(FETCHING_STARTS * 3):
            nursery.start_soon(here.start, str(number))
        await trio.sleep(1)
        assert Counter(actor.state for actor in here.instances.shown()) == {"queued": FETCHING_STARTS * 3}
        platform.queue.set()


async def test_a_queued_start_is_stopped(autojump_clock: MockClock) -> None:
    """It is undone, as often as that takes, and whoever waits is refused at once."""
    platform = TestPlatform()
    platform.queue = trio.Event()
    platform.faults["undo"] = [RuntimeUnavailable("not now", retry_after=30)] * 2
    async with service(platform) as here, trio.open_nursery() as nursery:

        async def refused() -> None:
            with pytest.raises(StartFailed):
                await here.start()
            assert here.state() == "stopping"

        nursery.start_soon(refused)
        await trio.sleep(1)
        assert here.state() == "queued"
        assert (await here.instances.stop("one", ORIGIN)).state == "failed"
        assert platform.words("undo") == 3


async def test_queued_over_a_restart(autojump_clock: MockClock) -> None:
    """The next engine takes the queued start up, and no row is taken twice for what it is told again."""
    platform, store = TestPlatform(), MemoryStore(TrioClock())
    platform.queue = trio.Event()
    async with service(platform, store) as here:
        await here.start()
    async with service(platform, store) as here:
        await trio.sleep(1)
        assert (here.state(), platform.words("adopt")) == ("queued", 1)
        platform.queue.set()
        await until_state(here, "running")


async def test_what_its_platform_ended(autojump_clock: MockClock) -> None:
    """It has failed, and why is kept; where it was told to stop, it has stopped, however that came about."""
    platform = TestPlatform()
    platform.lost = Lost("job_timed_out", "the time limit ended", 143)
    async with service(platform) as here:
        await here.start()
        platform.running["one"].set()
        await until_state(here, "failed")
        facts = here.instances.show("one").facts
        assert (facts.failure, facts.exit_code) == ("the time limit ended", 143)
        await here.start("two")
        ended = await here.instances.stop("two", ORIGIN)
        assert (ended.state, ended.facts.failure, ended.facts.exit_code) == ("stopped", None, 143)

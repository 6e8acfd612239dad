"""The runtime: one event to completion, stored before it shows, elapsed rows first, no name left unresolved."""

from __future__ import annotations

import pytest
import structlog
import trio
from trio.testing import MockClock

from hatchway.engine.base.clock import TrioClock
from hatchway.engine.base.errors import StoreUnavailable
from hatchway.engine.runtime import Runtime
from hatchway.engine.runtime.records import Records
from hatchway.engine.store.memory import MemoryStore
from hatchway.engine.store.protocol import Change, Stored
from hatchway.statecharts.chart import NONE, ChartFault
from hatchway.statecharts.interpreter import EventRefused
from tests.support.small_runtime import GATE, Facts, SmallRuntime


@pytest.fixture
def small() -> SmallRuntime:
    return SmallRuntime()


async def test_a_step_is_stored_recorded_and_then_felt(small: SmallRuntime, autojump_clock: MockClock) -> None:
    """State, store, record, delay, effects, in that order and each with the step's own words."""
    await small.build()
    assert await small.store.load("gate", "one") == Stored(1, "shut", None, Facts()), "elapsed seconds are not kept"
    result = await small.runtime.send("gate", "one", "open", changes={"opened_by": "cat"}, returns=str)
    assert result == "how much draught", "the sender is given what an effect has for him"
    assert await small.store.load("gate", "one") == Stored(2, "open", None, Facts(opened_by="cat"))
    assert small.heard == ["squeak:shut", "squeak:open", "draught:open"]
    assert [(r.event, r.source, r.target, r.effects) for r in small.records] == [
        ("build", NONE, "shut", ("squeak",)),
        ("open", "shut", "open", ("squeak", "draught")),
    ]
    assert len(small.runtime.timers) == 0


async def test_a_sender_is_given_what_it_asks_for(small: SmallRuntime, autojump_clock: MockClock) -> None:
    """Nothing where it names no type, though an effect has a result; and a type that no effect returns is a fault."""
    await small.build()
    assert await small.runtime.send("gate", "one", "open") is None  # type: ignore[func-returns-value]
    with pytest.raises(TypeError, match="no effect of gate's shut returns str"):
        await small.runtime.send("gate", "one", "shut", returns=str)


async def test_nothing_shows_before_it_is_stored(small: SmallRuntime, autojump_clock: MockClock) -> None:
    """While a step is being stored the old state stands; one that can't be stored leaves no trace."""
    await small.build()
    small.store.fail.append(StoreUnavailable("disk full"))
    with pytest.raises(StoreUnavailable):
        await small.runtime.send("gate", "one", "open")
    actor = small.runtime.peek("gate", "one")
    assert actor is not None
    assert (actor.state, actor.version) == ("shut", 1)
    assert small.heard == ["squeak:shut"]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(small.runtime.send, "gate", "one", "open")
        await trio.sleep(0.0005)
        assert actor.state == "shut"
    assert actor.state == "open"


async def test_racing_events_come_one_after_another(small: SmallRuntime, autojump_clock: MockClock) -> None:
    """Of many who open one gate at once one does, and each other is refused by the state that it left."""
    await small.build()
    refused: list[str] = []

    async def try_it() -> None:
        try:
            await small.runtime.send("gate", "one", "open")
        except EventRefused as error:
            refused.append(f"{error.state}: {error.cause}")

    async with trio.open_nursery() as nursery:
        for _ in range(20):
            nursery.start_soon(try_it)
    assert refused == ["open: no_row"] * 19
    assert small.heard.count("draught:open") == 1
    assert len(small.runtime._tables["gate"].locks) == 0


async def test_how_long_a_step_took_to_be_stored(small: SmallRuntime, autojump_clock: MockClock) -> None:
    """In seconds, for each chart; a step that could not be stored is no measurement."""
    await trio.sleep(5)
    await small.build()
    small.store.fail.append(StoreUnavailable("disk full"))
    with pytest.raises(StoreUnavailable):
        await small.runtime.send("gate", "one", "open")
    assert [chart for chart, _ in small.committed] == ["gate"]
    assert small.committed[0][1] == pytest.approx(0.001)


async def test_a_delay_that_fails_stops_no_other(
    small: SmallRuntime, autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    """One actor's fault is logged, and the clock of all the others goes on; its own fires again."""
    nursery.start_soon(small.runtime.run)
    await small.build("faulty")
    await small.build("sound")
    small.store.fail.append(RuntimeError("a fault of ours"))
    with structlog.testing.capture_logs() as lines:
        await trio.sleep(31)
    assert [(line["event"], line["actor"]) for line in lines] == [("delay_failed", "faulty")]
    assert small.runtime.peek("gate", "sound") is None
    await trio.sleep(2)
    assert small.runtime.peek("gate", "faulty") is None


@pytest.mark.parametrize("event", ["open", "shut"])
@pytest.mark.parametrize("late", [0.0, 0.5])
async def test_at_its_deadline_the_elapsed_row_comes_first(
    small: SmallRuntime, autojump_clock: MockClock, late: float, event: str
) -> None:
    """An event at or after the deadline finds the state left by time, even where no timer has run."""
    await small.build()
    await trio.sleep(30 + late - 0.001)
    with pytest.raises(EventRefused):
        await small.runtime.send("gate", "one", event)
    assert [(r.event, r.target) for r in small.records] == [("build", "shut"), ("rust", "stuck"), (event, None)]
    assert small.runtime.peek("gate", "one") is None


async def test_the_timer_takes_the_elapsed_row(
    small: SmallRuntime, autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    """Left alone, the state ends at its deadline; leaving it in time disarms the delay."""
    nursery.start_soon(small.runtime.run)
    await small.build("left")
    await small.build("used")
    await small.runtime.send("gate", "used", "open")
    await trio.sleep(31)
    assert small.runtime.peek("gate", "left") is None
    assert small.runtime.peek("gate", "used") is not None


async def test_a_delay_that_cannot_be_stored_is_tried_again(
    small: SmallRuntime, autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    """A store that fails for a while makes an end late, never lost."""
    nursery.start_soon(small.runtime.run)
    await small.build()
    small.store.fail += [StoreUnavailable("full")] * 3
    await trio.sleep(32)
    assert small.runtime.peek("gate", "one") is not None
    await trio.sleep(5)
    assert small.runtime.peek("gate", "one") is None


async def test_a_cancelled_sender_leaves_a_whole_step(small: SmallRuntime, autojump_clock: MockClock) -> None:
    """Who sent an event may go away: the event runs to its end, or was never begun."""
    await small.build()
    with trio.move_on_after(0.0005):
        await small.runtime.send("gate", "one", "open")
    actor = small.runtime.peek("gate", "one")
    assert actor is not None
    assert actor.state == "open"
    assert small.heard[-1] == "draught:open"
    assert len(small.runtime._tables["gate"].locks) == 0


async def test_whoever_stops_waiting_for_a_delay_leaves_a_whole_step(
    small: SmallRuntime, autojump_clock: MockClock
) -> None:
    """A delay that is taken for somebody's sake is taken to its end, though they go away."""
    await small.build()
    await trio.sleep(30)
    actor = small.runtime.peek("gate", "one")
    assert actor is not None
    with trio.move_on_after(0.0005):
        await small.runtime.catch_up(actor)
    assert [record.event for record in small.records] == ["build", "rust"]
    assert small.runtime.peek("gate", "one") is None


async def test_an_event_meets_who_bears_the_name_in_its_turn(small: SmallRuntime, autojump_clock: MockClock) -> None:
    """It waited while that one ended and another was made: it is not the old one that it is refused for."""
    await small.build()
    await small.runtime.send("gate", "one", "open")
    async with trio.open_nursery() as nursery:
        for step in (lambda: small.runtime.send("gate", "one", "burn"), small.build, small.open):
            nursery.start_soon(step)
            await trio.testing.wait_all_tasks_blocked()
    assert [record.event for record in small.records][-3:] == ["burn", "build", "open"]


async def test_effects_run_to_their_end_behind_a_store_that_never_waits(autojump_clock: MockClock) -> None:
    """There it is the effects where a cancelled sender would first be stopped, its step taken and half felt."""
    small = SmallRuntime(MemoryStore(TrioClock()))
    await small.build()
    with trio.CancelScope() as gone:
        gone.cancel()
        await small.runtime.send("gate", "one", "open")
    assert small.heard[-2:] == ["squeak:open", "draught:open"]


async def test_a_moved_version_is_loaded_and_tried_again(small: SmallRuntime, autojump_clock: MockClock) -> None:
    """Where another engine changed the actor first, the event is judged by what it made of it."""
    await small.build()
    await MemoryStore.commit(small.store, Change("gate", "one", 1, Stored(2, "open", None, Facts(opened_by="dog"))))
    with pytest.raises(EventRefused):
        await small.runtime.send("gate", "one", "open")
    actor = small.runtime.peek("gate", "one")
    assert actor is not None
    assert (actor.state, actor.version, actor.facts.opened_by) == ("open", 2, "dog")
    await MemoryStore.commit(small.store, Change("gate", "one", 2, None))
    with pytest.raises(EventRefused, match="no_actor"):
        await small.runtime.send("gate", "one", "burn")


async def test_restored_actors_go_on(small: SmallRuntime, autojump_clock: MockClock, nursery: trio.Nursery) -> None:
    """After a restart the store's actors are there, their delays armed."""
    await small.build()
    again = SmallRuntime()
    again.store._actors = small.store._actors
    nursery.start_soon(again.runtime.run)
    assert [actor.id for actor in await again.runtime.restore("gate")] == ["one"]
    await trio.sleep(31)
    assert await again.store.load("gate", "one") is None


async def test_a_name_that_is_taken_is_taken(small: SmallRuntime, autojump_clock: MockClock) -> None:
    """Made again, it is refused by the state of the one that is there, which stays as it was."""
    await small.build()
    with pytest.raises(EventRefused, match=r"'build' is refused in 'shut' \(no_row\)"):
        await small.build()
    assert small.heard == ["squeak:shut"]
    await small.open()


async def test_a_name_that_stands_in_no_chart_is_told(small: SmallRuntime) -> None:
    """A chart that isn't registered, an event of no row, facts of another type: a caller's fault, in words that say
    which, and nothing is stored or recorded."""
    runtime = small.runtime
    await small.build()
    before = list(small.records)
    with pytest.raises(KeyError, match="no chart named 'gait' is registered; there are gate"):
        await runtime.create("gait", "two", "build", Facts())
    with pytest.raises(KeyError, match="no chart named 'gait'"):
        await runtime.send("gait", "one", "open")
    with pytest.raises(KeyError, match="no row of the chart 'gate' has the event 'opne'"):
        await runtime.send("gate", "one", "opne")
    with pytest.raises(TypeError, match="the facts of the chart 'gate' are a Facts, not a dict"):
        await runtime.create("gate", "two", "build", {"patience": 1})  # type: ignore[arg-type]
    assert runtime.peek("gate", "two") is None
    assert small.records == before


async def test_an_unknown_actor_is_refused_and_recorded(small: SmallRuntime) -> None:
    """No event makes an actor that was never created."""
    with pytest.raises(EventRefused, match="no_actor"):
        await small.runtime.send("gate", "ghost", "open")
    assert (small.records[-1].kind, small.records[-1].cause) == ("refusal", "no_actor")


@pytest.mark.parametrize(
    ("effects", "rules", "named"),
    [
        ({"squeak"}, {"patience"}, "effect .*: draught"),
        ({"squeak", "draught", "extra"}, {"patience"}, "effect .*: extra"),
        ({"squeak", "draught"}, set(), "delay .*: patience"),
    ],
)
def test_every_name_is_resolved_at_start(effects: set[str], rules: set[str], named: str) -> None:
    """An effect or delay without a handler, or a handler without a name, stops the start, which names it."""
    runtime = Runtime(TrioClock(), Records(TrioClock()))
    with pytest.raises(ChartFault, match=f"^gate: {named}$"):
        runtime.register(
            GATE,
            facts=Facts,
            store=MemoryStore(TrioClock()),
            effects={name: lambda actor, data: None for name in effects},
            rules={name: lambda facts, now: now for name in rules},
        )

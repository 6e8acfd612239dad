"""Ten small worlds, each with a race of a kind that real programs have; whole ones beside them; and a known one.

`python -m tests.support.planted_races` prints how soon the explorer finds each, and how many schedules by trio's own
dice fail: of those that the explorer's time is enough for, and of 10,000. It takes some minutes.
"""

from __future__ import annotations

import random
import time
from collections.abc import Awaitable, Callable, Iterator

import trio
from trio.testing import MockClock

from hatchway.api.testing.explorer import explore
from hatchway.api.testing.trio_inside import jumping_clock, ordered_by

Main = Callable[[], Awaitable[None]]

checkpoint = trio.lowlevel.checkpoint


async def both(*tasks: Main) -> None:
    """All of these at once, under their names."""
    async with trio.open_nursery() as nursery:
        for task in tasks:
            nursery.start_soon(task, name=task.__name__)


async def lost_update() -> None:
    """Two deposits read the balance before either writes it."""
    balance = {"ada": 100}

    async def read() -> int:
        found = balance["ada"]
        await checkpoint()
        return found

    async def deposit_ten() -> None:
        balance["ada"] = await read() + 10

    async def deposit_one() -> None:
        balance["ada"] = await read() + 1

    await both(deposit_ten, deposit_one)
    assert balance["ada"] == 111


async def check_then_act() -> None:
    """Two sign-ups find the name free."""
    names: set[str] = set()
    made: list[str] = []

    async def sign_up(who: str) -> None:
        if "ada" not in names:
            await checkpoint()
            names.add("ada")
            made.append(who)

    async def first() -> None:
        await sign_up("first")

    async def second() -> None:
        await sign_up("second")

    await both(first, second)
    assert len(made) == 1


async def double_grant() -> None:
    """A lease is granted again while its holder's renewal is on its way, at the moment of its end."""
    ends, holders = {"at": 10.0}, ["ada"]

    async def renew() -> None:
        await trio.sleep(9)
        if ends["at"] > trio.current_time():
            await checkpoint()
            ends["at"] = trio.current_time() + 10

    async def grant() -> None:
        await trio.sleep(10)
        if ends["at"] <= trio.current_time():
            holders.append("bob")

    await both(renew, grant)
    assert len(holders) == 1 or ends["at"] <= 10, "ada has renewed what bob was granted"


async def forgotten_cancel() -> None:
    """A caller gives up between the debit and the credit: the money is gone."""
    ada, bob = [100], [0]

    async def transfer() -> None:
        with trio.move_on_after(5):
            ada[0] -= 10
            await checkpoint()
            bob[0] += 10

    await both(transfer)
    assert ada[0] + bob[0] == 100


async def wrong_order_of_locks() -> None:
    """Each holds what the other wants."""
    left, right = trio.Lock(), trio.Lock()

    async def one() -> None:
        async with left, right:
            pass

    async def other() -> None:
        async with right, left:
            pass

    await both(one, other)


async def missed_wake_up() -> None:
    """The event is made anew behind the back of whoever is about to wait for it."""
    queue: list[int] = []
    news = {"event": trio.Event()}

    async def consume() -> None:
        while not queue:
            await checkpoint()
            await news["event"].wait()

    async def produce() -> None:
        await checkpoint()
        queue.append(1)
        news["event"].set()
        news["event"] = trio.Event()

    await both(consume, produce)


async def torn_read() -> None:
    """A reader sees one half of a change."""
    config = {"host": "old", "port": "old"}

    async def change() -> None:
        config["host"] = "new"
        await checkpoint()
        config["port"] = "new"

    async def read() -> None:
        await checkpoint()
        assert config["host"] == config["port"]

    await both(change, read)


async def use_after_close() -> None:
    """An idle connection is closed while somebody has just taken it."""
    pool, closed = ["connection"], set[str]()

    async def ask() -> None:
        connection = pool[0]
        await checkpoint()
        assert connection not in closed

    async def clean_up() -> None:
        await checkpoint()
        if pool:
            closed.add(pool.pop())

    async def ask_if_there() -> None:
        if pool:
            await ask()

    await both(ask_if_there, clean_up)


async def late_success() -> None:
    """The time is up as the answer comes: it is paid, and paid again."""
    paid: list[str] = []

    async def pay() -> None:
        await trio.sleep(4)
        paid.append("bill")
        await checkpoint()

    async def pay_patiently() -> None:
        with trio.move_on_after(5) as patience:
            await pay()
        if patience.cancelled_caught:
            paid.append("bill")

    await both(pay_patiently)
    assert len(paid) == 1


async def stale_cache() -> None:
    """What was read before a change is kept after it was thrown out."""
    stored, cache = {"key": "old"}, dict[str, str]()

    async def read() -> None:
        found = stored["key"]
        await checkpoint()
        cache["key"] = found

    async def write() -> None:
        stored["key"] = "new"
        await checkpoint()
        cache.pop("key", None)

    await both(read, write)
    assert cache.get("key", "new") == "new"


async def websocket_writer() -> None:
    """trio-websocket's issue 12 (2018), from its report: a message that comes while the writer sends another is told to
    be sent, and is not."""
    queued: list[str] = []
    sent: list[str] = []
    pending, done = {"event": trio.Event()}, {"event": trio.Event()}

    async def send_message(message: str) -> None:
        queued.append(message)
        pending["event"].set()
        await done["event"].wait()
        assert message in sent, "send_message returned, and its message is not sent"

    async def send_a() -> None:
        await send_message("a")

    async def send_b() -> None:
        await send_message("b")

    async def write() -> None:
        while len(sent) < 2:
            await pending["event"].wait()
            data = queued[:]
            queued.clear()
            await checkpoint()  # the stream takes it
            sent.extend(data)
            pending["event"] = trio.Event()
            done["event"].set()
            done["event"] = trio.Event()

    await both(send_a, send_b, write)


RACES: list[Main] = [
    lost_update,
    check_then_act,
    double_grant,
    forgotten_cancel,
    wrong_order_of_locks,
    missed_wake_up,
    torn_read,
    use_after_close,
    late_success,
    stale_cache,
]


async def with_a_lock() -> None:
    """Three tasks take their turns, and sleep in them."""
    lock, count = trio.Lock(), [0]

    async def add() -> None:
        async with lock:
            seen = count[0]
            await trio.sleep(1)
            count[0] = seen + 1

    async with trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(add)
    assert count == [3]


async def with_a_channel() -> None:
    """A producer, and two consumers that share what comes."""
    send, receive = trio.open_memory_channel[int](1)
    got: list[int] = []

    async def consume(channel: trio.MemoryReceiveChannel[int]) -> None:
        async with channel:
            async for value in channel:
                got.append(value)
                await checkpoint()

    async with trio.open_nursery() as nursery, receive:
        nursery.start_soon(consume, receive.clone())
        nursery.start_soon(consume, receive.clone())
        async with send:
            for value in range(3):
                await send.send(value)
    assert sorted(got) == [0, 1, 2]


async def with_a_loop() -> None:
    """One task looks again and again whether the other has come: states come back."""
    done = trio.Event()

    async def look() -> None:
        while not done.is_set():
            await checkpoint()

    async def come() -> None:
        await checkpoint()
        done.set()

    await both(look, come)


async def with_a_shield() -> None:
    """A transfer that is not given up half-way."""
    ada, bob = [100], [0]
    with trio.move_on_after(5), trio.CancelScope(shield=True):
        ada[0] -= 10
        await checkpoint()
        bob[0] += 10
    assert ada[0] + bob[0] == 100


WHOLE: list[Main] = [with_a_lock, with_a_channel, with_a_loop, with_a_shield]


def by_trios_dice(world: Main, schedules: int) -> Iterator[bool]:
    """Whether each of so many schedules by trio's own dice fails."""
    return (_fails(world, seed) for seed in range(schedules))


def _fails(world: Main, seed: int) -> bool:
    scope = trio.CancelScope()

    async def main() -> None:
        with scope:
            await world()
        assert not scope.cancelled_caught, "every task waits"

    def idle(clock: MockClock) -> None:
        wait = trio.lowlevel.current_statistics().seconds_to_next_deadline
        if 0 < wait < float("inf"):
            clock.jump(wait)
        else:
            scope.cancel()

    with ordered_by(random.Random(seed)):
        try:
            trio.run(main, clock=jumping_clock(idle, 0))
        except BaseException:
            return True
    return False


def main() -> None:
    """The table. Times are the processor's."""
    print("| race | explorer | random schedules in that time | 10,000 random schedules |")
    print("|---|---|---|---|")
    for world in [*RACES, websocket_writer]:
        began = time.process_time()
        try:
            explore(world)
            explored = "not found"
        except BaseException:
            explored = f"found in {1000 * (time.process_time() - began):.0f} ms"
        budget, began = time.process_time() - began, time.process_time()
        soon, failed = 0, list[float]()
        for fails in by_trios_dice(world, 10_000):
            spent = time.process_time() - began
            soon += spent <= budget
            if fails:
                failed.append(spent)
        within = f"{sum(spent <= budget for spent in failed)} of {soon} fail"
        took = time.process_time() - began
        name = world.__name__.replace("_", " ")
        print(f"| {name} | {explored} | {within} | {len(failed):,} fail, in {took:.0f} s |", flush=True)


if __name__ == "__main__":
    main()

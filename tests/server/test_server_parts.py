"""The server's small parts alone: queues of deadlines, how many connections begin in a tick, the inbox of an app."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from hatchway.api.server.apps import INBOX_BYTES, Inbox
from hatchway.api.server.context import Context, ServerLimits
from hatchway.api.server.deadlines import Queue, WaitKind, sweep
from hatchway.engine.base.clock import SystemClock


class Waiter:
    """Who waits, and when that ended."""

    def __init__(self, *, broken: bool = False) -> None:
        self.ended: list[float] = []
        self.broken = broken

    def expire(self, kind: WaitKind) -> None:
        """The wait is over."""
        self.ended.append(trio.current_time())
        if self.broken:
            raise ValueError("a mistake")


async def test_deadlines(autojump_clock: MockClock, caplog: pytest.LogCaptureFixture) -> None:
    """Each wait ends on its second and once, whoever enters again or leaves; a broken one harms no other."""
    queue = Queue(WaitKind.HEAD, lambda: 10)
    begun, left, again, renewed, broken, last = [Waiter(broken=number == 4) for number in range(6)]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(sweep, (queue, Queue(WaitKind.IDLE, lambda: 60)), lambda: None)
        for waiter in (begun, left, again, broken):
            queue.enter(waiter)
        queue.renew(renewed)  # it never entered
        await trio.sleep(4)
        queue.remain(begun)
        queue.enter(again)
        queue.leave(left)
        queue.renew(broken)
        await trio.sleep(0.5)
        queue.enter(last)
        await trio.sleep(100)
        nursery.cancel_scope.cancel()
    assert begun.ended == [10]
    assert again.ended == broken.ended == [14]
    assert last.ended == [14.5]
    assert left.ended == renewed.ended == []
    assert [record.message for record in caplog.records] == ["a deadline ended in an error of ours"]


async def test_deadlines_follow_a_reload(autojump_clock: MockClock) -> None:
    """A shorter limit counts for those who wait already, within a second."""
    seconds = 60.0
    queue, waiter = Queue(WaitKind.IDLE, lambda: seconds), Waiter()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(sweep, (queue,), lambda: None)
        queue.enter(waiter)
        await trio.sleep(4.5)
        seconds = 2.0
        await trio.sleep(2)
        nursery.cancel_scope.cancel()
    assert waiter.ended == [5]


async def test_more_connections_begin_where_a_tick_answers_many() -> None:
    """Four in a tick that comes after a short one; a quarter of those that were answered, after a long one. So of a
    thousand clients that come at once the last begins after some ticks, and not after 250 long ones."""
    context = Context(ServerLimits, None, SystemClock())
    assert context.may_begin(4) == 4
    begun = ticks = 0
    while begun < 1000:
        for _ in range(begun):  # each that has begun is answered in each tick
            context.ticks.at_end(lambda: None)
        await trio.lowlevel.checkpoint()
        begun += context.may_begin(4)
        ticks += 1
    assert ticks < 30
    await trio.lowlevel.checkpoint()
    assert context.may_begin(4) == 4


def part(body: bytes, *, more: bool = True) -> dict[str, object]:
    """A message with a part of a body."""
    return {"type": "http.request", "body": body, "more_body": more}


async def test_inbox() -> None:
    """An app gets its body as far as it has come, the end once, and the disconnect each time it asks after it."""
    inbox = Inbox()
    for body in (b"a", b"b", b"c"):
        await inbox.put(part(body))
    assert await inbox.receive() == part(b"abc")
    await inbox.put(part(b"d"))
    await inbox.put(part(b"", more=False))
    await inbox.put({"type": "http.disconnect"})
    assert await inbox.receive() == part(b"d", more=False)
    for _ in range(3):
        assert await inbox.receive() == {"type": "http.disconnect"}


async def test_inbox_of_an_empty_body() -> None:
    """A request without a body is one message, that there is none."""
    inbox = Inbox()
    await inbox.put(part(b"", more=False))
    assert await inbox.receive() == part(b"", more=False)


async def test_inbox_waits_for_its_app(autojump_clock: MockClock) -> None:
    """Past 64 KiB unread the sender waits, until the app reads or the client is gone."""
    for freed in ("read", "gone"):
        inbox, done = Inbox(), trio.Event()

        async def fill(inbox: Inbox = inbox, done: trio.Event = done) -> None:
            await inbox.put(part(bytes(INBOX_BYTES)))
            await inbox.put(part(b"1"))
            done.set()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(fill)
            await wait_all_tasks_blocked()
            assert not done.is_set()
            if freed == "read":
                assert len((await inbox.receive())["body"]) == INBOX_BYTES + 1
            else:
                await inbox.put({"type": "http.disconnect"})
            await done.wait()


async def test_inbox_wakes_its_app(autojump_clock: MockClock) -> None:
    """An app that waits gets the next message when it comes."""
    inbox = Inbox()

    async def fill() -> None:
        await trio.sleep(5)
        await inbox.put(part(b"x", more=False))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(fill)
        assert await inbox.receive() == part(b"x", more=False)
    assert trio.current_time() == 5


async def test_inbox_tells_at_once_who_waits_for_a_leaving() -> None:
    """Whoever asked to be called is called as its client leaves, once, or as it asks, if that has happened before."""
    for before in (False, True):
        inbox, told = Inbox(), list[str]()
        await inbox.put({"type": "http.request", "body": b"", "more_body": False})
        if not before:
            inbox.when_left(lambda told=told: told.append("left"))  # type: ignore[misc]
            assert told == []
        await inbox.put({"type": "http.disconnect"})
        if before:
            inbox.when_left(lambda told=told: told.append("left"))  # type: ignore[misc]
        assert told == ["left"]

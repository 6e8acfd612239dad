"""`GET /api/events/`: every record to whoever may see it, nothing twice, and no reader at another's cost."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import trio

from hatchway.api.http.app import make_app
from hatchway.api.http.endpoints.events import _frames, frames, gap
from hatchway.engine.base.clock import TrioClock
from hatchway.engine.engine import Engine
from hatchway.engine.journal.files import RecordLine
from hatchway.engine.journal.findings import BadLine
from hatchway.engine.journal.journal import RECENT
from hatchway.engine.journal.subscribers import LOOK_INTERVAL
from tests.support.event_stream import EVENTS, Event, Reader, read_events
from tests.support.fakes import Browser, jump, key, sign_in, virtual_engine

pytestmark = pytest.mark.virtual_time


@pytest.fixture
async def master(browser: Browser) -> str:
    token: str = (await sign_in(browser, key("own")))["token"]
    return token


@asynccontextmanager
async def reading(*readers: Reader) -> AsyncIterator[None]:
    """The readers read; at the end those that still do hang up."""
    async with trio.open_nursery() as nursery:
        for reader in readers:
            nursery.start_soon(reader.run)
        await jump(0)
        yield
        for reader in readers:
            reader.reply.hang_up.set()
        with trio.fail_after(5):
            for reader in readers:
                await reader.reply.done.wait()


def tell(engine: Engine, count: int = 1) -> None:
    for _ in range(count):
        engine.records.notice("test", "t", "tell")


async def news() -> None:
    """Until what was told has gathered, and was read."""
    await jump(0)
    await jump(0.1)


async def test_a_reader_sees_what_happens(browser: Browser, engine: Engine, master: str) -> None:
    """A sign-in is an event as it happens: the record whole, its number as the id."""
    reader = Reader(browser, master)
    async with reading(reader):
        assert reader.reply.status == 200
        assert reader.reply.headers["content-type"] == "text/event-stream"
        assert reader.reply.headers["cache-control"] == "no-store, no-transform"
        assert reader.reply.headers["x-accel-buffering"] == "no"
        assert reader.reply.body == b"retry: 2000\nid: %d\n\n" % engine.journal.last_seq
        session = await sign_in(browser)
        await news()
        (event,) = reader.events
        assert (event.name, event.id) == ("message", engine.journal.last_seq)
        assert (event.data["chart"], event.data["event"], event.data["target"]) == ("session", "start", "active")
        assert event.data["identity"] == key().identity
        assert session["token"] not in reader.reply.body.decode()


async def test_refusals_are_events_too(browser: Browser, master: str) -> None:
    """A failed sign-in is seen, with its address and its cause, which its answer did not tell."""
    reader = Reader(browser, master)
    async with reading(reader):
        await browser.post("/api/auth/verify/", {"nonce": "x", "signature": "AAAA"})
        await news()
        (event,) = reader.events
        assert (event.data["kind"], event.data["chart"], event.data["target"]) == ("refusal", "session", None)
        assert event.data["address"] == "127.0.0.1"
        assert event.data["cause"]


async def test_only_the_master_reads(browser: Browser) -> None:
    """Without MASTER there is no stream: 403 for a session without it, 401 for no session."""
    assert (await browser.get(EVENTS)).status == 401
    assert (await browser.get(EVENTS, token=(await sign_in(browser))["token"])).status == 403


async def test_a_reader_that_comes_back_misses_nothing(
    browser: Browser, engine: Engine, master: str, home: Path, clock: TrioClock
) -> None:
    """With its last id a reader goes on behind it: what it missed, then what comes, each once."""
    tell(engine, 10)
    seen = engine.journal.last_seq - 7
    reader = Reader(browser, master, str(seen))
    async with reading(reader):
        tell(engine, 3)
        await news()
        tell(engine, 3)
        await news()
        assert reader.ids == list(range(seen + 1, seen + 14))


async def test_a_reader_comes_back_after_a_restart(home: Path, clock: TrioClock) -> None:
    """Numbers go on with the next engine, and so does the reader."""
    async with virtual_engine(home, clock) as engine:
        tell(engine, 5)
        seen = engine.journal.last_seq - 3
    async with virtual_engine(home, clock) as engine:
        browser = Browser(make_app(engine))
        reader = Reader(browser, (await sign_in(browser, key("own")))["token"], str(seen))
        async with reading(reader):
            await news()
        assert reader.ids == list(range(seen + 1, engine.journal.last_seq + 1))
        assert {event.name for event in reader.events} == {"message"}


async def test_what_the_log_no_longer_has_is_a_gap(home: Path, clock: TrioClock) -> None:
    """An id older than the log gets a first event `gap` that says what is lacking; then the oldest there is."""
    async with virtual_engine(home, clock) as engine:
        tell(engine, 20)
    path = home / "log" / "events.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[8:]))
    os.chmod(path, 0o600)
    with pytest.raises(BadLine, match="files are missing"):  # noqa: PT012 - the check at its end says so too
        async with virtual_engine(home, clock) as engine:
            browser = Browser(make_app(engine))
            reader = Reader(browser, (await sign_in(browser, key("own")))["token"], "3")
            async with reading(reader):
                await news()
            first, second = reader.events[:2]
            assert first == Event("gap", None, {"after": 3, "until": 8})
            assert second.id == 9


async def test_an_id_from_another_log_is_a_gap(browser: Browser, engine: Engine, master: str) -> None:
    """A number that this log has not reached is another log's: the gap says so, and the stream goes on from now."""
    last = engine.journal.last_seq
    reader = Reader(browser, master, "999999")
    async with reading(reader):
        tell(engine)
        await news()
        assert reader.events[0] == Event("gap", None, {"after": 999999, "until": last})
        assert reader.ids[1:] == [last + 1]


@pytest.mark.parametrize("last", ["x", "-1", "1.5", "9" * 19, "1 2"])
async def test_a_foreign_id_is_refused(browser: Browser, master: str, last: str) -> None:
    """Anything that can't be an id of ours is 422, and names the header."""
    reply = await browser.get(EVENTS, token=master, headers={"last-event-id": last})
    assert (reply.status, list(reply.json()["errors"])) == (422, ["Last-Event-ID"])


async def test_a_quiet_stream_is_kept_awake(browser: Browser, master: str) -> None:
    """A comment every fifteen seconds or so, which readers pass over."""
    reader = Reader(browser, master)
    async with reading(reader):
        for _ in range(40):
            await jump(1)
        assert 2 <= reader.reply.body.count(b":\n\n") <= 3
        assert reader.events == []


@pytest.mark.parametrize("how", ["logout", "revoke", "narrow"])
async def test_a_stream_ends_with_its_session(browser: Browser, engine: Engine, master: str, how: str) -> None:
    """A reader whose session ended, or that may no longer read, is let go within seconds."""
    reader = Reader(browser, master)
    async with reading(reader):
        if how == "logout":
            await browser.post("/api/auth/logout/", token=master)
        elif how == "revoke":
            await engine.sessions.end_all_of({key("own").identity})
        else:
            path = engine.home / "authorized_keys"
            path.write_text(path.read_text().replace('permissions="MASTER"', 'permissions="SHELL"'))
        for _ in range(3):
            await jump(1)
        assert reader.reply.done.is_set()


async def test_a_reader_that_is_being_sent_to_reads_of_the_stop(engine: Engine, master: str) -> None:
    """A stream has what happens once it is open, and one that is busy when the engine is asked to stop ends with that
    record."""
    invocation: Any = SimpleNamespace(engine=engine, still_allows=lambda _: bool(engine.sessions.authenticate(master)))
    stream = _frames(invocation, None)
    await anext(stream)
    tell(engine)
    assert b'"event":"tell"' in await anext(stream)  # and is being sent from here on
    engine.records.notice("engine", engine.identity, "stop")
    engine.stopping.set()
    for _ in range(3):
        await jump(LOOK_INTERVAL)
    assert b'"event":"stop"' in b"".join([piece async for piece in stream])


async def test_a_stopping_engine_lets_its_readers_go(browser: Browser, engine: Engine, master: str) -> None:
    """Streams end by themselves when the engine is asked to stop."""
    reader = Reader(browser, master)
    async with reading(reader):
        engine.stopping.set()
        await jump(1.1)
        assert reader.reply.done.is_set()


async def test_readers_are_counted_and_let_go(browser: Browser, engine: Engine, master: str) -> None:
    """Whoever hangs up is gone, with nothing left behind."""
    readers = [Reader(browser, master) for _ in range(5)]
    async with reading(*readers):
        assert len(engine.journal.subscribers) == 5
    assert len(engine.journal.subscribers) == 0


async def test_a_reader_that_falls_behind_is_let_go_alone(browser: Browser, engine: Engine, master: str) -> None:
    """More records than memory keeps, while one does not read: it is dropped, the other gets every one."""
    stuck, quick = Reader(browser, master), Reader(browser, master)
    async with reading(quick):
        first = engine.journal.last_seq
        gate = trio.Event()
        real = browser.app

        async def clogged(scope: Any, receive: Any, send: Any) -> None:
            async def send_later(message: Any) -> None:
                if message.get("body", b"").startswith(b"id"):
                    await gate.wait()
                await send(message)

            await real(scope, receive, send_later)

        stuck._browser = Browser(clogged)
        async with reading(stuck):
            for _ in range(24):
                tell(engine, RECENT // 8)
                await news()
            gate.set()
            await trio.sleep(0.1)
            assert stuck.reply.done.is_set()
        assert quick.ids == list(range(first + 1, first + 3 * RECENT + 1))
        assert len(stuck.ids) < RECENT


def test_frames_name_every_hole() -> None:
    """A hole among the lines is told where it is; ids are the records' numbers."""
    lines = [RecordLine(5, b'{"seq":5}'), RecordLine(6, b'{"seq":6}'), RecordLine(9, b'{"seq":9}')]
    assert read_events(frames(3, lines)) == [
        Event("gap", None, {"after": 3, "until": 4}),
        Event("message", 5, {"seq": 5}),
        Event("message", 6, {"seq": 6}),
        Event("gap", None, {"after": 6, "until": 8}),
        Event("message", 9, {"seq": 9}),
    ]
    assert read_events(gap(1, 2)) == [Event("gap", None, {"after": 1, "until": 2})]

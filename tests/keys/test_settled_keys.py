"""An engine whose authorized_keys is being written, or is large, goes on answering meanwhile (section 2.4)."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import trio

from hatchway.api.http.app import make_app
from hatchway.engine.base.clock import SystemClock
from hatchway.engine.base.errors import FileRefused
from hatchway.engine.base.permissions import FIVE
from hatchway.engine.base.ticks import loop_ticks
from hatchway.engine.engine import Engine
from hatchway.engine.keys import key_index, key_lines
from hatchway.engine.keys.authorized_keys import AuthorizedKeys
from hatchway.engine.keys.key_index import KeyIndex
from hatchway.engine.keys.keys import PrivateKey
from tests.support.authorized_keys import LINE, A, B, granted, keys, put
from tests.support.fakes import Browser, Reply, key, sign_in
from tests.support.key_data import line_of

__all__ = ["keys"]

LINES = [line_of(number).encode() + b"\n" for number in range(400)]
"""More than what a lookup reads by itself: 160 KB."""


class NoPause(SystemClock):
    """The host's clock, by which nobody may hold up his thread."""

    def pause(self, seconds: float) -> None:
        raise AssertionError("the event loop was paused")


@pytest.fixture
async def watched(keys: AuthorizedKeys) -> AuthorizedKeys:
    """The file as an engine watches it, with one key in it."""
    put(keys, f"{LINE} a\n")
    watched = AuthorizedKeys(keys.path, loop_ticks(), NoPause())
    watched.check()
    return watched


@pytest.mark.virtual_time
async def test_a_file_that_is_being_written_is_waited_for_in_the_loop(watched: AuthorizedKeys) -> None:
    """Half of it, nothing, then all: what the editor leaves counts, and other tasks run in between."""
    await trio.lowlevel.checkpoint()
    whole = f"{LINE} a\n{B.openssh()} b\n".encode()
    put(watched, whole[:500])
    assert not watched.settled()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(watched.settle)
        nursery.start_soon(watched.settle)
        for piece in (b"", whole[:700], whole):
            await trio.sleep(0.004)
            assert not watched.settled()
            put(watched, piece)
    assert watched.settled()
    assert watched.version() == 2
    assert granted(watched) == {"a": FIVE, "b": FIVE}


async def test_a_file_that_never_stands_still_is_taken_as_it_is(watched: AuthorizedKeys) -> None:
    """An emptied file is empty after 50 ms; one that is written on and on holds up nobody for longer."""
    await trio.lowlevel.checkpoint()
    put(watched, b"")
    with trio.fail_after(2):
        await watched.settle()
    assert watched.find(A.identity) is None

    over = threading.Event()

    def write_on() -> None:
        number = 0
        while not over.wait(0.0005):
            number += 1
            put(watched, f"{LINE} {number}\n")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.to_thread.run_sync, write_on)
        await trio.sleep(0.003)
        try:
            with trio.fail_after(5):
                await watched.settle()
                assert watched.settled()
        finally:
            over.set()


@pytest.mark.parametrize("change", [lambda _: LINES, lambda lines: [b'permissions="SHELL" ' + one for one in lines]])
async def test_many_lines_are_read_in_a_thread(
    watched: AuthorizedKeys, monkeypatch: pytest.MonkeyPatch, change: Callable[[list[bytes]], list[bytes]]
) -> None:
    """Also where the file was put in place whole, so that nobody waits for an editor."""
    threads: set[int] = set()

    def noted(raw: bytes, number: int) -> key_lines.KeyLine:
        threads.add(threading.get_ident())
        return key_lines.read_line(raw, number)

    put(watched, b"".join(LINES[:-1]))
    await watched.settle()
    await trio.lowlevel.checkpoint()
    monkeypatch.setattr(key_index, "read_line", noted)
    new = watched.path.with_name("new")
    new.touch(0o600)
    new.write_bytes(b"".join(change(LINES)))
    new.rename(watched.path)
    assert not watched.settled()
    await watched.settle()
    assert threads
    assert threading.get_ident() not in threads
    assert len(watched.granted()) == len(LINES)


async def test_what_a_lookup_took_up_meanwhile_stays(watched: AuthorizedKeys, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where something can't wait and looks while a thread reads, it sees the newest content, and so does all after."""
    await trio.lowlevel.checkpoint()
    put(watched, b"".join(LINES))
    begun, go_on = threading.Event(), threading.Event()
    update = KeyIndex.update

    def slow(index: KeyIndex, old: bytes, new: bytes) -> None:
        if threading.current_thread() is not threading.main_thread():
            begun.set()
            go_on.wait(5)
        update(index, old, new)

    monkeypatch.setattr(KeyIndex, "update", slow)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(watched.settle)
        await trio.to_thread.run_sync(begun.wait, 5)
        new = watched.path.with_name("new")
        new.touch(0o600)
        new.write_bytes(f"{B.openssh()} b\n".encode())
        new.rename(watched.path)
        assert watched.find(B.identity) is not None
        go_on.set()
    assert watched.settled()
    assert granted(watched) == {"b": FIVE}


async def test_a_small_finished_change_is_taken_up_at_once(watched: AuthorizedKeys) -> None:
    """A command's, which puts the file in place whole, and lines added at the end: nobody waits for these."""
    await trio.lowlevel.checkpoint()
    put(watched, f"{LINE} a\n{B.openssh()} b\n")
    assert watched.settled()
    assert granted(watched) == {"a": FIVE, "b": FIVE}
    watched.unregister("b")
    assert watched.settled()
    assert granted(watched) == {"a": FIVE}
    watched.path.chmod(0o644)
    await trio.lowlevel.checkpoint()
    with pytest.raises(FileRefused):
        await watched.settle()


@pytest.fixture
def unpaused(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> Engine:
    """The engine, which may not be paused."""
    monkeypatch.setattr(SystemClock, "pause", NoPause.pause)
    return engine


def edit(engine: Engine, change: Callable[[bytes], bytes]) -> None:
    """By hand, in place."""
    put(engine.keys, change(engine.keys.path.read_bytes()))


def without(private: PrivateKey, content: bytes) -> bytes:
    text = private.public.openssh().split()[1].encode()
    return b"".join(line for line in content.splitlines(True) if text not in line)


async def test_requests_wait_for_an_editor_and_hold_up_nobody(unpaused: Engine, browser: Browser) -> None:
    """An inspection that comes while a line is rewritten is answered by what then stands there; so is a sign-in."""
    session = await sign_in(browser)
    edit(unpaused, lambda content: content.replace(b"SHELL,", b""))
    reply = await browser.get("/api/auth/inspect/", token=session["token"])
    assert reply.status == 200
    assert "SHELL" not in reply.json()["permissions"]
    edit(unpaused, lambda content: content.replace(b"AGENT", b"SHELL"))
    assert "SHELL" in (await sign_in(browser))["permissions"]
    edit(unpaused, lambda content: content + b"# a remark")
    afar = Browser(browser.app, address="10.0.0.7")
    assert (await afar.get("/metrics", token=session["token"])).status == 403, "no MASTER"
    edit(unpaused, partial(without, key()))
    reply = await browser.get("/api/auth/inspect/", token=session["token"])
    assert (reply.status, reply.json()["valid"]) == (401, False)


async def test_a_stream_goes_on_while_the_keys_are_edited(unpaused: Engine) -> None:
    """A reader of events keeps its stream through an edit of other lines, and loses it by one of its own."""
    browser = Browser(make_app(unpaused))
    token = (await sign_in(browser, key("own")))["token"]
    reply = Reply()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(partial(browser.talk, reply, "GET", "/api/events/", token=token))
        while not reply.pieces:
            await trio.sleep(0.01)
        edit(unpaused, partial(without, key()))
        unpaused.records.notice("test", "t", "first")
        with trio.fail_after(5):
            while b'"first"' not in reply.body:
                await trio.sleep(0.01)
        edit(unpaused, partial(without, key("own")))
        unpaused.records.notice("test", "t", "second")
        with trio.fail_after(20):
            await reply.done.wait()
    assert b'"second"' not in reply.body


def test_a_file_that_was_emptied_costs_no_reading(keys: AuthorizedKeys, monkeypatch: pytest.MonkeyPatch) -> None:
    """The lines that are gone are not read again to find whose they were."""
    put(keys, b"".join(LINES))
    keys.check()
    monkeypatch.setattr(key_index, "read_line", None)
    Path(keys.path).write_bytes(b"")
    keys.check()
    assert keys.granted() == []

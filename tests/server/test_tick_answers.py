"""Answers of the fast path go out together at the end of a tick: in order, whole, never past a client that is slow."""

from __future__ import annotations

import os
import select
from contextlib import suppress

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from hatchway.api.http.request import Request, Response
from hatchway.api.server.server import FastPath, ServerLimits
from tests.support.raw_clients import GET, Client, serving
from tests.support.server_apps import Told

BIG = 5 * 2**20
"""Bytes of an answer that no socket's buffer holds."""


async def test_answers_of_one_tick_are_sent_at_its_end(autojump_clock: MockClock) -> None:
    """While the last of them is being made, no client has one yet: one that sleeps is woken once for all."""
    readable: list[list[int]] = []
    clients: list[Client] = []

    def fast_path(told: Told) -> FastPath:
        def answer(request: Request) -> Response:
            readable.append(select.select([client.stream.socket.fileno() for client in clients], [], [], 0)[0])
            return Response(200, b"hello", ())

        return answer

    async with serving(fast_path=fast_path) as served:
        clients += [await served.connect() for _ in range(5)]
        await trio.testing.wait_all_tasks_blocked(0.01)
        for client in clients:
            os.write(client.stream.socket.fileno(), GET % (b"/hello", b""))
        for client in clients:
            assert (await client.answer())[2] == b"hello"
    assert readable == [[]] * 5


def fast_path_of_sizes(told: Told) -> FastPath:
    """`/N` is answered with N bytes; `/fail` fails, `/nowhere` is left to the app."""

    def fast_path(request: Request) -> Response | None:
        told.taken += 1
        size = request.path[1:]
        if size == "fail":
            raise ValueError("a handler's mistake")
        return Response(200, bytes(int(size)), ()) if size.isdigit() else None

    return fast_path


async def test_the_next_request_comes_before_the_tick_ends(autojump_clock: MockClock) -> None:
    """An answer that still waits to be sent is not forgotten for the next one."""
    told_again = 300

    def fast_path(told: Told) -> FastPath:
        def answer(request: Request) -> Response:
            told.taken += 1
            if told.taken < told_again:
                os.write(client.stream.socket.fileno(), GET % (b"/", b""))
            return Response(200, b"%d" % told.taken, ())

        return answer

    async with serving(fast_path=fast_path) as served:
        client = await served.connect()
        await client.send(GET % (b"/", b""))
        assert [int((await client.answer())[2]) for _ in range(told_again)] == list(range(1, told_again + 1))


async def test_what_the_kernel_does_not_take_follows_in_order(autojump_clock: MockClock) -> None:
    """Answers of fast path and app behind a large one, asked for at once and one by one; others go on meanwhile."""
    big = GET % (b"/%d" % BIG, b"")
    async with serving(fast_path=fast_path_of_sizes) as served:
        slow, other = await served.connect(), await served.connect()
        assert len((await slow.get(b"/%d" % BIG))[2]) == BIG
        await slow.send(big)
        await trio.sleep(1)
        await slow.send(GET % (b"/1", b""))
        await trio.sleep(1)
        await slow.send(GET % (b"/2", b"") + big + GET % (b"/nowhere", b"Connection: close\r\n"))
        assert len((await other.get(b"/7"))[2]) == 7
        answers = [await slow.answer() for _ in range(5)]
        assert [status for status, _, _ in answers] == [200, 200, 200, 200, 404]
        assert [len(body) for _, _, body in answers][:4] == [BIG, 1, 2, BIG]
        assert await slow.ends()


async def test_a_connection_that_ends_with_its_tick_says_all_it_had_to_say(autojump_clock: MockClock) -> None:
    """Whatever the kernel did not take at once, up to the last word."""
    async with serving(fast_path=fast_path_of_sizes) as served:
        client = await served.connect()
        await client.send(GET % (b"/%d" % BIG, b"") + GET % (b"/fail", b""))
        await trio.sleep(1)
        assert len((await client.answer())[2]) == BIG
        assert (await client.answer())[0] == 500
        assert await client.ends()


async def test_a_client_that_takes_nothing_is_not_read_on(autojump_clock: MockClock) -> None:
    """It asks again and again and reads no answer: no more is made than it takes, and after 30 seconds it is cut."""
    limits = ServerLimits(write_seconds=30)
    async with serving(fast_path=fast_path_of_sizes, limits=lambda: limits) as served:
        deaf = await served.connect()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask_until_cut, deaf)
            await trio.sleep(20)
            assert served.told.taken < 10
            with trio.fail_after(60):
                while nursery.child_tasks:
                    await trio.sleep(1)
        assert served.told.taken < 10


async def ask_until_cut(client: Client) -> None:
    """Ask for something large, without end."""
    with suppress(trio.BrokenResourceError):
        while True:
            await client.send(GET % (b"/%d" % BIG, b""))


async def test_a_shutdown_waits_until_it_is_taken(autojump_clock: MockClock) -> None:
    """What was answered in the last tick arrives whole."""
    async with serving(fast_path=fast_path_of_sizes) as served:
        client = await served.connect()
        await client.send(GET % (b"/%d" % BIG, b""))
        await trio.sleep(1)
        served.told.shutdown.set()
        assert len((await client.answer())[2]) == BIG
        assert await client.ends()


async def test_a_client_that_left_before_the_tick_ended(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    """Nobody is there to take the answer: its connection ends, without a word in the log, and the others' go on."""
    async with serving(fast_path=fast_path_of_sizes) as served:
        gone, other = await served.connect(), await served.connect()
        await gone.send(GET % (b"/%d" % BIG, b"") * 2)
        await trio.sleep(1)
        await gone.stream.aclose()
        assert len((await other.get(b"/7"))[2]) == 7
    assert not caplog.records

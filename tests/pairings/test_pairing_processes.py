"""Pairing by real processes: the engine, `hatchway engine pair` on a terminal, curl and raw sockets as consoles."""

from __future__ import annotations

import json
import os
import signal
import socket
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
import trio

from tests.support.processes import EngineProcess, running_engine
from tests.support.terminal import Screen, terminal

pytestmark = [pytest.mark.process, pytest.mark.tools]

INVALID = "invalid pairing code"


@pytest.fixture
def engine(home: Path) -> Iterator[EngineProcess]:
    with running_engine(home) as process:
        yield process


class Curl:
    """`curl -N` at the pairing endpoint: what it has printed so far, and its end."""

    def __init__(self, nursery: trio.Nursery, engine: EngineProcess, code: str, *options: str) -> None:
        self.said = b""
        self.ended = trio.Event()
        self._accepted = trio.Event()
        body = json.dumps({"code": code})
        self._command = [
            "curl",
            "-sN",
            *options,
            "--json",
            body,
            "-H",
            "Accept: */*",
            f"{engine.url}/api/auth/pair/request/",
        ]
        nursery.start_soon(self._run)

    async def _run(self) -> None:
        async with trio.open_nursery() as nursery:
            self.process = await nursery.start(
                partial(trio.run_process, self._command, stdout=-1, check=False)  # -1: a pipe
            )
            async for more in self.process.stdout:
                self.said += more
                self._accepted.set()
        self.ended.set()

    async def accepted(self) -> dict[str, Any]:
        """The first line."""
        with trio.fail_after(60):
            await self._accepted.wait()
        first: dict[str, Any] = json.loads(self.said.split(b"\n")[0])
        return first

    async def last(self) -> dict[str, Any]:
        """The last line, once the server has ended the answer."""
        with trio.fail_after(90):
            await self.ended.wait()
        last: dict[str, Any] = json.loads(self.said.strip().split(b"\n")[-1])
        return last


async def printed(screen: Screen) -> str:
    """The code on the terminal."""
    await screen.wait_for("Waiting for a console")
    return screen.text.split("Pairing code  ")[1].split("\n")[0]


async def test_approve_and_reject(engine: EngineProcess, nursery: trio.Nursery) -> None:
    """`y` signs in and exits 0; `n` refuses with 401 and exits 1; a used code is a plain 401."""
    for keys, exit_code in ((b"y\n", 0), (b"n\n", 1)):
        async with terminal("engine", "pair", home=engine.home) as screen:
            code = await printed(screen)
            curl = Curl(nursery, engine, code)
            accepted = await curl.accepted()
            await screen.wait_for("Approve? [y/N]")
            assert accepted["match"] in screen.text.split("Number")[1].split("\n")[0]
            screen.type(keys)
            assert await screen.wait_end() == exit_code
            last = await curl.last()
        if exit_code == 0:
            inspected = httpx.get(
                f"{engine.url}/api/auth/inspect/", headers={"authorization": f"Bearer {last['token']}"}
            )
            assert inspected.json()["method"] == "pairing"
        else:
            assert (last["status"], last["detail"]) == (401, INVALID)
        again = httpx.post(f"{engine.url}/api/auth/pair/request/", json={"code": code})
        assert (again.status_code, again.json()["detail"]) == (401, INVALID)


async def test_both_windows_pass(engine: EngineProcess, nursery: trio.Nursery) -> None:
    """Thirty real seconds: the unclaimed code expires, the claimed one ends as `pairing expired on approval`."""
    async with (
        terminal("engine", "pair", home=engine.home) as left,
        terminal("engine", "pair", home=engine.home) as late,
    ):
        unclaimed, claimed = await printed(left), await printed(late)
        began = trio.current_time()
        curl = Curl(nursery, engine, claimed)
        await curl.accepted()
        last = await curl.last()
        assert 30 <= trio.current_time() - began < 45
        assert (last["status"], last["detail"]) == (401, "pairing expired on approval")
        assert await late.wait_end() == 1
        assert "pairing expired on approval" in late.text
        assert await left.wait_end() == 1
        assert "expired" in left.text
    assert httpx.post(f"{engine.url}/api/auth/pair/request/", json={"code": unclaimed}).status_code == 401


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGKILL], ids=["Ctrl-C", "kill -9"])
async def test_the_command_ends(engine: EngineProcess, nursery: trio.Nursery, end: signal.Signals) -> None:
    """Whatever ends the command withdraws its code, and tells the console that waits."""
    async with terminal("engine", "pair", home=engine.home) as screen:
        curl = Curl(nursery, engine, await printed(screen))
        await curl.accepted()
        await screen.wait_for("Approve? [y/N]")
        os.kill(screen.process.pid, end)
        last = await curl.last()
        assert (last["status"], last["detail"]) == (401, INVALID)
        assert await screen.wait_end() != 0


async def test_the_console_hangs_up(engine: EngineProcess, nursery: trio.Nursery) -> None:
    """The terminal is told at once, and exits with 1."""
    async with terminal("engine", "pair", home=engine.home) as screen:
        curl = Curl(nursery, engine, await printed(screen))
        await curl.accepted()
        await screen.wait_for("Approve? [y/N]")
        curl.process.kill()
        assert await screen.wait_end() == 1
        assert "went away" in screen.text


async def test_the_engine_restarts(engine: EngineProcess, nursery: trio.Nursery) -> None:
    """A restart consumes the codes that are out, told on both sides; kill -9 of the engine loses both no longer."""
    async with terminal("engine", "pair", home=engine.home) as screen:
        code = await printed(screen)
        curl = Curl(nursery, engine, code)
        await curl.accepted()
        await trio.to_thread.run_sync(engine.terminate)
        last = await curl.last()
        assert (last["status"], last["detail"]) == (401, INVALID)
        assert await screen.wait_end() == 1
    await trio.to_thread.run_sync(engine.start)
    assert httpx.post(f"{engine.url}/api/auth/pair/request/", json={"code": code}).status_code == 401


def test_two_addresses_within_a_millisecond(engine: EngineProcess) -> None:
    """In 200 rounds exactly one of two claims wins, and the terminal is asked once."""
    for _ in range(200):
        with engine.operator_connection() as operator:
            operator.sendall(b'{"op":"pair","permissions":null,"lifetime":3600}\n')
            lines = operator.makefile("rb")
            code = json.loads(lines.readline())["code"]
            statuses = _race(engine.port, code)
            assert sorted(statuses) == [200, 401]
            claimed = json.loads(lines.readline())
            assert claimed["event"] == "claimed"
            rest = [json.loads(line)["event"] for line in lines]
            assert rest == ["left"]


def _race(port: int, code: str) -> list[int]:
    """Two requests sent by two threads on connections that stand ready; the statuses of both."""
    body = json.dumps({"code": code}).encode()
    head = b"POST /api/auth/pair/request/ HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nContent-Type: application/json\r\n" % port
    request = head + b"Content-Length: %d\r\n\r\n" % len(body) + body
    peers = [socket.create_connection(("127.0.0.1", port), source_address=(address, 0)) for address in LOOPBACKS]
    gate, statuses = threading.Barrier(2), []

    def send(peer: socket.socket) -> None:
        gate.wait()
        peer.sendall(request)
        statuses.append(int(peer.makefile("rb").readline().split()[1]))

    threads = [threading.Thread(target=send, args=(peer,)) for peer in peers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    for peer in peers:
        peer.close()
    return statuses


LOOPBACKS = ("127.0.0.2", "127.0.0.3")

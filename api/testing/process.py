"""A test engine in a process of its own, held by its control address: for tests that are plain, or asyncio's."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import anyio.to_thread
import httpcore
import msgspec

from hatchway.api.testing.faults import Faults, FaultSwitch
from hatchway.api.testing.people import Answer, AuthorizedKey, Session
from hatchway.api.testing.watchers import BrokenPromise
from hatchway.engine.base import http_calls
from hatchway.engine.runtime.records import Record

PATIENCE = 60.0
"""Seconds of the host's that one call may take: a day's advance with many sessions takes some."""

T = TypeVar("T")


class ControlRefused(ValueError):
    """The control address refused what it was told; its sentence says why."""


class EngineProcess:
    """A test engine, as plain tests hold it. `url` is where it serves, without a slash at its end."""

    def __init__(self, told: dict[str, Any]) -> None:
        """`told` is the line that it has printed."""
        self.url: str = told["address"]
        self.control_url: str = told["control_address"]
        self.key_file, self.master_key_file = Path(told["key_file"]), Path(told["master_key_file"])
        self.pid: int = told["pid"]
        self._connections = httpcore.ConnectionPool()

    def _tell(self, path: str, /, **fields: Any) -> Any:
        return self._asked("POST", path, json.dumps(fields).encode())

    def _ask(self, path: str) -> Any:
        return self._asked("GET", path)

    def _asked(self, method: str, path: str, body: bytes | None = None) -> Any:
        headers = [("Content-Type", "application/json")] if body else []
        waits = http_calls.waits(PATIENCE, connect=PATIENCE)
        answer = self._connections.request(
            method, self.control_url + path, headers=headers, content=body, extensions=waits
        )
        told = json.loads(answer.content)
        if answer.status >= 400:
            raise ControlRefused(told["detail"])
        return told

    @property
    def records(self) -> list[Record]:
        """Every record since the start of the test."""
        return msgspec.convert(self._ask("/records"), list[Record])

    @property
    def now(self) -> float:
        """Epoch seconds by the engine's clock."""
        return float(self._ask("/clock")["now"])

    @property
    def faults(self) -> FaultSwitch:
        """The faults that are set."""
        return FaultSwitch(
            lambda: msgspec.convert(self._ask("/faults"), Faults),
            lambda faults: self._tell("/faults", **msgspec.to_builtins(faults)),
        )

    def advance(self, seconds: float) -> None:
        """Let so many seconds pass; returns when all that was due has happened."""
        self._tell("/clock/advance", seconds=seconds)

    def run(self, speed: float) -> None:
        """Let time go on by itself, `speed` seconds of it in one of the host's; 0 has it stand."""
        self._tell("/clock/run", speed=speed)

    def pair(
        self, permissions: list[str] | None = None, lifetime: str | None = None, answer: Answer | None = "approve"
    ) -> str:
        """A pairing code that is out. Once it is claimed its operator approves, rejects, says yes too late, or (None)
        nothing."""
        told: str = self._tell("/pairings", permissions=permissions, lifetime=lifetime, answer=answer)["code"]
        return told

    def key(self, permissions: list[str] | None = None, name: str | None = None) -> AuthorizedKey:
        """A new key, authorized."""
        told = self._tell("/keys", permissions=permissions, name=name)
        return AuthorizedKey(told["name"], told["identity"], Path(told["file"]))

    def unregister(self, key: str) -> None:
        """Take a key out of authorized_keys, by its name or identity: its sessions end."""
        self._tell("/keys/unregister", name=key)

    def sign_in(self, lifetime: str | None = None, key: str = "one", *, renews: bool = False) -> Session:
        """A session by key; with `renews` it renews itself at half its lifetime."""
        told = self._tell("/sessions", lifetime=lifetime, key=key, renews=renews)
        return msgspec.convert(told["sessions"][0], Session)

    def revoke(self, key: str | None = None) -> int:
        """End every session, or those of a key; how many there were."""
        return int(self._tell("/sessions/revoke", key=key)["ended"])

    def script(self, name: str | None = None, **script: Any) -> None:
        """What becomes of instances that start from now on: of that name, or of all others."""
        self._tell("/instances", name=name, **script)

    def end_instance(self, name: str, exit_code: int = 0) -> None:
        """An instance ends by itself, now."""
        self._tell("/instances/end", name=name, exit_code=exit_code)

    def reset(self) -> None:
        """As it was at the start, for the next test."""
        self._tell("/reset")

    def check(self) -> None:
        """Raises BrokenPromise, with every promise that the engine broke."""
        if broken := self._ask("/promises")["broken"]:
            raise BrokenPromise("; ".join(broken))

    def close(self) -> None:
        """Close the connection to the control address."""
        self._connections.close()


class AsyncEngineProcess:
    """The same for tests of asyncio: what takes time is awaited, so that the test's other tasks go on meanwhile."""

    def __init__(self, process: EngineProcess) -> None:
        self._process = process
        self.url, self.control_url, self.pid = process.url, process.control_url, process.pid
        self.key_file, self.master_key_file = process.key_file, process.master_key_file

    @property
    def records(self) -> list[Record]:
        """Every record since the start of the test."""
        return self._process.records

    @property
    def now(self) -> float:
        """Epoch seconds by the engine's clock."""
        return self._process.now

    @property
    def faults(self) -> FaultSwitch:
        """The faults that are set."""
        return self._process.faults

    def run(self, speed: float) -> None:
        """As `EngineProcess.run`."""
        self._process.run(speed)

    def script(self, name: str | None = None, **script: Any) -> None:
        """As `EngineProcess.script`."""
        self._process.script(name, **script)

    def end_instance(self, name: str, exit_code: int = 0) -> None:
        """As `EngineProcess.end_instance`."""
        self._process.end_instance(name, exit_code)

    async def advance(self, seconds: float) -> None:
        """As `EngineProcess.advance`."""
        await _beside(self._process.advance, seconds)

    async def pair(
        self, permissions: list[str] | None = None, lifetime: str | None = None, answer: Answer | None = "approve"
    ) -> str:
        """As `EngineProcess.pair`."""
        return await _beside(self._process.pair, permissions, lifetime, answer)

    async def key(self, permissions: list[str] | None = None, name: str | None = None) -> AuthorizedKey:
        """As `EngineProcess.key`."""
        return await _beside(self._process.key, permissions, name)

    async def unregister(self, key: str) -> None:
        """As `EngineProcess.unregister`."""
        await _beside(self._process.unregister, key)

    async def sign_in(self, lifetime: str | None = None, key: str = "one", *, renews: bool = False) -> Session:
        """As `EngineProcess.sign_in`."""
        return await _beside(partial(self._process.sign_in, lifetime, key, renews=renews))

    async def revoke(self, key: str | None = None) -> int:
        """As `EngineProcess.revoke`."""
        return await _beside(self._process.revoke, key)


async def _beside(call: Callable[..., T], *given: Any) -> T:
    return await anyio.to_thread.run_sync(call, *given)


@contextmanager
def engine_process() -> Iterator[EngineProcess]:
    """A test engine in a process of its own, until left. Raises RuntimeError where it does not start."""
    command = [sys.executable, "-c", "from hatchway.api.cli import main; main()", "test-engine"]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as child:  # noqa: S603 - our own
        assert child.stdout is not None
        try:
            line = child.stdout.readline()
            if not line:
                raise RuntimeError("the test engine did not start: what it said stands above")
            engine = EngineProcess(json.loads(line))
            try:
                yield engine
            finally:
                engine.close()
        finally:
            child.terminate()

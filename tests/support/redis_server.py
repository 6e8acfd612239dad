"""A real Redis on a free port of loopback, durable as the handbook asks: started, stopped, killed, held."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import trio

from hatchway.engine.settings.redis_address import read_address
from hatchway.engine.store.redis import RedisStore
from hatchway.engine.store.redis_link import RedisLink
from tests.support.ports import free_port
from tests.support.waits import until

DURABLE = ("--appendonly", "yes", "--appendfsync", "always")

SERVER = os.environ.get("HATCHWAY_REDIS_SERVER") or "redis-server"
"""The program; by hand it may be a Valkey's."""


def speak(port: int, *words: str) -> bytes:
    """One command in Redis' own protocol, and what comes back first; nothing where nobody answers."""
    sent = b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in map(str.encode, words))
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=20) as peer:
            peer.sendall(b"*%d\r\n%s" % (len(words), sent))
            return peer.recv(65536)
    except OSError:
        return b""


class RedisServer:
    """One server on a folder of its own, so that it comes back with what it held. `more` are its further arguments."""

    def __init__(self, folder: Path, *more: str, durable: bool = True) -> None:
        self.folder, self.port = folder, free_port()
        self._more = (*(DURABLE if durable else ("--appendonly", "no")), *more)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    @property
    def process(self) -> subprocess.Popen[bytes]:
        assert self._process is not None, "not started"
        return self._process

    def start(self) -> RedisServer:
        """Until it answers."""
        self.folder.mkdir(exist_ok=True)
        arguments = [SERVER, "--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.folder)]
        more = ["--save", "", "--daemonize", "no", "--logfile", str(self.folder / "log"), *self._more]
        self._process = subprocess.Popen([*arguments, *more])
        try:
            until(self._answers, what="Redis")
        except BaseException:
            self.close()
            raise
        return self

    def _answers(self) -> bool:
        assert self.process.poll() is None, (self.folder / "log").read_text()
        return speak(self.port, "PING").startswith(b"+PONG")

    def replicas(self) -> int:
        """How many have all that it has: one that still copies confirms no change."""
        return speak(self.port, "INFO", "replication").count(b"state=online")

    def stop(self) -> None:
        """In order, as for an upgrade."""
        self.process.terminate()
        self.process.wait(20)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def hold(self) -> None:
        """It hangs: connections stay, nothing is answered."""
        os.kill(self.process.pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.kill(self.process.pid, signal.SIGCONT)

    def close(self) -> None:
        """The end of the test."""
        if self._process is not None and self._process.poll() is None:
            self.kill()


@asynccontextmanager
async def redis_link(url: str) -> AsyncIterator[RedisLink]:
    """The way to a store, connected, without an engine."""
    link = RedisLink(read_address(url))
    async with trio.open_nursery() as nursery:
        await nursery.start(link.run)
        yield link
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def redis_store(url: str) -> AsyncIterator[RedisStore]:
    """The store alone, connected, without an engine."""
    async with redis_link(url) as link:
        yield RedisStore(link)

"""A real engine that listens on a loopback port, in the test's own trio run, and the command as real processes."""

from __future__ import annotations

import json
import os
import socket
import subprocess
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import trio

from hatchway.api.host.operator_socket import OperatorSocket
from hatchway.api.http.app import make_app
from hatchway.api.server.server import serve
from hatchway.engine.base.files import make_private_dir, write_private
from hatchway.engine.base.permissions import FIVE, MASTER
from hatchway.engine.engine import Engine, open_engine
from hatchway.engine.keys.authorized_keys import AuthorizedKeys
from hatchway.engine.settings.settings import Settings
from tests.support.command import HATCHWAY
from tests.support.fakes import ROOT, MovedClock, added_addresses, key
from tests.support.forked import CapturedCommand, can_fork


class Live(NamedTuple):
    """An engine that answers, and where."""

    engine: Engine
    url: str
    clock: MovedClock


@asynccontextmanager
async def live_engine(home: Path, *, wall_ahead: float = 0.0, **more: Any) -> AsyncIterator[Live]:
    """An engine with HTTP and operator socket. The test key `one` is authorized, `engine` is the engine's own.

    `wall_ahead` is how wrong its clock is from the start: one that is set later is in the Date header a second later.
    """
    make_private_dir(home)
    if not (home / "private-key.pem").exists():
        write_private(home / "private-key.pem", key("engine").pem())  # one for all tests: making one takes a while
        AuthorizedKeys(home / "authorized_keys").register(key("engine").public, (MASTER,), "engine", own=True)
    listening = socket.create_server(("127.0.0.1", 0))
    port = listening.getsockname()[1]
    url, clock = f"http://127.0.0.1:{port}", MovedClock(wall_ahead)
    settings = Settings(port=port, addresses=(f"127.0.0.1:{port}",), **more)
    async with open_engine(home, lambda: settings, clock) as engine, trio.open_nursery() as nursery:
        engine.keys.register(key().public, FIVE, "one")
        operator_socket = OperatorSocket(engine, lambda: {"url": url}, lambda: None, engine.reload, added_addresses())
        await nursery.start(operator_socket.serve)
        down = trio.Event()
        await nursery.start(partial(serve, make_app(engine), [listening], shutdown=down, clock=clock))
        yield Live(engine, url, clock)
        down.set()
        nursery.cancel_scope.cancel()


async def command(
    home: Path,
    *arguments: str,
    code: int | None = 0,
    typed: bytes = b"",
    environ: Mapping[str, str] = {},
    **environment: str,
) -> subprocess.CompletedProcess[bytes]:
    """One command as a process, `typed` on its standard input; its exit code must be `code`, where one is given."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG", "PYTHONPATH") if name in os.environ}
    given = {**kept, "HATCHWAY_HOME": str(home), **environ, **environment}
    if can_fork(given):
        running = CapturedCommand(arguments, given, typed=typed)
        try:
            await trio.lowlevel.wait_readable(running)
        finally:
            running.kill()
        done = running.completed()
    else:
        done = await trio.run_process(
            [*HATCHWAY, *arguments],
            cwd=ROOT,
            stdin=typed,
            env=given,
            capture_stdout=True,
            capture_stderr=True,
            check=False,
        )
    assert code in (None, done.returncode), done.stdout + done.stderr
    return done


async def told(home: Path, *arguments: str, **environment: str) -> Any:
    """What a command prints with --json."""
    return json.loads((await command(home, *arguments, "--json", environ=environment)).stdout)

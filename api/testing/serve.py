"""Runs a test engine as a process of its own: a line of JSON tells where it is, then it serves."""

from __future__ import annotations

import json
import os
import signal
from functools import partial
from typing import Any

import trio

from hatchway.api.testing.control import ControlApp
from hatchway.api.testing.engine_under_test import EngineUnderTest, listen, open_engine_under_test
from hatchway.api.testing.held_clock import run_held
from hatchway.engine.journal.logs import set_up_logs
from hatchway.engine.settings.settings import LogSettings


def run_test_engine(port: int, control_port: int) -> None:
    """Serve until SIGTERM or Ctrl-C; 0 is any free port. Raises EngineUnavailable."""
    set_up_logs(LogSettings(level="warning"))  # standard output has the one line: whoever has read it reads no more
    run_held(partial(_run, port, control_port))


async def _run(port: int, control_port: int) -> None:
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async with open_engine_under_test(port) as engine, trio.open_nursery() as nursery:
            listeners = await listen(control_port)
            host, bound = listeners[0].getsockname()[:2]
            app = ControlApp(engine, f"{host}:{bound}")
            await nursery.start(engine.serve, app, listeners, trio.Event())
            print(json.dumps(told(engine, f"http://{host}:{bound}")), flush=True)
            async for _ in signals:
                nursery.cancel_scope.cancel()


def told(engine: EngineUnderTest, control: str) -> dict[str, Any]:
    """The line that says where a test engine is."""
    return {
        "address": engine.url,
        "control_address": control,
        "key_file": str(engine.key_file),
        "master_key_file": str(engine.master_key_file),
        "pid": os.getpid(),
    }

"""An engine that is started in the background: `hatchway engine start --detach`."""

from __future__ import annotations

from pathlib import Path

import trio

from tests.support.live_engine import command


async def test_three_at_once_on_a_new_folder(home: Path) -> None:
    """As a job array starts them: one engine runs, and the others are told so once, however often it was written."""
    told: list[tuple[int, str]] = []

    async def start() -> None:
        done = await command(home, "engine", "start", "--detach", "--port", "0", code=None)
        told.append((done.returncode, (done.stdout + done.stderr).decode()))

    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(start)
    await command(home, "engine", "stop")
    (_, started), *others = sorted(told)
    assert started.startswith("started at http://127.0.0.1:"), started
    why = f"the engine did not start: another engine runs on {home}: stop it with `hatchway engine stop`"
    assert others == [(1, f"{why}\n")] * 2

"""Many held event streams on a real engine: what each weighs, and that they hold up no sign-in."""

from __future__ import annotations

import time
from pathlib import Path

import httpx
import pytest

from tests.bench.servers import Server
from tests.bench.streams import drain, hold, yes_to_token
from tests.support.fakes import key
from tests.support.processes import running_engine, sign_in
from tests.support.timing import Share, kept

STREAMS, SIGN_INS = 300, 8


@pytest.mark.process
def test_a_held_stream_is_small_and_holds_nobody_up(home: Path) -> None:
    """A stream takes at most 25 kB, here with room for a page; with 300 of them the way from the operator's `y` to the
    token is a few turns of the event loop longer than with none; and without news they cost next to nothing."""
    with running_engine(home) as engine:
        server = Server(engine.process, engine.port)
        with httpx.Client(base_url=engine.url) as client:
            token = f"Bearer {sign_in(client, key('own'))['token']}"
        alone = min(yes_to_token(server, home, []) for _ in range(SIGN_INS))
        share = Share(engine.process.pid)
        before, held = engine.memory(), hold(server, token, STREAMS)
        try:
            drain(held)
            assert (engine.memory() - before) / STREAMS < 30_000
            kept(3 * alone + 0.02, lambda: yes_to_token(server, home, held) * share.now(), tries=3 * SIGN_INS)
            drain(held)
            spent = server.cpu()
            time.sleep(2)
            assert server.cpu() - spent < 0.2
        finally:
            for sock in held:
                sock.close()

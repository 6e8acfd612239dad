"""Claims of another engine's code over a real Redis, where the store or the console fails in the midst of one."""

from __future__ import annotations

from functools import partial

import pytest
import trio

from hatchway.engine.base.errors import PairingExpired
from hatchway.engine.fleet import codes
from hatchway.engine.fleet.codes import RemoteCodes
from hatchway.engine.runtime.records import NOBODY
from tests.fleet.test_remote_calls import SOON, Side, Sides, present
from tests.fleet.test_remote_calls import sides as sides

pytestmark = [pytest.mark.redis]

CODE = "ABCDEFGH"


async def nowhere(name: str) -> None:
    raise AssertionError(name)


def codes_of(side: Side) -> RemoteCodes:
    return RemoteCodes(side.fleet, side.calls, lambda: 50, nowhere)


async def test_an_answer_that_never_comes(sides: Sides, monkeypatch: pytest.MonkeyPatch) -> None:
    """The console is told that the window is over, and does not wait for ever; the engine that printed the code is told
    that nobody waits."""
    a, b = sides
    left = trio.Event()
    b.calls.serve("claim", partial(present, left))
    monkeypatch.setattr(codes, "ANSWERED_WITHIN", 0.3)
    await codes_of(b).publish("pairing", CODE)
    with trio.fail_after(SOON):
        claim = await codes_of(a).claim(CODE, {}, NOBODY)
        with pytest.raises(PairingExpired):
            await claim.wait_answer()
        await left.wait()

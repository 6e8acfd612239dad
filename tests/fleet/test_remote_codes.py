"""Claims of another engine's code over a real Redis, where the store or the console fails in the midst of one."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import pytest
import trio

from hatchway.engine.access.principal import IssuedSession
from hatchway.engine.base.errors import PairingExpired, StoreUnavailable
from hatchway.engine.fleet import codes
from hatchway.engine.fleet.codes import RemoteCodes
from hatchway.engine.fleet.remote_calls import Caller
from hatchway.engine.runtime.records import NOBODY
from hatchway.engine.store.scripts import CLAIM, TAKE, UNCLAIM, Script
from tests.fleet.test_remote_calls import SOON, Side, Sides, present
from tests.fleet.test_remote_calls import sides as sides

pytestmark = [pytest.mark.redis]

CODE = "ABCDEFGH"


async def nowhere(name: str) -> None:
    raise AssertionError(name)


def codes_of(side: Side, started_elsewhere: Callable[[str], Any] = nowhere) -> RemoteCodes:
    return RemoteCodes(side.fleet, side.calls, lambda: 50, started_elsewhere)


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


@pytest.mark.parametrize("hangs_up", [True, False])
async def test_a_claim_whose_answer_is_not_heard(sides: Sides, monkeypatch: pytest.MonkeyPatch, hangs_up: bool) -> None:
    """The store has taken the code and sent the call: the operator's yes would sign in nobody, so the engine that
    printed the code is told. The console hung up before the answer came, or that was lost."""
    a, b = sides
    left, script = trio.Event(), a.fleet.link.script
    b.calls.serve("claim", partial(present, left))
    await codes_of(b).publish("pairing", CODE)
    console = trio.CancelScope()

    async def unheard(what: Script, *args: Any, **more: Any) -> Any:
        answer = await script(what, *args, **more)
        if what is CLAIM and hangs_up:
            console.cancel()
            await trio.lowlevel.checkpoint()
        elif what is CLAIM:
            raise StoreUnavailable("no answer in time")
        return answer

    monkeypatch.setattr(a.fleet.link, "script", unheard)
    with trio.fail_after(SOON):
        with console, suppress(StoreUnavailable):
            await codes_of(a).claim(CODE, {}, NOBODY)
        await left.wait()


async def test_a_claim_that_comes_after_its_end(sides: Sides, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store that hung takes up in any order what it was sent meanwhile: the code stays out for others."""
    a, b = sides
    script, late, calls = a.fleet.link.script, trio.Event(), list[str]()

    async def claimed(body: bytes, caller: Caller) -> bytes:
        calls.append(caller.run_id)
        return await present(trio.Event(), body, caller)

    async def in_disorder(what: Script, keys: Any, args: Any, **more: Any) -> Any:
        if what is CLAIM:
            sent.append((keys, args))
            raise StoreUnavailable("no answer in time")
        answer = await script(what, keys, args, **more)
        if what is UNCLAIM:
            late.set()
        return answer

    b.calls.serve("claim", claimed)
    sent: list[tuple[Any, Any]] = []
    await codes_of(b).publish("pairing", CODE)
    with trio.fail_after(SOON):
        with monkeypatch.context() as hanging:
            hanging.setattr(a.fleet.link, "script", in_disorder)
            with pytest.raises(StoreUnavailable):
                await codes_of(a).claim(CODE, {}, NOBODY)
            await late.wait()
        assert await script(CLAIM, *sent[0]) == [b"used"]
        assert calls == []
        await codes_of(a).claim(CODE, {}, NOBODY)
        assert calls == [a.run_id]


async def test_a_store_that_is_away_as_the_answer_comes(sides: Sides, monkeypatch: pytest.MonkeyPatch) -> None:
    """The session is made by then, so its name and what is stored of it are asked for until the store is back."""
    a, b = sides
    script, away = a.fleet.link.script, [True, True, True]
    session = IssuedSession("token", ("SHELL",), 0)

    async def approved(body: bytes, caller: Caller) -> bytes:
        caller.report(b"42")
        return b"session"

    async def failing(what: Script, *args: Any, **more: Any) -> Any:
        if what is TAKE and away:
            raise StoreUnavailable(f"away for {away.pop()}")
        return await script(what, *args, **more)

    async def started(name: str) -> IssuedSession:
        assert name == "session"
        if not asked:
            asked.append(name)
            raise StoreUnavailable("away")
        return session

    asked: list[str] = []
    b.calls.serve("claim", approved)
    monkeypatch.setattr(a.fleet.link, "script", failing)
    await codes_of(b).publish("pairing", CODE)
    with trio.fail_after(SOON):
        claim = await codes_of(a, started).claim(CODE, {}, NOBODY)
        assert await claim.wait_answer() is session

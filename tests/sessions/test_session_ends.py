"""The session service without HTTP, in virtual time: who may see and end a session, and what is over."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import structlog
import trio
import trio.testing

from hatchway.engine.access.principal import IssuedSession, Method
from hatchway.engine.base.clock import TrioClock
from hatchway.engine.base.errors import FileRefused, NotFound, StoreUnavailable, TokenRefused
from hatchway.engine.base.permissions import FIVE
from hatchway.engine.base.tasks import BEGIN_ANEW
from hatchway.engine.engine import Engine
from hatchway.engine.runtime.records import NOBODY
from hatchway.engine.sessions import orphans
from hatchway.engine.store.protocol import Change
from tests.support.fakes import jump, key

pytestmark = pytest.mark.virtual_time


async def started(engine: Engine, name: str, lifetime: int = 3600, method: Method = "key") -> IssuedSession:
    """A session of a key, or by pairing."""
    proof: Any = "signature" if method == "key" else "approval"
    return await engine.sessions.start(method, name, FIVE, lifetime, proof=proof, origin=NOBODY)


async def test_each_way_of_signing_in_has_its_longest_age(engine: Engine) -> None:
    """Seven days behind a key, one behind a pairing, however long a lifetime was allowed."""
    engine.records.sinks.clear()  # the watch knows that a pairing's session has a pairing
    now = int(engine.clock.wall())
    month = 30 * 24 * 3600
    assert (await started(engine, key().identity, month)).expires_at == now + 7 * 24 * 3600
    paired = await started(engine, "pairing:x", month, "pairing")
    assert paired.expires_at == now + 24 * 3600
    assert engine.sessions.authenticate(paired.token).permissions == FIVE, (
        "there is no key that could have been taken out"
    )


async def test_nobody_ends_a_strangers_session(engine: Engine) -> None:
    """Older or newer than one's own; without MASTER it is not there at all."""
    engine.keys.register(key("two").public, FIVE)
    made = []
    for private in (key(), key("two"), key()):
        await jump(1)
        made.append(engine.sessions.authenticate((await started(engine, private.identity)).token))
    first, stranger, last = made
    for principal, other in ((first, stranger), (last, stranger), (stranger, first), (stranger, last)):
        with pytest.raises(NotFound):
            await engine.sessions.revoke(principal, other.session, NOBODY)
    for name in ("", "zzz"):
        with pytest.raises(NotFound):
            await engine.sessions.revoke(first, name, NOBODY)
    assert len(list(engine.runtime.actors("session"))) == 3
    assert {actor.id for actor in engine.sessions.visible(first)} == {first.session, last.session}
    await engine.sessions.revoke(first, last.session, NOBODY)
    assert [actor.id for actor in engine.sessions.visible(first)] == [first.session]


async def test_what_is_over_is_listed_no_more(engine: Engine, clock: TrioClock) -> None:
    """Also in the moment before it is swept."""
    principal = engine.sessions.authenticate((await started(engine, key().identity)).token)
    assert len(list(engine.sessions.visible(principal))) == 1
    clock.skew += 3601
    assert list(engine.sessions.visible(principal)) == []
    assert len(list(engine.runtime.actors("session"))) == 1


async def test_how_many_sessions_a_key_takes_along(engine: Engine) -> None:
    """Whoever takes a key out is told; sessions of other keys, and those that are over, do not count."""
    engine.keys.register(key("two").public, FIVE)
    for private in (key(), key(), key("two")):
        ended = await started(engine, private.identity)
    await engine.sessions.end(ended.token, "console_hung_up")
    assert await engine.orphans.end_of({key().identity, key("two").identity, "SHA256:nobody"}) == 2
    assert await engine.orphans.end_of({key().identity}) == 0


async def test_sessions_that_were_ended_for_the_same_key_before(engine: Engine) -> None:
    """An engine may see a key taken out before the command that did it asks: its sessions count, once."""
    await started(engine, key().identity)
    engine.keys.unregister(key().identity)
    await engine.orphans.end_all()
    assert list(engine.runtime.actors("session")) == []
    assert await engine.orphans.end_of({key().identity}) == 1
    assert await engine.orphans.end_of({key().identity}) == 0


@pytest.fixture
def slow_disk(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each write takes a second."""
    commit = engine.store.commit

    async def slow(change: Change) -> None:
        await trio.sleep(1)
        await commit(change)

    monkeypatch.setattr(engine.store, "commit", slow)


@pytest.mark.usefixtures("slow_disk")
async def test_a_token_tells_its_whole_lifetime(engine: Engine) -> None:
    """From `iat` to `exp` it is what was granted, also where the disk took a second: clients reckon with it."""
    token = (await started(engine, key().identity)).token
    for _ in range(2):
        said = engine.tokens.read(token)
        assert said.exp - said.iat == 3600
        await jump(60)
        token = (await engine.sessions.renew(engine.sessions.authenticate(token), NOBODY)).token


async def test_what_is_left_of_a_key_ends_once_the_store_is_back(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Looked for once all sessions are here, and again where the store was away then, or the keys were refused."""
    for name in ("one", "two"):
        engine.keys.register(key(name).public, FIVE, name)
    mine, theirs = [(await started(engine, key(name).identity)).token for name in ("one", "two")]
    engine.keys.unregister(key("two").identity)
    steps, whole, end_all = list[str](), trio.Event(), engine.orphans.end_all

    faults = [StoreUnavailable("away"), FileRefused("open to others", cause="mode")]

    async def away_at_first() -> None:
        steps.append(faults[0].code if faults else "back")
        if faults:
            raise faults.pop(0)
        await end_all()

    monkeypatch.setattr(orphans, "CONFIRM_INTERVAL", 0.01)
    monkeypatch.setattr(engine.orphans, "end_all", away_at_first)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(engine.orphans.end_once, whole.wait)
        await trio.testing.wait_all_tasks_blocked()
        assert steps == []
        whole.set()
    assert steps == ["store_unavailable", "file_refused", "back"]
    assert [one.id for one in engine.runtime.actors("session")] == [engine.sessions.name_of(mine)]
    assert not is_good(lambda: engine.sessions.authenticate(theirs))


async def test_a_fault_ends_no_task_for_good(
    engine: Engine, failed_tasks: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What ends the sessions of a key that was taken out meets what nobody thought of: it is logged, and done later."""
    await started(engine, key().identity)
    with structlog.testing.capture_logs() as lines, monkeypatch.context() as broken:
        broken.setattr(engine.orphans, "end_all", _breaking(RuntimeError("a fault of ours")))
        engine.keys.unregister(key().identity)
        await jump(BEGIN_ANEW - 1)
    assert [line["event"] for line in lines if line["log_level"] == "error"] == ["task_failed"]
    assert failed_tasks.pop().endswith("RuntimeError('a fault of ours')")
    for _ in range(2):  # it begins anew, then looks
        await jump(BEGIN_ANEW)
    assert list(engine.runtime.actors("session")) == []


async def test_a_key_taken_out_while_the_store_is_away(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its sessions end once the store takes that, though the file does not change again."""
    await started(engine, key().identity)
    with monkeypatch.context() as away:
        away.setattr(engine.orphans, "end_all", _breaking(StoreUnavailable("away")))
        engine.keys.unregister(key().identity)
        await jump(10)
    assert len(list(engine.runtime.actors("session"))) == 1
    await jump(2)
    assert list(engine.runtime.actors("session")) == []


def _breaking(fault: Exception) -> Callable[[], Any]:
    async def breaks() -> None:
        raise fault

    return breaks


@pytest.mark.usefixtures("slow_disk")
async def test_one_end_counts_once(engine: Engine) -> None:
    """Of two who end the same sessions at the same time, each tells what it ended itself."""
    for _ in range(2):
        await started(engine, key().identity)
    ended = []

    async def end() -> None:
        ended.append(await engine.sessions.end_all_of({key().identity}))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(end)
        nursery.start_soon(end)
    assert sum(ended) == 2


async def test_what_was_refused_once_for_its_time_is_over(engine: Engine, clock: TrioClock) -> None:
    """Settled, it is no good again though the clock is set back in the same moment."""
    token = (await started(engine, key().identity)).token
    clock.skew = 7200
    await engine.sessions.settle(token)
    clock.skew = 0
    assert not is_good(lambda: engine.sessions.authenticate(token))


@pytest.mark.parametrize("state", ["", "a later state", "suspended"])
async def test_a_session_is_good_while_it_is_active_and_in_no_other_state(engine: Engine, state: str) -> None:
    """Whatever states there may come to be: nobody thought of this rule when they were added."""
    signed_in = await started(engine, key().identity)
    principal = engine.sessions.authenticate(signed_in.token)
    actor = engine.runtime.peek("session", principal.session)
    assert actor is not None
    actor.state = state
    with pytest.raises(TokenRefused) as refused:
        engine.sessions.authenticate(signed_in.token)
    assert refused.value.cause == "ended"
    assert list(engine.sessions.visible(principal)) == []
    actor.state = "active"


async def test_a_session_is_listed_as_long_as_it_is_good(engine: Engine) -> None:
    """Not on the second on which its tokens are refused."""
    signed_in = await started(engine, key().identity)
    principal = engine.sessions.authenticate(signed_in.token)
    actor = engine.runtime.peek("session", principal.session)
    assert actor is not None
    for left, good in ((0.001, True), (0.0, False)):
        actor.deadline = engine.clock.wall() + left
        assert (list(engine.sessions.visible(principal)) == [actor]) is good
        assert is_good(lambda: engine.sessions.authenticate(signed_in.token)) is good


def is_good(look: Callable[[], object]) -> bool:
    """Whether a token is taken."""
    try:
        look()
    except TokenRefused:
        return False
    return True

"""Questions from one engine of a fleet to another, and their answers: neither waits for who is gone."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable
from contextlib import suppress
from math import inf

import msgspec
import structlog
import trio

from engine.errors import HostUnavailable, InstanceNotFound, Refusal, RuntimeUnavailable, StoreUnavailable
from engine.fleet.fleet import Fleet
from engine.fleet.lease import inbox
from engine.store.redis import PREFIX
from engine.store.scripts import ASK, REPLY, TAKE

log = structlog.get_logger(__name__)

RETRY_AFTER = 30
"""Seconds after which to ask again for what only an engine knows that does not answer."""

REPLYING, AGAIN = 15.0, 0.25
"""Seconds in which an answer is sent again, and between two tries: once the store is back who waits for it waits on."""

_REFUSALS: dict[str, type[Refusal]] = {
    refusal.code: refusal for refusal in (InstanceNotFound, RuntimeUnavailable, StoreUnavailable)
}
"""What an engine may be told another one refuses; all else is that one's fault."""

_encode = msgspec.msgpack.encode

Answerer = Callable[[bytes], Awaitable[bytes]]


class Question(msgspec.Struct, array_like=True):
    """`what` is asked, by a run that waits for it."""

    run: str
    what: str
    body: bytes


class Reply(msgspec.Struct, array_like=True):
    """The answer, or the code and words of the refusal."""

    body: bytes = b""
    refused: str = ""
    detail: str = ""
    retry_after: int | None = None


class _Waiting:
    """Who waits for one answer."""

    def __init__(self, run: str) -> None:
        self.run = run
        self.over = trio.Event()
        self.came = False


class Questions:
    """Both sides of them. `answerers` is who answers what; each must bear to be asked a thing again."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self.answerers: dict[str, Answerer] = {}
        self._waiting: dict[str, _Waiting] = {}
        self._asked, self._questions = trio.open_memory_channel[tuple[str, Question]](inf)
        fleet.handlers |= {"question": self._take_question, "reply": self._take_reply}
        fleet.on_tick.append(self._look_for_the_dead)

    async def ask(self, run: str, host: str, what: str, body: bytes, within: float) -> bytes:
        """What that run, on that host, answers within so many seconds.

        Raises its refusal, StoreUnavailable, and HostUnavailable where it is gone or does not answer.
        """
        ticket, waiting = secrets.token_hex(8), _Waiting(run)
        self._waiting[ticket] = waiting
        self._fleet.lease.watch(run)
        try:
            question = _encode(Question(self._fleet.lease.run, what, body))
            asked = await self._fleet.link.script(ASK, [inbox(run)], [run, "question", ticket, question])
            with trio.move_on_after(within if asked else 0):
                await waiting.over.wait()
            told = await self._fleet.link.script(TAKE, [_reply(ticket)], []) if waiting.came else None
        finally:
            del self._waiting[ticket]
            self._fleet.lease.unwatch(run)
        if told is None:
            raise away(host)
        return _body(msgspec.msgpack.decode(told, type=Reply))

    async def _take_reply(self, ticket: str, _: bytes) -> None:
        waiting = self._waiting.get(ticket)
        if waiting is not None:
            waiting.came = True
            waiting.over.set()

    def _look_for_the_dead(self) -> None:
        for waiting in self._waiting.values():
            if waiting.run in self._fleet.lease.dead:
                waiting.over.set()

    # The other side

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Answer, for ever."""
        async with trio.open_nursery() as nursery:
            task_status.started()
            async for ticket, question in self._questions:
                nursery.start_soon(self._answer, ticket, question)

    async def _take_question(self, ticket: str, body: bytes) -> None:
        self._asked.send_nowait((ticket, msgspec.msgpack.decode(body, type=Question)))

    async def _answer(self, ticket: str, question: Question) -> None:
        try:
            reply = Reply(await self.answerers[question.what](question.body))
        except Refusal as refused:
            reply = Reply(b"", refused.code, refused.detail, refused.retry_after)
        except Exception:
            log.exception("question_not_answered", what=question.what)
            reply = Reply(b"", HostUnavailable.code, "its engine could not do it; that one's log has why", RETRY_AFTER)
        await self._send(ticket, question.run, _encode(reply))

    async def _send(self, ticket: str, run: str, reply: bytes) -> None:
        keys, args = (_reply(ticket), inbox(run)), (run, "reply", ticket, reply)
        with trio.move_on_after(REPLYING):
            while True:
                with suppress(StoreUnavailable):
                    if await self._fleet.link.script(REPLY, keys, args):
                        return
                await trio.sleep(AGAIN)


def away(host: str) -> HostUnavailable:
    """What only the engine on that host could tell or do."""
    words = f"the engine on {host}, which runs the instance, does not answer; try again once it does"
    return HostUnavailable(words, retry_after=RETRY_AFTER)


def _body(reply: Reply) -> bytes:
    if reply.refused:
        raise _REFUSALS.get(reply.refused, HostUnavailable)(reply.detail, retry_after=reply.retry_after)
    return reply.body


def _reply(ticket: str) -> str:
    return f"{PREFIX}reply:{ticket}"

"""A door: a row of the table, and how a call goes through it: who, may they, what do they ask, the answer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec
import structlog

from api.http.bodies import read_fields, read_object
from api.http.call import Answer, Call
from api.http.problems import BadRequest, problem_answer
from api.http.shapes import Param
from engine.engine import Engine
from engine.errors import FileRefused, Refusal, TokenRefused
from engine.holders import Holder, require

log = structlog.get_logger(__name__)


class NoFields(msgspec.Struct, forbid_unknown_fields=True):
    """Nothing is asked: no body, or an empty object. What is brought all the same is refused, never passed over."""


class Visit(NamedTuple):
    """A call at a door: the engine behind it, whose session it is (None at an open door), and the fields it brings."""

    engine: Engine
    call: Call
    holder: Holder | None
    fields: Any

    @property
    def by(self) -> Holder:
        """The holder, at a door that has one."""
        assert self.holder is not None
        return self.holder


Serve = Callable[[Visit], Answer | Awaitable[Answer]]


@dataclass(frozen=True, slots=True)
class Door:
    """One row: method, path, what it wants, what it does.

    `access` is `open` (nobody is asked), `session` (any good token), or the permission needed. `body` is the type
    of a JSON body's fields. A `hot` door is also answered by the lane and the front, a `held` one (it may take long, or
    be a stream) by the front. `asks`, `answers`, `refusals` describe it.
    """

    method: str
    path: str
    serve: Serve
    summary: str
    access: str = "open"
    module: str | None = None
    body: type[msgspec.Struct] | None = None
    large: bool = False
    hot: bool = False
    held: bool = False
    asks: tuple[Param, ...] = ()
    answers: Mapping[int, Any] = field(default_factory=dict)
    refusals: tuple[str, ...] = ()


def respond(engine: Engine, door: Door, call: Call) -> Answer | Awaitable[Answer]:
    """The door's answer, at once where nothing has to be waited for. Every refusal is a problem."""
    try:
        result = door.serve(_admit(engine, door, call))
    except Refusal as refused:
        if engine.fleet is not None and door.access != "open" and refused.cause in STALE:
            return _finish(engine, call, _look_again(engine, door, call))
        return _refuse(engine, call, refused)
    except Exception:
        return _fault(call)
    return result if isinstance(result, Answer) else _finish(engine, call, result)


STALE = frozenset({"stale", "ended", "expired"})
"""Why a token may be refused that is good: this engine has not heard yet what another one did."""


async def _look_again(engine: Engine, door: Door, call: Call) -> Answer:
    await engine.sessions.look_again(bearer(call))
    result = door.serve(_admit(engine, door, call))
    return result if isinstance(result, Answer) else await result


async def _finish(engine: Engine, call: Call, waiting: Awaitable[Answer]) -> Answer:
    try:
        return await waiting
    except Refusal as refused:
        answer = _refuse(engine, call, refused)
        return answer if isinstance(answer, Answer) else await answer
    except Exception:
        return _fault(call)


async def refused(engine: Engine, door: Door, call: Call) -> Answer | None:
    """What refuses a call whose body has not been read yet; None where the body may come."""
    try:
        try:
            _authorize(engine, door, call)
        except Refusal as refusal:
            if engine.fleet is None or refusal.cause not in STALE:
                raise
            await engine.sessions.look_again(bearer(call))
            _authorize(engine, door, call)
    except Refusal as refusal:
        answer = _refuse(engine, call, refusal)
        return answer if isinstance(answer, Answer) else await answer
    except Exception:
        return _fault(call)
    return None


def _authorize(engine: Engine, door: Door, call: Call) -> Holder | None:
    holder = None
    if door.access != "open":
        holder = engine.sessions.holder(bearer(call))
        if door.access != "session":
            require(holder, door.access)
    if door.module is not None:
        engine.license.require(door.module)
    return holder


def _admit(engine: Engine, door: Door, call: Call) -> Visit:
    """Token, permission and license come before the body is looked at."""
    holder = _authorize(engine, door, call)
    fields = None
    if door.body is not None and (call.body or door.body is not NoFields):
        value = read_object(_content_type(call), call.body, engine.settings.limits.json_depth)
        fields = read_fields(door.body, value)
    return Visit(engine, call, holder, fields)


def _content_type(call: Call) -> bytes | None:
    """The body's type. Sent twice it is one value with a comma, and so none that is known (RFC 9110 section 5.3)."""
    values = [value for name, value in call.headers if name == b"content-type"]
    return b", ".join(values) if values else None


def bearer(call: Call) -> str:
    """The token in the one `Authorization: Bearer` header (RFC 6750 section 2.1). Raises TokenRefused, BadRequest."""
    values = [value for name, value in call.headers if name == b"authorization"]
    if not values:
        raise TokenRefused("missing", sent=False)
    if len(values) > 1:
        raise BadRequest("send one Authorization header")
    scheme, _, token = values[0].partition(b" ")
    if scheme.lower() != b"bearer":
        raise TokenRefused("missing", sent=False)
    try:
        return token.decode("ascii")
    except UnicodeDecodeError:
        raise TokenRefused("malformed") from None


def _refuse(engine: Engine, call: Call, refused: Refusal) -> Answer | Awaitable[Answer]:
    if isinstance(refused, TokenRefused):
        if refused.cause in ("expired", "key_unregistered"):
            return _settle(engine, call, refused)
        return _problem(call, refused)
    return _problem(call, refused)


async def _settle(engine: Engine, call: Call, refused: TokenRefused) -> Answer:
    try:
        await engine.sessions.settle(bearer(call))
    except Refusal as unsettled:
        log.warning("session_not_settled", why=unsettled.detail)
    return _problem(call, refused)


def _problem(call: Call, refused: Refusal) -> Answer:
    if isinstance(refused, FileRefused):  # its words hold paths of the host, which are the operator's
        log.error("file_refused", why=refused.detail, request_id=call.request_id)
        refused = FileRefused("a file of the engine is not as it must be: its log names it, and what mends it")
    # Inspect's promise: a program may look at `valid` alone (section 4.3).
    more = {"valid": False} if refused.code == "invalid_token" and call.path.startswith("/api/auth/inspect") else {}
    return problem_answer(refused, **more)


class Fault(Refusal):
    """Not the client's fault; the log says more."""

    code = "internal_error"


def _fault(call: Call) -> Answer:
    log.exception("door_failed", path=call.path, request_id=call.request_id)
    return problem_answer(Fault(f"something went wrong in the engine; its log has it under {call.request_id}"))

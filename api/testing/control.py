"""The control address of a test engine, for tests in any language: JSON by POST.

    /clock/advance {"seconds": 30}      let time pass; answers when all that was due has happened
    /clock/run     {"speed": 60}        let time go on by itself; 0 has it stand again
    /pairings      {"permissions": [...], "lifetime": "1h", "answer": "approve" | "reject" | "late" | null}
    /keys          {"name": "two", "permissions": [...]}            /keys/unregister {"name": "two"}
    /sessions      {"key": "one", "lifetime": "1h", "renews": true, "count": 1}     /sessions/revoke {"key": "one"}
    /instances     {"name": "box", "takes": 2, "queues": 5, "fails": "...", "runs": 60, "exit_code": 3}
    /instances/end {"name": "box", "exit_code": 3}
    /faults        {"unavailable": true, "times": 2, ...}           /reset
    GET /clock, /faults, /records, /promises                        what is so now

It listens on loopback alone, and accepts only JSON and only a Host header with its own address: a web page in a browser
of this host can do neither.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated, Any, Literal

import msgspec

from hatchway.api.http.asgi import Receive, Scope, Send, send_response
from hatchway.api.http.bodies import read_fields, read_object
from hatchway.api.http.problems import MethodNotAllowed, MisdirectedRequest, problem_response
from hatchway.api.http.request import Response, json_response
from hatchway.api.testing.engine_under_test import FIRST_KEY, EngineUnderTest
from hatchway.api.testing.faults import Faults, Seconds
from hatchway.api.testing.people import Session
from hatchway.api.testing.simulated_platform import ExitCode, InstanceScript
from hatchway.engine.base.errors import InvalidRequest, NotFound, Refusal

LONGEST_BODY = 65_536


class Nothing(msgspec.Struct, forbid_unknown_fields=True):
    """No field."""


class Advance(msgspec.Struct, forbid_unknown_fields=True):
    """Seconds that are to pass."""

    seconds: Seconds


class Speed(msgspec.Struct, forbid_unknown_fields=True):
    """Seconds of the engine's in one of the host's."""

    speed: Annotated[float, msgspec.Meta(ge=0, le=1_000_000)]


class NewPairing(msgspec.Struct, forbid_unknown_fields=True):
    """What `EngineUnderTest.pair` takes."""

    permissions: list[str] | None = None
    lifetime: str | None = None
    answer: Literal["approve", "reject", "late"] | None = "approve"


class NewKey(msgspec.Struct, forbid_unknown_fields=True):
    """What `EngineUnderTest.key` takes."""

    permissions: list[str] | None = None
    name: str | None = None


class OneKey(msgspec.Struct, forbid_unknown_fields=True):
    """A key, by name or identity."""

    name: str


class NewSessions(msgspec.Struct, forbid_unknown_fields=True):
    """What `EngineUnderTest.sign_in` takes, and how many there are to be."""

    key: str = FIRST_KEY
    lifetime: str | None = None
    renews: bool = False
    count: Annotated[int, msgspec.Meta(ge=1, le=10_000)] = 1


class OfKey(msgspec.Struct, forbid_unknown_fields=True):
    """A key, or all of them."""

    key: str | None = None


class NamedScript(InstanceScript, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What becomes of instances of a name, or of all others."""

    name: str | None = None


class EndOfInstance(msgspec.Struct, forbid_unknown_fields=True):
    """An instance that ends by itself now."""

    name: str
    exit_code: ExitCode = 0


Asked = Callable[[Any], Awaitable[Any]]


class ControlApp:
    """An ASGI app over one test engine."""

    def __init__(self, engine: EngineUnderTest, host: str) -> None:
        """`host` is this address, as it is dialled."""
        self._engine, self._host = engine, host
        self._posts: dict[str, tuple[type[msgspec.Struct], Asked]] = {
            "/clock/advance": (Advance, self._advance),
            "/clock/run": (Speed, self._run),
            "/pairings": (NewPairing, self._pair),
            "/keys": (NewKey, self._make_key),
            "/keys/unregister": (OneKey, self._unregister),
            "/sessions": (NewSessions, self._sign_in),
            "/sessions/revoke": (OfKey, self._revoke),
            "/instances": (NamedScript, self._script),
            "/instances/end": (EndOfInstance, self._end),
            "/faults": (Faults, self._set_faults),
            "/reset": (Nothing, self._reset),
        }
        self._gets: dict[str, Callable[[], Any]] = {
            "/clock": lambda: {"now": engine.now},
            "/faults": lambda: engine.faults.now,
            "/records": lambda: engine.records,
            "/promises": lambda: {"broken": engine.watchers.broken},
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await send_response(send, await self._respond(scope, receive))

    async def _respond(self, scope: Scope, receive: Receive) -> Response:
        try:
            headers = dict(scope["headers"])
            if headers.get(b"host", b"").decode("latin-1") != self._host:
                raise MisdirectedRequest(f"this is the control address of a test engine: dial it as {self._host}")
            path, method = scope["path"].rstrip("/"), scope["method"]
            if method == "GET" and path in self._gets:
                return json_response(self._gets[path]())
            if method != "POST" or path not in self._posts:
                raise self._nothing(path)
            kind, asked = self._posts[path]
            fields = read_fields(kind, read_object(headers.get(b"content-type"), await _body(receive) or b"{}"))
            return json_response(await asked(fields))
        except Refusal as refused:
            return problem_response(refused)

    def _nothing(self, path: str) -> Refusal:
        """Why a request is for nothing: its method, or its path."""
        allowed = [method for method, paths in (("GET", self._gets), ("POST", self._posts)) if path in paths]
        if allowed:
            return MethodNotAllowed(", ".join(allowed))
        return NotFound(f"POST one of {', '.join(self._posts)}, or GET one of {', '.join(self._gets)}")

    # What is asked

    async def _advance(self, asked: Advance) -> Any:
        await self._engine.advance(asked.seconds)
        return {"now": self._engine.now}

    async def _run(self, asked: Speed) -> Any:
        self._engine.run(asked.speed)
        return {"now": self._engine.now}

    async def _pair(self, asked: NewPairing) -> Any:
        return {"code": await self._engine.pair(asked.permissions, asked.lifetime, asked.answer)}

    async def _make_key(self, asked: NewKey) -> Any:
        key = await self._engine.key(asked.permissions, asked.name)
        return {"name": key.name, "identity": key.identity, "file": str(key.file)}

    async def _unregister(self, asked: OneKey) -> Any:
        await self._engine.unregister(asked.name)
        return {}

    async def _sign_in(self, asked: NewSessions) -> Any:
        made: list[Session] = []
        try:
            for _ in range(asked.count):
                made.append(await self._engine.sign_in(asked.lifetime, asked.key, renews=asked.renews))
        except Refusal:
            for session in made:  # nobody would ever get their tokens
                await self._engine.engine.sessions.end(session.token, "never_told")
            raise
        return {"sessions": made}

    async def _revoke(self, asked: OfKey) -> Any:
        return {"ended": await self._engine.revoke(asked.key)}

    async def _script(self, asked: NamedScript) -> Any:
        known = {name: getattr(asked, name) for name in InstanceScript.__struct_fields__}
        self._engine.set_script(asked.name, InstanceScript(**known))
        return {}

    async def _end(self, asked: EndOfInstance) -> Any:
        self._engine.end_instance(asked.name, asked.exit_code)
        return {}

    async def _set_faults(self, asked: Faults) -> Any:
        self._engine.set_faults(asked)
        return asked

    async def _reset(self, asked: Nothing) -> Any:
        await self._engine.reset()
        return {}


async def _body(receive: Receive) -> bytes:
    body: bytes = b""
    while True:
        message = await receive()
        body += message.get("body", b"")
        if message["type"] != "http.request" or not message.get("more_body"):
            return body
        if len(body) > LONGEST_BODY:
            raise InvalidRequest({"body": f"must be at most {LONGEST_BODY} bytes"})

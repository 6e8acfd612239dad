"""The operator's socket: commands of this host speak to the running engine over a Unix socket in its folder.

Who speaks. A command of the engine's own user, or of root: whoever else connects is hung up on. Both sides send JSON
objects, one a line.

In order. The command sends a request, whose `op` says what it wants, and the engine sends one line: `ok` and what was
asked for, or `error`. Then the engine hangs up. Two requests go on:
- `pair`: the engine sends `issued` with the code, and then an event for each thing that happens to the code, until the
  last one. The command sends `{"answer": "y"}` or another answer at any time.
- `hold_address`: the address counts as the engine's own for as long as the connection lasts. Further requests, `pair`
  among them, may be sent over it. The command sends `beat` every few seconds, and the engine answers each.

When one dies. Where the command has gone, its code is void and its address counts no longer; a lost network is noticed
by `SILENCE`. Where the engine has gone, the command sees the end of the connection.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Any

import structlog
import trio

from hatchway.api.host.added_addresses import AddedAddresses
from hatchway.api.host.operator_lines import Lines
from hatchway.api.server.unix_sockets import listen_private, may_operate
from hatchway.engine.base.errors import InvalidRequest, PairingExpired, Refusal
from hatchway.engine.base.permissions import FIVE, parse_permissions
from hatchway.engine.engine import Engine
from hatchway.engine.pairings.codes import LAST_EVENTS
from hatchway.engine.pairings.pairings import Issued, Terminal
from hatchway.engine.runtime.records import Origin
from hatchway.engine.settings import kinds

log = structlog.get_logger(__name__)

USES_AT_ONCE = 400
"""Keys in an answer: a hundred bytes each, and a line must not be longer than `operator_lines.LONGEST_LINE`."""

SILENCE = 20.0
"""Seconds without a line after which a client that holds an address counts as gone: of a lost network, or a machine
that sleeps, the engine sees no end of the connection. Such a client sends `beat` more often."""

LONGEST_ADDED = 8760 * 3600
"""Seconds for which an address may be added at most."""

OPERATOR = Origin("operator")

Status = Callable[[], dict[str, Any]]


class OperatorSocket:
    """Serves the operator's requests. `status` gives the server's part of `engine status`, `stop` ends the engine."""

    def __init__(
        self,
        engine: Engine,
        status: Status,
        stop: Callable[[], None],
        reload: Callable[[], Any],
        addresses: AddedAddresses,
    ) -> None:
        self._engine, self._status, self._stop, self._reload = engine, status, stop, reload
        self._addresses = addresses
        self._requests: dict[str, Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]] = {
            "status": self._tell_status,
            "stop": self._take_stop,
            "reload": self._take_reload,
            "keys_changed": self._take_keys,
            "key_uses": self._tell_key_uses,
            "head": self._tell_head,
            "address_add": self._add_address,
            "address_list": self._list_addresses,
            "address_remove": self._remove_address,
            "beat": self._take_beat,
        }

    async def serve(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Listen until cancelled. The path is removed at the end, and before the start where an engine left it: the
        lock of the folder says that no other engine uses it."""
        path = self._engine.home / "operator.sock"
        path.unlink(missing_ok=True)
        listener = listen_private(path)
        try:
            with listener:
                task_status.started()
                await trio.serve_listeners(self._serve_command, [trio.SocketListener(listener)])
        finally:
            path.unlink(missing_ok=True)

    async def _serve_command(self, stream: trio.SocketStream) -> None:
        if may_operate(stream.socket):
            await self.talk(stream)

    async def talk(self, stream: trio.abc.Stream) -> None:
        """Answer one command. An error in here ends its connection, and never the engine."""
        try:
            await self._talk(Lines(stream))
        except* (trio.BrokenResourceError, trio.ClosedResourceError):
            pass  # the command has ended
        except* Exception:
            log.exception("operator_request_failed")

    async def _talk(self, lines: Lines) -> None:
        try:
            request = await lines.read()
            if request is not None:
                await self._answer(lines, request)
        except* Refusal as refusals:
            await lines.write(_error(_first(refusals)))

    async def _answer(self, lines: Lines, request: dict[str, Any]) -> None:
        op = request.get("op")
        if op == "pair":
            await self._pair(lines, request)
        elif op == "hold_address":
            await self._hold_address(lines, request)
        elif isinstance(op, str) and op in self._requests:
            await lines.write({"ok": True} | await self._requests[op](request))
        else:
            raise InvalidRequest({"op": f"must be one of pair, hold_address, {', '.join(self._requests)}"})

    async def _tell_status(self, request: dict[str, Any]) -> dict[str, Any]:
        return self._engine.status() | self._status()

    async def _tell_head(self, request: dict[str, Any]) -> dict[str, Any]:
        return {"head": self._engine.journal.seal("asked")}

    async def _take_stop(self, request: dict[str, Any]) -> dict[str, Any]:
        self._stop()
        return {}

    async def _take_reload(self, request: dict[str, Any]) -> dict[str, Any]:
        waiting = self._reload()
        return {"restart_needed_for": list(await waiting if isinstance(waiting, Awaitable) else waiting)}

    async def _take_keys(self, request: dict[str, Any]) -> dict[str, Any]:
        """A command has changed authorized_keys: end the sessions of the keys that it took out, and record both."""
        removed, added = _identities(request, "removed"), _identities(request, "added")
        await self._engine.key_watch.follow()
        ended = await self._engine.orphans.end_of(removed, OPERATOR)
        await self._engine.key_uses.forget(removed)
        await self._engine.key_uses.register(added)
        self._engine.key_watch.tell_changes(OPERATOR, removed | added)
        return {"sessions_ended": ended}

    async def _tell_key_uses(self, request: dict[str, Any]) -> dict[str, Any]:
        """Registered and last used, of the keys whose identities come after `after`; `next` where there are more."""
        uses = await self._engine.key_uses.all()
        names = sorted(name for name in uses if name > str(request.get("after", "")))
        told = {name: (uses[name].registered_at, uses[name].used_at) for name in names[:USES_AT_ONCE]}
        return {"uses": told} | ({"next": names[USES_AT_ONCE - 1]} if len(names) > USES_AT_ONCE else {})

    async def _hold_address(self, lines: Lines, request: dict[str, Any]) -> None:
        """Have the address count until the connection ends. Further requests may come over it."""
        address = _address(request)
        lines.silence = SILENCE
        async with self._addresses.held(address):
            self._engine.records.notice("engine", self._engine.identity, "address_held", address, OPERATOR)
            await lines.write({"ok": True, "address": address})
            while (further := await lines.read()) is not None:
                if "answer" in further:
                    continue  # an answer for a code that has ended: the command had not read of the end yet
                try:
                    await self._answer(lines, further)
                except* Refusal as refusals:
                    await lines.write(_error(_first(refusals)))

    async def _add_address(self, request: dict[str, Any]) -> dict[str, Any]:
        address, seconds = _address(request), request.get("seconds")
        if seconds is not None and (type(seconds) is not int or not 1 <= seconds <= LONGEST_ADDED):
            raise InvalidRequest({"seconds": f"must be a whole number from 1 to {LONGEST_ADDED}, or left out"})
        await self._addresses.add(address, seconds)
        self._engine.records.notice("engine", self._engine.identity, "address_added", address, OPERATOR)
        return {"address": address}

    async def _list_addresses(self, request: dict[str, Any]) -> dict[str, Any]:
        return {"addresses": self._addresses.listed()}

    async def _remove_address(self, request: dict[str, Any]) -> dict[str, Any]:
        address = _address(request)
        await self._addresses.remove(address)
        self._engine.records.notice("engine", self._engine.identity, "address_removed", address, OPERATOR)
        return {"address": address}

    async def _take_beat(self, request: dict[str, Any]) -> dict[str, Any]:
        """Answer a `beat`: both ends are still there."""
        return {"event": "beat"}

    async def _pair(self, lines: Lines, request: dict[str, Any]) -> None:
        granted = _permissions(request.get("permissions"))
        lifetime = request.get("lifetime")
        if type(lifetime) is not int or not 60 <= lifetime <= 86_400:
            raise InvalidRequest({"lifetime": "must be a number of seconds from 60 to 86400"})
        send, receive = trio.open_memory_channel[dict[str, Any]](64)

        def terminal(event: str, **details: Any) -> None:
            send.send_nowait({"event": event, **details})

        issued = await self._engine.pairings.issue(granted, lifetime, terminal, OPERATOR)
        try:
            await lines.write(self._issued(issued, granted, lifetime))
            async with trio.open_nursery() as nursery:
                nursery.start_soon(partial(self._take_answers, lines, issued, terminal, nursery.cancel_scope))
                await _tell(lines, receive)
                nursery.cancel_scope.cancel()
        finally:
            # Whatever ended the command (Ctrl-C, a lost terminal, kill -9) voids the code.
            with trio.CancelScope(shield=True):
                await self._engine.pairings.withdraw(issued.id, OPERATOR)

    def _issued(self, issued: Issued, granted: tuple[str, ...], lifetime: int) -> dict[str, Any]:
        longest = self._engine.settings.session_max_age.pairing
        return {
            "event": "issued",
            "code": issued.code,
            "permissions": granted,
            "lifetime": min(lifetime, longest),
            "expires_in": issued.expires_in,
            "console": self._status().get("url"),
            "session_max_age": longest,
        }

    async def _take_answers(self, lines: Lines, issued: Issued, terminal: Terminal, scope: trio.CancelScope) -> None:
        while (answer := await lines.read()) is not None:
            if answer.get("op") == "beat":
                terminal("beat")  # written by `_tell`, as events are: two tasks must not write at once
                continue
            if "op" in answer:  # the next request: the command has read of the code's end, or given the code up
                lines.put_back(answer)
                break
            with suppress(PairingExpired):  # the terminal has been told already how the code ended
                await self._engine.pairings.answer(issued.id, answer.get("answer") == "y", OPERATOR)
        scope.cancel()


def _error(refused: Refusal) -> dict[str, Any]:
    return {"error": {"code": refused.code, "detail": refused.detail}}


def _first(refusals: BaseExceptionGroup[Refusal]) -> Refusal:
    first: BaseException = refusals
    while isinstance(first, BaseExceptionGroup):
        first = first.exceptions[0]
    assert isinstance(first, Refusal)
    return first


async def _tell(lines: Lines, receive: trio.MemoryReceiveChannel[dict[str, Any]]) -> None:
    async for event in receive:
        await lines.write(event)
        if event["event"] in LAST_EVENTS:
            return


def _identities(request: dict[str, Any], field: str) -> set[str]:
    given = request.get(field) or []
    if not isinstance(given, list) or not all(isinstance(name, str) for name in given):
        raise InvalidRequest({field: "must be a list of key identities"})
    return set(given)


def _address(request: dict[str, Any]) -> str:
    try:
        return kinds.address(request.get("address"))
    except ValueError as fault:
        raise InvalidRequest({"address": str(fault)}) from None


def _permissions(given: object) -> tuple[str, ...]:
    if given is None:
        return FIVE
    if not isinstance(given, list) or not all(isinstance(name, str) for name in given):
        raise InvalidRequest({"permissions": "must be a list of names"})
    return parse_permissions(",".join(given))

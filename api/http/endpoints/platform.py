"""Container instances of the platform: start, list, show, stop, log (section 4.5)."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import aclosing
from heapq import nsmallest
from operator import attrgetter
from typing import Any
from urllib.parse import parse_qsl

import structlog

from hatchway.api.http.endpoint import Invocation
from hatchway.api.http.pages import read_page
from hatchway.api.http.problems import problem_response
from hatchway.api.http.request import BrokenOff, Headers, Response, json_response
from hatchway.engine.base.errors import InvalidRequest, Refusal
from hatchway.engine.instances.all_instances import InstanceView
from hatchway.engine.instances.protocol import StartFailed, Stream
from hatchway.engine.runtime import Actor

log = structlog.get_logger(__name__)

_LOG_HEADERS: Headers = (
    (b"content-type", b"text/plain; charset=utf-8"),
    (b"cache-control", b"no-store, no-transform"),
    (b"x-accel-buffering", b"no"),
)


async def start_instance(invocation: Invocation) -> Response:
    """Start an instance; the answer is the three items of section 2.7, or a problem with the runtime's status item."""
    try:
        actor = await invocation.engine.instances.start(invocation.fields, invocation.origin)
    except StartFailed as failed:
        items = [_status(failed.exit_code, failed.refusal.detail)]
        return problem_response(failed.refusal, items=items)
    if actor.facts.started is None:
        return _still_queued(actor, invocation.engine.instances.progress(actor))
    entry = actor.facts.started.entry
    shown = {name: getattr(entry, name) for name in ("img", "instance", "ip", "log_err_path", "log_out_path", "pid")}
    items = [
        _status(0, "instance started"),
        {"kind": "entity", "payload": entry.instance},
        {"kind": "entity", "payload": shown},
    ]
    return json_response(items, 201)


def _still_queued(actor: Actor, progress: str | None) -> Response:
    """202 with the same three items, for an instance without a process yet. Its own endpoint tells what becomes of
    it."""
    request = actor.facts.request
    nowhere = {"ip": "", "log_err_path": "", "log_out_path": "", "pid": 0}
    items = [
        _status(0, f"job {actor.facts.job}: {progress or actor.state}"),
        {"kind": "entity", "payload": actor.id},
        {"kind": "entity", "payload": {"img": request.image.name, "instance": actor.id, **nowhere}},
    ]
    return json_response(items, 202)


def _status(code: int, message: str) -> dict[str, Any]:
    return {"kind": "status", "payload": {"code": code, "message": message}}


async def list_instances(invocation: Invocation) -> Response:
    """The instances of this engine, and of all others of its fleet, live or ended lately; and which of Slurm's fields a
    start may have here. In pages, by name."""
    page, engine = read_page(invocation.request.query), invocation.engine
    behind = [seen for seen in await engine.all_instances.all() if seen.identity > page.after]
    found, more = page.take(nsmallest(page.limit + 1, behind, key=attrgetter("identity")))
    told = {"instances": [_described(seen) for seen in found], "may_ask": engine.instances.may_ask}
    return json_response(told | ({"next": found[-1].identity} if more else {}))


async def show_instance(invocation: Invocation) -> Response:
    """One instance: its state, what was asked, what the runtime says, its command's exit code."""
    return json_response(_described(await invocation.engine.all_instances.find(invocation.params["identity"])))


async def stop_instance(invocation: Invocation) -> Response:
    """Stop an instance, and wait until it has ended; 503 where Slurm is away: it ends once that is back."""
    return json_response(
        _described(await invocation.engine.all_instances.stop(invocation.params["identity"], invocation.origin))
    )


async def read_log(invocation: Invocation) -> Response:
    """What the instance wrote, to its end or, followed, as it comes."""
    stream, follow = _log_query(invocation.request.query)

    def goes_on() -> bool:
        return not invocation.engine.stopping.is_set() and invocation.still_allows("RUNTIME:READ")

    name = invocation.params["identity"]
    pieces = await invocation.engine.all_instances.read(name, stream, goes_on if follow else None)
    return Response(200, b"", _LOG_HEADERS, _whole_or_broken(name, pieces, goes_on if follow else None))


async def _whole_or_broken(
    name: str, pieces: AsyncGenerator[bytes, None], goes_on: Callable[[], bool] | None
) -> AsyncIterator[bytes]:
    """The pieces of a log. The response is broken off where those of another host stop coming, or where it may not go
    on: nobody is to think that the instance has ended."""
    async with aclosing(pieces):
        try:
            async for piece in pieces:
                yield piece
        except Refusal as refused:
            log.warning("log_broke_off", instance=name, why=refused.detail)
            raise BrokenOff from None
    if goes_on is not None and not goes_on():
        raise BrokenOff


def _log_query(query: bytes) -> tuple[Stream, bool]:
    values = dict(parse_qsl(query.decode("latin-1"), keep_blank_values=True))
    stream, follow = values.pop("stream", "out"), values.pop("follow", "false")
    errors = {name[:64]: "is unknown" for name in values}
    if stream not in ("out", "err"):
        errors["stream"] = "must be out or err"
    if follow not in ("true", "false"):
        errors["follow"] = "must be true or false"
    if errors:
        raise InvalidRequest(errors)
    return "err" if stream == "err" else "out", follow == "true"


def _described(seen: InstanceView) -> Mapping[str, Any]:
    facts, request = seen.facts, seen.facts.request
    entry = facts.started.entry if facts.started else None
    return {
        "identity": seen.identity,
        "state": seen.state,
        "host": seen.host,
        "host_answers": seen.answers,
        "progress": seen.progress,
        "owner": facts.owner,
        "image": request.image.name,
        "command": request.command,
        "env": [variable.partition("=")[0] for variable in request.env],
        "volume": [f"{v.source}:{v.destination}:{'rw' if v.writable else 'ro'}" for v in request.volumes],
        "cpu": None if request.cpu is None else f"{request.cpu}m",
        "memory": None if request.memory is None else str(request.memory),
        "gpu": None if request.gpu is None else str(request.gpu),
        "fakeroot": request.fakeroot,
        "partition": request.partition,
        "account": request.account,
        "time_limit": request.time_limit,
        "job": facts.job,
        "node": facts.started.node or None if facts.started else None,
        "requested_at": int(facts.requested_at),
        "started_at": None if facts.started_at is None else int(facts.started_at),
        "ended_at": None if facts.ended_at is None else int(facts.ended_at),
        "exit_code": facts.exit_code,
        "failure": facts.failure,
        "img": entry.img if entry else None,
        "ip": entry.ip if entry else None,
        "pid": entry.pid if entry else None,
        "log_out_path": entry.log_out_path if entry else None,
        "log_err_path": entry.log_err_path if entry else None,
    }

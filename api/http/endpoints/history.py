"""`GET /api/events/history/`: the records that are kept, in pages, and how things stood before each page."""

from __future__ import annotations

import re
from collections.abc import Mapping
from urllib.parse import parse_qsl

import msgspec
import trio

from hatchway.api.http.endpoint import Invocation
from hatchway.api.http.request import Headers, Response, json_response
from hatchway.engine.base.errors import InvalidRequest
from hatchway.engine.journal.history import MOST, Question, page
from hatchway.engine.journal.overview import MOST_POINTS

_TEXTS = ("actor", "identity", "address", "chart", "event")
_LONGEST = 256
_MOMENT = re.compile(r"(0|[1-9][0-9]{0,17})(\.[0-9]{1,32})?([eE][+-]?[0-9]{1,3})?")
_WHOLE = re.compile(r"0|[1-9][0-9]{0,17}")
LATEST = 1e11
"""Epoch seconds: the year 5138."""

_KINDS = ("transition", "refusal", "notice")


async def history(invocation: Invocation) -> Response:
    """Records, oldest first: those that fit all that is asked, after a number or from a moment on."""
    given = _given(invocation, (*_TEXTS, "kind", "since", "until", "after", "limit", "states"))
    question = _question(given)
    after, limit = _number(given, "after", 0, 10**18 - 1), _number(given, "limit", 1, MOST) or 200
    engine = invocation.engine
    now, last_seq = engine.metrics.counts(), engine.journal.last_seq
    found = await trio.to_thread.run_sync(page, engine.journal.folder, question, after, limit)
    body = b'{"records":[%b],"next":%b' % (
        b",".join(line.data for line in found.lines),
        b"null" if found.next is None else b"%d" % found.next,
    )
    if given.get("states") == "true":
        seq = found.lines[0].seq if found.lines else last_seq + 1
        before = engine.overview.states_before
        async with engine.overview_lock:
            states = await trio.to_thread.run_sync(before, seq, now, last_seq)
        body += b',"states":' + msgspec.json.encode(_by_chart(states))
    return Response(200, body + b"}", _JSON)


async def overview(invocation: Invocation) -> Response:
    """Sign-ins, refusals and live sessions over a stretch of time, for a plot."""
    given = _given(invocation, ("since", "until", "points"))
    engine = invocation.engine
    now = engine.clock.wall()
    until = _moment(given, "until")
    until = now if until is None else until
    since = _moment(given, "since")
    since = until - 3600 if since is None else since
    until = max(since, until)
    points, live = _number(given, "points", 1, MOST_POINTS) or 120, engine.metrics.counts()["session", "active"]
    async with engine.overview_lock:
        plot = await trio.to_thread.run_sync(engine.overview.plot, since, until, points, live)
    return json_response(msgspec.to_builtins(plot))


_JSON: Headers = json_response(None).headers


def _given(invocation: Invocation, known: tuple[str, ...]) -> dict[str, str]:
    given: dict[str, str] = {}
    try:
        pairs = parse_qsl(invocation.request.query.decode("ascii"), keep_blank_values=True, errors="strict")
    except (UnicodeDecodeError, ValueError):
        raise InvalidRequest({"query": "must be percent-encoded UTF-8"}) from None
    for name, value in pairs:
        if name not in known:
            raise InvalidRequest({name[:64]: f"is not asked for here: {', '.join(known)}"})
        if name in given:
            raise InvalidRequest({name: "must be there once"})
        given[name] = value
    return given


def _question(given: Mapping[str, str]) -> Question:
    for name in _TEXTS:
        if not 0 < len(given.get(name, "x")) <= _LONGEST:
            raise InvalidRequest({name: f"must have 1 to {_LONGEST} characters"})
    if given.get("kind", "notice") not in _KINDS:
        raise InvalidRequest({"kind": f"must be one of {', '.join(_KINDS)}"})
    if given.get("states", "true") not in ("true", "false"):
        raise InvalidRequest({"states": "must be true or false"})
    texts = {
        name: given[name].replace(" ", "+") if name == "identity" else given[name] for name in _TEXTS if name in given
    }
    return Question(**texts, kind=given.get("kind"), since=_moment(given, "since"), until=_moment(given, "until"))


def _moment(given: Mapping[str, str], name: str) -> float | None:
    text = given.get(name)
    if text is None:
        return None
    if _MOMENT.fullmatch(text) is None or float(text) > LATEST:
        raise InvalidRequest({name: "must be seconds since the epoch"})
    return float(text)


def _number(given: Mapping[str, str], name: str, least: int, most: int) -> int | None:
    text = given.get(name)
    if text is None:
        return None
    if _WHOLE.fullmatch(text) is None or not least <= int(text) <= most:
        raise InvalidRequest({name: f"must be a whole number from {least} to {most}"})
    return int(text)


def _by_chart(states: Mapping[tuple[str, str], int]) -> dict[str, dict[str, int]]:
    told: dict[str, dict[str, int]] = {}
    for (chart, state), count in sorted(states.items()):
        if state and state != "none":
            told.setdefault(chart, {})[state] = count
    return told

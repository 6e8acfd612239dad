"""Columns of the table: parameters that endpoints take, and responses other than one JSON object."""

from __future__ import annotations

from hatchway.api.http.schema.parts import HTML, TEXT, Media, Param
from hatchway.api.http.schema.shapes import (
    MOST_ROWS,
    AcceptedShape,
    GapShape,
    NameShape,
    ProblemShape,
    RunningShape,
    SessionShape,
    StatusShape,
)
from hatchway.engine.runtime.records import Record
from hatchway.statecharts.catalogue import CHARTS

NOTHING = {204: None}
PAIRED = {
    200: (
        Media(
            "application/x-ndjson",
            "Lines as they come: first that the code was accepted, blank lines while the operator decides, last the"
            " session or a problem.",
            (AcceptedShape, SessionShape, ProblemShape),
        ),
        SessionShape,
    )
}
STARTED = {201: (StatusShape, NameShape, RunningShape), 202: (StatusShape, NameShape, RunningShape)}
LOG = {200: Media(TEXT, "What the instance wrote; followed, it comes as it is written.")}
EVENTS = {
    200: Media(
        "text/event-stream", "Server-sent events: records, and `gap` where some are lacking.", (Record, GapShape)
    )
}
METRICS = {200: Media(TEXT, "Prometheus's text format 0.0.4.")}
PAGE = {200: Media(HTML, "The console's page."), 304: None}
ASSET = {
    200: (
        Media("text/javascript", "A module of the console."),
        Media("text/css", "A style of the console."),
        Media("image/svg+xml", "A picture of the console."),
        Media(HTML, "The console's page."),
    ),
    304: None,
}

IDENTITY = (
    Param(
        "identity",
        "query",
        {"type": "string", "pattern": "^[A-Za-z0-9:+/=_-]{1,128}$"},
        "The key that will sign; without it, any registered key may. A `+` in it is best sent as `%2B`.",
    ),
)
LOG_QUERY = (
    Param("stream", "query", {"enum": ["out", "err"], "default": "out"}, "Which of its outputs."),
    Param("follow", "query", {"enum": ["true", "false"], "default": "false"}, "Whether to go on as it comes."),
)
PAGE_QUERY = (
    Param(
        "limit",
        "query",
        {"type": "integer", "minimum": 1, "maximum": MOST_ROWS, "default": MOST_ROWS},
        "How many at most.",
    ),
    Param(
        "after",
        "query",
        {"type": "string", "pattern": "^[A-Za-z0-9_.-]{0,128}$"},
        "The `next` of the page before; without it, the first page.",
    ),
)
INSTANCE_NAME = Param(
    "identity", "path", {"type": "string", "pattern": "^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$"}, "The instance's name."
)
CHART_NAME = Param("name", "path", {"enum": list(CHARTS)}, "Which chart.")
FILE_NAME = Param("file", "path", {"type": "string", "minLength": 1, "examples": ["main.js"]}, "A file of the console.")
SESSION_ID = Param("session", "path", {"type": "string", "minLength": 1}, "The `session` of a list or an inspection.")
LAST_EVENT_ID = (
    Param(
        "Last-Event-ID",
        "header",
        {"type": "integer", "minimum": 0, "maximum": 10**18 - 1},
        "The last event that was seen: the stream goes on behind it. Without it, from now on.",
    ),
)
_MOMENT = {"type": "number", "minimum": 0, "maximum": 10**11}
_TEXT = {"type": "string", "minLength": 1, "maxLength": 256}
_SPAN = (
    Param("since", "query", _MOMENT, "Only from then on: seconds since the epoch."),
    Param("until", "query", _MOMENT, "Only up to then: seconds since the epoch."),
)
HISTORY_QUERY = (
    Param("after", "query", {"type": "integer", "minimum": 0, "maximum": 10**18 - 1}, "The `next` of the page before."),
    Param("limit", "query", {"type": "integer", "minimum": 1, "maximum": 1000, "default": 200}, "How many at most."),
    *_SPAN,
    *(Param(name, "query", _TEXT, f"Only records of this {name}.") for name in ("actor", "address", "chart", "event")),
    Param("identity", "query", _TEXT, "Only records of this identity. A `+` in it is best sent as `%2B`."),
    Param("kind", "query", {"enum": ["transition", "refusal", "notice"]}, "Only records of this kind."),
    Param("states", "query", {"enum": ["true", "false"], "default": "false"}, "Whether to tell how things stood."),
)
OVERVIEW_QUERY = (
    *_SPAN,
    Param("points", "query", {"type": "integer", "minimum": 1, "maximum": 500, "default": 120}, "Stretches at most."),
)

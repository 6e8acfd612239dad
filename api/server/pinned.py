"""What we take from Hypercorn 0.18 by name, and by the names of its parameters; checked before the server starts."""

from __future__ import annotations

import inspect
from importlib.metadata import version
from typing import Any

from hypercorn.config import Config
from hypercorn.protocol.h2 import H2Protocol, StreamBuffer
from hypercorn.protocol.h11 import H11Protocol
from hypercorn.protocol.http_stream import HTTPStream
from hypercorn.trio.lifespan import Lifespan
from hypercorn.trio.task_group import TaskGroup
from hypercorn.trio.tcp_server import TCPServer
from hypercorn.trio.worker_context import EventWrapper, WorkerContext

from hatchway.engine.base.errors import EngineUnavailable

SERIES = "0.18."

PARTS = "app config context task_group connection_state ssl client server send"

NAMES: dict[Any, dict[str, str]] = {
    Config: {"response_headers": "protocol"},
    H11Protocol: {
        "__init__": PARTS,
        "handle": "event",
        "stream_send": "event",
        "_maybe_recycle": "",
        "_close_stream": "",
    },
    H2Protocol: {
        "__init__": PARTS,
        "handle": "event",
        "stream_send": "event",
        "_handle_events": "events",
        "_create_stream": "request",
        "_send_data": "stream_id",
        "_flush": "",
    },
    HTTPStream: {"handle": "event", "app_send": "message", "_send_error_response": "status_code"},
    Lifespan: {"__init__": "app config state", "handle_lifespan": "task_status", "wait_for_startup": ""},
    StreamBuffer: {"close": "", "push": "data", "pop": "max_length"},
    TaskGroup: {"spawn_app": "app config scope send", "spawn": "func args"},
    TCPServer: {"__init__": "app config context state stream", "run": "", "protocol_send": "event"},
    EventWrapper: {"clear": "", "wait": "", "set": "", "is_set": ""},
    WorkerContext: {"__init__": "max_requests"},
}


def check_hypercorn() -> None:
    """Refuse to serve on a Hypercorn that isn't the one our subclasses were written for."""
    found = version("hypercorn")
    if not found.startswith(SERIES):
        raise EngineUnavailable(f"this engine needs hypercorn {SERIES}*, found {found}: reinstall it with its pins")
    for part, methods in NAMES.items():
        for name, parameters in methods.items():
            method = getattr(part, name, None)
            known = [] if method is None else list(inspect.signature(method).parameters)[1:]
            if method is None or known != parameters.split():
                raise EngineUnavailable(f"hypercorn {found} has no {part.__name__}.{name}({parameters}): reinstall it")

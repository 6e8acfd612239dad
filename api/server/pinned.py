"""All that is used of libraries and that they don't promise: names without documentation, or with an underscore.

It is Hypercorn's HTTP/2 alone, and what we set on the connection of h2 in it. All else is used by its documented
interface; a test compares this list with the code. `check_hypercorn` is run before a server speaks TLS.
"""

from __future__ import annotations

import inspect
from importlib.metadata import version
from typing import Any

from h2.connection import H2Connection
from hypercorn.config import Config
from hypercorn.events import Closed, Event, RawData, Updated
from hypercorn.protocol import events
from hypercorn.protocol.h2 import BufferCompleteError, H2Protocol

from hatchway.engine.base.errors import EngineUnavailable

SERIES = "0.18."

PARAMETERS: dict[Any, dict[str, str]] = {
    BufferCompleteError: {},
    Closed: {"__init__": ""},
    Event: {},
    RawData: {"__init__": "data address"},
    Updated: {"__init__": "idle"},
    events.Body: {"__init__": "stream_id data"},
    events.EndBody: {"__init__": "stream_id"},
    events.Event: {"__init__": "stream_id"},
    events.Response: {"__init__": "stream_id headers status_code"},
    events.StreamClosed: {"__init__": "stream_id"},
    Config: {"response_headers": "protocol"},
    H2Protocol: {
        "__init__": "app config context task_group connection_state ssl client server send",
        "_create_stream": "request",
        "_flush": "",
        "_handle_events": "events",
        "_send_data": "stream_id",
        "handle": "event",
        "initiate": "headers settings",
        "stream_send": "event",
    },
}
"""Classes and those of their methods that are called or overridden, with the names of their parameters."""

ATTRIBUTES: dict[Any, set[str]] = {
    H2Protocol: {"closed", "config", "connection", "idle", "priority", "stream_buffers", "streams"},
    H2Connection: {"encoder", "local_settings"},
}
"""Attributes of their objects that are read or set."""


def check_hypercorn() -> None:
    """Refuse to serve on a Hypercorn that isn't the one our HTTP/2 was written for. Raises EngineUnavailable."""
    found = version("hypercorn")
    if not found.startswith(SERIES):
        raise EngineUnavailable(f"this engine needs hypercorn {SERIES}*, found {found}: reinstall it with its pins")
    for part, methods in PARAMETERS.items():
        for name, parameters in methods.items():
            method = getattr(part, name, None)
            known = [] if method is None else list(inspect.signature(method).parameters)[1:]
            if method is None or known != parameters.split():
                raise EngineUnavailable(f"hypercorn {found} has no {part.__name__}.{name}({parameters}): reinstall it")

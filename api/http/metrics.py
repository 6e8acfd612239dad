"""`/metrics` for Prometheus: open on this host, elsewhere for MASTER or where the settings say so."""

from __future__ import annotations

import trio

from api.http.call import NO_STORE, Answer
from api.http.door import Visit, bearer
from engine.holders import require
from engine.trust.permissions import MASTER

_TEXT = (b"content-type", b"text/plain; version=0.0.4; charset=utf-8")


async def metrics(visit: Visit) -> Answer:
    """Everything measured, in Prometheus's text format. Raises TokenRefused, PermissionDenied."""
    here = visit.call.from_this_host and not visit.call.passed_on
    if not (here or visit.engine.settings.metrics_open):
        require(visit.engine.sessions.holder(bearer(visit.call)), MASTER)
    # Some 10 ms with the interpreter's lock taken and given: not in the way of sign-ins.
    text = await trio.to_thread.run_sync(visit.engine.metrics.text)
    return Answer(200, text, (_TEXT, NO_STORE))

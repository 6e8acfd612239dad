"""`/metrics` for Prometheus: open on this host, elsewhere for MASTER or where the settings say so."""

from __future__ import annotations

import trio

from hatchway.api.http.endpoint import Invocation
from hatchway.api.http.request import NO_STORE, Response
from hatchway.engine.access.principal import require
from hatchway.engine.base.permissions import MASTER

_TEXT = (b"content-type", b"text/plain; version=0.0.4; charset=utf-8")


async def metrics(invocation: Invocation) -> Response:
    """Everything measured, in Prometheus's text format. Raises TokenRefused, PermissionDenied."""
    here = invocation.request.from_this_host and not invocation.request.passed_on
    if not (here or invocation.engine.settings.metrics_open):
        await invocation.engine.keys.settle()
        require(invocation.authenticate(), MASTER)
    invocation.engine.measure_readiness()
    # It takes some 10 ms, so it runs in a thread: requests are answered meanwhile.
    text = await trio.to_thread.run_sync(invocation.engine.metrics.text)
    return Response(200, text, (_TEXT, NO_STORE))

"""`/metrics` for Prometheus: open on this host, elsewhere for MASTER or where the settings say so."""

from __future__ import annotations

import ipaddress

import trio

from api.http.call import NO_STORE, Answer, Call
from api.http.door import Visit, bearer
from engine.holders import require
from engine.trust.permissions import MASTER

_TEXT = (b"content-type", b"text/plain; version=0.0.4; charset=utf-8")

_FORWARDED = frozenset({b"forwarded", b"x-forwarded-for", b"x-real-ip", b"via"})


async def metrics(visit: Visit) -> Answer:
    """Everything measured, in Prometheus's text format. Raises TokenRefused, PermissionDenied."""
    if not (visit.engine.settings.metrics_open or is_local(visit.call)):
        require(visit.engine.sessions.holder(bearer(visit.call)), MASTER)
    # Some 10 ms with the interpreter's lock taken and given: not in the way of sign-ins.
    text = await trio.to_thread.run_sync(visit.engine.metrics.text)
    return Answer(200, text, (_TEXT, NO_STORE))


def is_local(call: Call) -> bool:
    """Whether somebody on this host asks: a proxy that runs here speaks for the whole world."""
    try:
        local = ipaddress.ip_address(call.peer.partition("%")[0]).is_loopback
    except ValueError:
        return False
    return local and not any(name in _FORWARDED for name, _ in call.headers)

"""Open doors for programs: is it alive, is it ready, which key signs its tokens."""

from __future__ import annotations

from api.http.call import Answer, json_answer
from api.http.door import Visit
from engine.errors import StoreUnavailable


def healthz(visit: Visit) -> Answer:
    """The process answers."""
    return json_answer({"status": "ok"})


def readyz(visit: Visit) -> Answer:
    """The engine takes calls, is not stopping, its database takes changes, and in a fleet the store does, and it
    knows what the others did. Over TLS it tells the certificate's fingerprint, which the console shows."""
    if visit.engine.stopping.is_set():
        raise StoreUnavailable("the engine is stopping", retry_after=5)
    visit.engine.own_store.check()
    if visit.engine.fleet is not None:
        visit.engine.fleet.check_fresh()
        visit.engine.fleet.check_leased()
    return json_answer({"status": "ready", "issuer": visit.engine.identity, "certificate": visit.engine.certificate})


def jwks(visit: Visit) -> Answer:
    """The public keys of the session tokens (RFC 7517), for whoever verifies them without asking."""
    return json_answer(visit.engine.tokens.jwks())

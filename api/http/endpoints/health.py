"""Open endpoints for programs: is it alive, is it ready, which key signs its tokens."""

from __future__ import annotations

from hatchway.api.http.endpoint import Invocation
from hatchway.api.http.request import Response, json_response


def healthz(invocation: Invocation) -> Response:
    """The process answers."""
    return json_response({"status": "ok"})


def readyz(invocation: Invocation) -> Response:
    """The engine takes calls, is not stopping, can read its keys, its database takes changes, and in a fleet the store
    does, and it knows what the others did. Over TLS it tells the certificate's fingerprint, which the console shows."""
    engine = invocation.engine
    engine.check_ready()
    return json_response({"status": "ready", "issuer": engine.identity, "certificate": engine.certificate})


def jwks(invocation: Invocation) -> Response:
    """The public keys of the session tokens (RFC 7517), for whoever verifies them without asking."""
    return json_response(invocation.engine.tokens.jwks())

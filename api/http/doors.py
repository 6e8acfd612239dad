"""The table of doors. Quart mounts every row; the hot ones are also answered in front of it, from this same table."""

from __future__ import annotations

from api.http import asks, auth, charts, console, events, health, metrics, platform, sessions, shapes
from api.http.door import Door, NoFields
from api.http.openapi import describing
from engine.platform.request import InstanceFields

INSTANCE = "/api/platform/singularity/instance/"
SESSION = {200: shapes.Session}

# fmt: off
_DESCRIBED: tuple[Door, ...] = (
    Door("GET",    "/api/auth/challenge/",            auth.challenge,          "Request a challenge for a key", hot=True, asks=asks.IDENTITY, answers={200: shapes.Challenge}, refusals=("invalid_request",)),
    Door("POST",   "/api/auth/verify/",               auth.verify,             "Present the signed challenge, get a session", hot=True, body=auth.VerifyFields, answers=SESSION, refusals=("invalid_signature", "too_many_requests", "store_unavailable")),
    Door("GET",    "/api/auth/inspect/",              auth.inspect,            "Check whether a session is valid", "session", hot=True, answers={200: shapes.Inspection}),
    Door("POST",   "/api/auth/pair/request/",         auth.pair,               "Claim a pairing code and wait for the operator", held=True, body=auth.PairFields, answers=asks.PAIRED, refusals=("invalid_pairing_code", "pairing_expired_on_approval", "too_many_requests", "store_unavailable")),
    Door("POST",   "/api/auth/renew/",                auth.renew,              "Renew the session", "session", body=NoFields, answers=SESSION, refusals=("store_unavailable",)),
    Door("POST",   "/api/auth/logout/",               auth.logout,             "End the session", "session", body=NoFields, answers=asks.NOTHING, refusals=("store_unavailable",)),
    Door("GET",    "/api/auth/sessions/",             sessions.list_sessions,  "List live sessions", "session", asks=asks.PAGE_QUERY, answers={200: shapes.LiveSessions}, refusals=("invalid_request",)),
    Door("DELETE", "/api/auth/sessions/{session}/",   sessions.revoke_session, "Revoke a session", "session", asks=(asks.SESSION_ID,), answers=asks.NOTHING, refusals=("not_found", "store_unavailable")),
    Door("POST",   INSTANCE,                          platform.start_instance, "Start a container instance", "RUNTIME", module="runtime", body=InstanceFields, large=True, answers=asks.STARTED, refusals=("image_not_found", "instance_exists", "resources_unavailable", "runtime_unavailable", "too_many_instances", "store_unavailable")),
    Door("GET",    INSTANCE,                          platform.list_instances, "List instances", "RUNTIME:READ", module="runtime", asks=asks.PAGE_QUERY, answers={200: shapes.Instances}, refusals=("invalid_request", "store_unavailable")),
    Door("GET",    INSTANCE + "{identity}/",          platform.show_instance,  "Show an instance", "RUNTIME:READ", module="runtime", asks=(asks.INSTANCE_NAME,), answers={200: shapes.Instance}, refusals=("instance_not_found", "store_unavailable")),
    Door("DELETE", INSTANCE + "{identity}/",          platform.stop_instance,  "Stop an instance", "RUNTIME", module="runtime", asks=(asks.INSTANCE_NAME,), answers={200: shapes.Instance}, refusals=("instance_not_found", "runtime_unavailable", "host_unavailable", "store_unavailable")),
    Door("GET",    INSTANCE + "{identity}/log/",      platform.read_log,       "Read or follow an instance's log", "RUNTIME:READ", module="runtime", asks=(asks.INSTANCE_NAME, *asks.LOG_QUERY), answers=asks.LOG, refusals=("instance_not_found", "invalid_request", "too_many_requests", "host_unavailable", "store_unavailable")),
    Door("GET",    "/api/events/",                    events.events,           "Follow every transition", "MASTER", held=True, asks=asks.LAST_EVENT_ID, answers=asks.EVENTS, refusals=("invalid_request",)),
    Door("GET",    "/api/charts/{name}/",             charts.chart,            "A chart with its layout", "session", asks=(asks.CHART_NAME,), answers={200: shapes.Chart}, refusals=("not_found",)),
    Door("GET",    "/metrics",                        metrics.metrics,         "Measurements, for Prometheus", answers=asks.METRICS, refusals=("invalid_token", "permission_denied")),
    Door("GET",    "/",                               console.page,            "The browser console", answers=asks.PAGE),
    Door("GET",    "/console/{file}",                 console.asset,           "A script, style or picture of the console", asks=(asks.FILE_NAME,), answers=asks.ASSET, refusals=("not_found",)),
    Door("GET",    "/.well-known/jwks.json",          health.jwks,             "Public keys of the session tokens", hot=True, answers={200: shapes.Jwks}),
    Door("GET",    "/healthz",                        health.healthz,          "Liveness", hot=True, answers={200: shapes.Alive}),
    Door("GET",    "/readyz",                         health.readyz,           "Readiness", hot=True, answers={200: shapes.Ready}, refusals=("store_unavailable",)),
)
# fmt: on
DOORS: tuple[Door, ...] = (*_DESCRIBED, describing(_DESCRIBED))

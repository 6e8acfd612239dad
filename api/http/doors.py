"""The table of doors. Quart mounts every row; the hot ones are also answered in front of it, from this same table."""

from __future__ import annotations

from api.http import auth, charts, console, events, health, metrics, platform, sessions
from api.http.door import Door
from engine.platform.request import InstanceFields

INSTANCE = "/api/platform/singularity/instance/"
SESSION = {"token": str, "permissions": list[str], "expires_at": int}

# fmt: off
DOORS: tuple[Door, ...] = (
    Door("GET",    "/api/auth/challenge/",            auth.challenge,          "Request a challenge for a key", hot=True, refusals=("invalid_request",)),
    Door("POST",   "/api/auth/verify/",               auth.verify,             "Present the signed challenge, get a session", hot=True, body=auth.VerifyFields, answers={200: SESSION}, refusals=("invalid_signature", "too_many_requests", "store_unavailable")),
    Door("GET",    "/api/auth/inspect/",              auth.inspect,            "Check whether a session is valid", "session", hot=True),
    Door("POST",   "/api/auth/pair/request/",         auth.pair,               "Claim a pairing code and wait for the operator", body=auth.PairFields, refusals=("invalid_pairing_code", "pairing_expired_on_approval", "too_many_requests", "store_unavailable")),
    Door("POST",   "/api/auth/renew/",                auth.renew,              "Renew the session", "session", answers={200: SESSION}, refusals=("store_unavailable",)),
    Door("POST",   "/api/auth/logout/",               auth.logout,             "End the session", "session", refusals=("store_unavailable",)),
    Door("GET",    "/api/auth/sessions/",             sessions.list_sessions,  "List live sessions", "session"),
    Door("DELETE", "/api/auth/sessions/{session}/",   sessions.revoke_session, "Revoke a session", "session", refusals=("not_found", "store_unavailable")),
    Door("POST",   INSTANCE,                          platform.start_instance, "Start a container instance", "RUNTIME", module="runtime", body=InstanceFields, large=True, answers={201: platform.ITEMS}, refusals=("image_not_found", "instance_exists", "resources_unavailable", "runtime_unavailable", "too_many_instances", "store_unavailable")),
    Door("GET",    INSTANCE,                          platform.list_instances, "List instances", "RUNTIME:READ", module="runtime"),
    Door("GET",    INSTANCE + "{identity}/",          platform.show_instance,  "Show an instance", "RUNTIME:READ", module="runtime", refusals=("instance_not_found",)),
    Door("DELETE", INSTANCE + "{identity}/",          platform.stop_instance,  "Stop an instance", "RUNTIME", module="runtime", refusals=("instance_not_found", "store_unavailable")),
    Door("GET",    INSTANCE + "{identity}/log/",      platform.read_log,       "Read or follow an instance's log", "RUNTIME:READ", module="runtime", refusals=("instance_not_found", "invalid_request")),
    Door("GET",    "/api/events/",                    events.events,           "Follow every transition", "MASTER", refusals=("invalid_request",)),
    Door("GET",    "/api/charts/{name}/",             charts.chart,            "A chart with its layout", "session", refusals=("not_found",)),
    Door("GET",    "/metrics",                        metrics.metrics,         "Measurements, for Prometheus", refusals=("invalid_token", "permission_denied")),
    Door("GET",    "/",                               console.page,            "The browser console"),
    Door("GET",    "/console/{file}",                 console.asset,           "A script, style or picture of the console", refusals=("not_found",)),
    Door("GET",    "/.well-known/jwks.json",          health.jwks,             "Public keys of the session tokens"),
    Door("GET",    "/healthz",                        health.healthz,          "Liveness"),
    Door("GET",    "/readyz",                         health.readyz,           "Readiness", refusals=("store_unavailable",)),
)
# fmt: on

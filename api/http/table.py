"""The one table of endpoints. Each is a route of Quart's; the column `plain` says which are answered before Quart."""

from __future__ import annotations

from hatchway.api.http.endpoint import Endpoint, NoFields
from hatchway.api.http.endpoints import (
    auth,
    charts,
    console,
    events,
    health,
    history,
    keys,
    metrics,
    platform,
    sessions,
)
from hatchway.api.http.schema import asks, shapes
from hatchway.api.http.schema.openapi import describing
from hatchway.engine.instances.request import InstanceFields

INSTANCE = "/api/platform/singularity/instance/"
SESSION = {200: shapes.SessionShape}

# fmt: off
_DESCRIBED: tuple[Endpoint, ...] = (
    Endpoint("GET",    "/api/auth/challenge/",            auth.challenge,          "Request a challenge for a key", plain=True, asks=asks.IDENTITY, answers={200: shapes.ChallengeShape}, refusals=("invalid_request",)),
    Endpoint("POST",   "/api/auth/verify/",               auth.verify,             "Present the signed challenge, get a session", plain=True, body=auth.VerifyFields, answers=SESSION, refusals=("invalid_signature", "too_many_requests")),
    Endpoint("GET",    "/api/auth/inspect/",              auth.inspect,            "Check whether a session is valid", "session", plain=True, answers={200: shapes.InspectionShape}),
    Endpoint("POST",   "/api/auth/pair/request/",         auth.pair,               "Claim a pairing code and wait for the operator", held=True, body=auth.PairFields, answers=asks.PAIRED, refusals=("invalid_pairing_code", "pairing_expired_on_approval", "too_many_requests")),
    Endpoint("POST",   "/api/auth/renew/",                auth.renew,              "Renew the session", "session", body=NoFields, answers=SESSION),
    Endpoint("POST",   "/api/auth/logout/",               auth.logout,             "End the session", "session", body=NoFields, answers=asks.NOTHING),
    Endpoint("GET",    "/api/auth/sessions/",             sessions.list_sessions,  "List live sessions", "session", asks=asks.PAGE_QUERY, answers={200: shapes.LiveSessionsShape}, refusals=("invalid_request",)),
    Endpoint("DELETE", "/api/auth/sessions/{session}/",   sessions.revoke_session, "Revoke a session", "session", asks=(asks.SESSION_ID,), answers=asks.NOTHING, refusals=("not_found",)),
    Endpoint("GET",    "/api/auth/keys/",                 keys.list_keys,          "List authorized keys", "MASTER", asks=asks.PAGE_QUERY, answers={200: shapes.KeysShape}, refusals=("invalid_request",)),
    Endpoint("POST",   INSTANCE,                          platform.start_instance, "Start a container instance", "RUNTIME", module="runtime", event="instance.request", body=InstanceFields, large=True, answers=asks.STARTED, refusals=("image_not_found", "instance_exists", "resources_unavailable", "runtime_unavailable", "too_many_instances")),
    Endpoint("GET",    INSTANCE,                          platform.list_instances, "List instances", "RUNTIME:READ", module="runtime", asks=asks.PAGE_QUERY, answers={200: shapes.InstancesShape}, refusals=("invalid_request",)),
    Endpoint("GET",    INSTANCE + "{identity}/",          platform.show_instance,  "Show an instance", "RUNTIME:READ", module="runtime", asks=(asks.INSTANCE_NAME,), answers={200: shapes.InstanceShape}, refusals=("instance_not_found",)),
    Endpoint("DELETE", INSTANCE + "{identity}/",          platform.stop_instance,  "Stop an instance", "RUNTIME", module="runtime", event="instance.stop", asks=(asks.INSTANCE_NAME,), answers={200: shapes.InstanceShape}, refusals=("instance_not_found", "runtime_unavailable", "host_unavailable")),
    Endpoint("GET",    INSTANCE + "{identity}/log/",      platform.read_log,       "Read or follow an instance's log", "RUNTIME:READ", module="runtime", asks=(asks.INSTANCE_NAME, *asks.LOG_QUERY), answers=asks.LOG, refusals=("instance_not_found", "invalid_request", "too_many_requests", "host_unavailable")),
    Endpoint("GET",    "/api/events/",                    events.events,           "Follow every transition", "MASTER", held=True, asks=asks.LAST_EVENT_ID, answers=asks.EVENTS, refusals=("invalid_request",)),
    Endpoint("GET",    "/api/events/history/",            history.history,         "Read what happened, in pages", "MASTER", held=True, asks=asks.HISTORY_QUERY, answers={200: shapes.HistoryShape}, refusals=("invalid_request",)),
    Endpoint("GET",    "/api/events/overview/",           history.overview,        "Plot what happened over time", "MASTER", held=True, asks=asks.OVERVIEW_QUERY, answers={200: shapes.OverviewShape}, refusals=("invalid_request",)),
    Endpoint("GET",    "/api/charts/{name}/",             charts.chart,            "A chart with its layout", "session", asks=(asks.CHART_NAME,), answers={200: shapes.ChartShape}, refusals=("not_found",)),
    Endpoint("GET",    "/metrics",                        metrics.metrics,         "Measurements, for Prometheus", answers=asks.METRICS, refusals=("invalid_token", "permission_denied")),
    Endpoint("GET",    "/",                               console.page,            "The browser console", answers=asks.PAGE),
    Endpoint("GET",    "/console/{file}",                 console.asset,           "A script, style or picture of the console", asks=(asks.FILE_NAME,), answers=asks.ASSET, refusals=("not_found",)),
    Endpoint("GET",    "/.well-known/jwks.json",          health.jwks,             "Public keys of the session tokens", plain=True, answers={200: shapes.JwksShape}),
    Endpoint("GET",    "/healthz",                        health.healthz,          "Liveness", plain=True, answers={200: shapes.AliveShape}),
    Endpoint("GET",    "/readyz",                         health.readyz,           "Readiness", plain=True, answers={200: shapes.ReadyShape}),
)
# fmt: on
ENDPOINTS: tuple[Endpoint, ...] = (*_DESCRIBED, describing(_DESCRIBED))

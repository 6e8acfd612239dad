"""Records by HTTPS: as OpenTelemetry logs (OTLP/HTTP 1.x, JSON encoding), or one webhook each (Standard Webhooks)."""

from __future__ import annotations

import hmac
import re
import socket
import ssl
from base64 import b64encode
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from hashlib import sha256
from threading import Timer
from typing import Any
from urllib.parse import SplitResult, unquote, urlsplit

import httpcore
import msgspec
import structlog

from hatchway.api.ship.records import NotTaken, Parcel
from hatchway.engine.base import http_calls
from hatchway.engine.base.clock import Clock
from hatchway.engine.base.version import installed_version
from hatchway.engine.settings.kinds import wire_name

log = structlog.get_logger(__name__)

PATIENCE = 15.0
"""Seconds that a receiver has to take a request and answer it, the whole of it."""

IDLE_FOR = 5.0
"""Seconds that a connection is kept while nothing is sent."""

MOST_ANSWER = 65_536
"""Bytes of an answer that are read."""

LONGEST_WAIT = 3600.0
"""Seconds that `Retry-After` may ask for; and until a receiver that is gone for good (410) is asked again."""

_TRACE = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})")
_SEVERITY = {"refusal": (13, "WARN"), "notice": (10, "INFO2"), "transition": (9, "INFO")}


class _HttpTarget:
    """What both have in common: a connection, and what its answers mean."""

    def __init__(self, url: str, trust: ssl.SSLContext) -> None:
        self._trust, parts = trust, urlsplit(url)
        self._url = httpcore.URL(
            scheme=parts.scheme,
            host=wire_name(parts.hostname or ""),
            port=parts.port,
            target=http_calls.target(parts.path or "/", parts.query),
        )
        self._headers = _headers(parts)
        self._connections: httpcore.ConnectionPool | None = None
        self._socket: socket.socket | None = None

    def _post(self, body: bytes, headers: dict[str, str]) -> bytes:
        """The body of the answer. Raises NotTaken."""
        if self._connections is None:
            self._connections = httpcore.ConnectionPool(self._trust, keepalive_expiry=IDLE_FOR)
        late = Timer(PATIENCE, self._hang_up)
        late.daemon = True
        late.start()
        try:
            ask = self._connections.stream(
                "POST",
                self._url,
                content=body,
                headers=[*self._headers.items(), *headers.items()],
                extensions={"trace": self._note_socket, **http_calls.waits(PATIENCE, connect=PATIENCE)},
            )
            with ask as response:
                answer = _read(response)
        except http_calls.FAULTS as error:
            why = f"no answer in {PATIENCE:g} s" if not late.is_alive() else str(error) or type(error).__name__
            raise NotTaken(why) from None
        finally:
            late.cancel()
        if not 200 <= response.status < 300:
            wait = http_calls.fields(response.headers).get("retry-after", "")
            seconds = min(float(wait), LONGEST_WAIT) if wait.isascii() and wait.isdigit() else None
            raise NotTaken(f"it answered {response.status}", LONGEST_WAIT if response.status == 410 else seconds)
        return answer

    def _note_socket(self, name: str, told: Mapping[str, Any]) -> None:
        """Callback of the connection (httpcore, "Extensions"): its socket, as it is made."""
        if name in ("connection.connect_tcp.complete", "connection.start_tls.complete"):
            self._socket = told["return_value"].get_extra_info("socket")

    def _hang_up(self) -> None:
        """End a request that takes too long as a whole: httpcore bounds each wait for bytes alone, and a receiver that
        sends one now and then would hold it for ever."""
        if self._socket is not None:
            with suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)

    def settled(self, sent: int) -> int:
        return sent

    def finish(self, sent: int) -> int:
        return sent

    def close(self) -> None:
        if self._connections is not None:
            self._connections.close()
        self._connections = None


def _headers(parts: SplitResult) -> dict[str, str]:
    """Those of every request to an address, whose user and password may stand in it."""
    name, port = wire_name(parts.hostname or ""), parts.port
    host = f"[{name}]" if ":" in name else name
    headers = {
        "host": host if port in (None, 443 if parts.scheme == "https" else 80) else f"{host}:{port}",
        "accept": "*/*",
        "accept-encoding": "identity",
        "connection": "keep-alive",
        "content-type": "application/json",
        "user-agent": f"hatchway/{installed_version()}",
    }
    if parts.username or parts.password:
        known = f"{unquote(parts.username or '')}:{unquote(parts.password or '')}"
        headers["authorization"] = f"Basic {b64encode(known.encode()).decode()}"
    return headers


def _read(response: httpcore.Response) -> bytes:
    """The body, up to MOST_ANSWER bytes or a little more; the rest is not read. Raises http_calls.FAULTS."""
    answer = b""
    for piece in response.iter_stream():
        answer += piece
        if len(answer) > MOST_ANSWER:
            break
    return answer


class OtlpTarget(_HttpTarget):
    """A collector's `/v1/logs`."""

    most = 200

    def send(self, parcels: Sequence[Parcel]) -> None:
        """Raises NotTaken."""
        answer = self._post(msgspec.json.encode(logs(parcels)), {})
        try:
            partial = msgspec.json.decode(answer).get("partialSuccess") or {}
            rejected = int(partial.get("rejectedLogRecords") or 0)
        except (ValueError, AttributeError, TypeError):
            return
        if rejected:
            # The protocol forbids to send them again: what the receiver says is for its operator.
            log.warning("records_rejected", count=rejected, why=str(partial.get("errorMessage"))[:200])


def logs(parcels: Sequence[Parcel]) -> dict[str, Any]:
    """An ExportLogsServiceRequest (opentelemetry/proto/collector/logs/v1) in its JSON encoding."""
    resource = {"service.name": "hatchway", "host.name": socket.gethostname()}
    return {
        "resourceLogs": [
            {
                "resource": {"attributes": _attributes(resource)},
                "scopeLogs": [
                    {
                        "scope": {"name": "hatchway.journal", "version": installed_version()},
                        "logRecords": [_log(parcel) for parcel in parcels],
                    }
                ],
            }
        ]
    }


def _log(parcel: Parcel) -> dict[str, Any]:
    record = parcel.record
    number, text = _SEVERITY.get(record["kind"], _SEVERITY["notice"])
    known = {name: value for name, value in record.items() if isinstance(value, str | int) and name != "schema"}
    told: dict[str, Any] = {
        "timeUnixNano": str(int(record["time"] * 1e6) * 1000),
        "observedTimeUnixNano": str(int(record["time"] * 1e6) * 1000),
        "severityNumber": number,
        "severityText": text,
        "eventName": parcel.name,
        "body": {"stringValue": parcel.data.decode("utf-8", "replace")},
        "attributes": _attributes({f"hatchway.{name}": value for name, value in known.items()}),
    }
    trace = _TRACE.match(record.get("traceparent") or "")
    if trace is not None:
        told |= {"traceId": trace[1], "spanId": trace[2], "flags": int(trace[3], 16)}
    return told


def _attributes(values: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {"key": name, "value": {"intValue": str(value)} if isinstance(value, int) else {"stringValue": value}}
        for name, value in values.items()
    ]


class WebhookTarget(_HttpTarget):
    """One record a request, the next once the one before was taken. `secret` signs."""

    most = 1

    def __init__(self, url: str, trust: ssl.SSLContext, secret: bytes, clock: Clock) -> None:
        super().__init__(url, trust)
        self._secret, self._clock = secret, clock

    def send(self, parcels: Sequence[Parcel]) -> None:
        """Raises NotTaken."""
        for parcel in parcels:
            when = datetime.fromtimestamp(parcel.record["time"], UTC).isoformat().replace("+00:00", "Z")
            body = b'{"type":"%b","timestamp":"%b","data":%b}' % (parcel.name.encode(), when.encode(), parcel.data)
            self._post(body, self._signed(parcel, body))

    def _signed(self, parcel: Parcel, body: bytes) -> dict[str, str]:
        """The headers of a signed webhook. `webhook-id` is made from the record, so that a receiver can tell that it
        has it already."""
        name = f"msg_{parcel.seq}_{sha256(parcel.data).hexdigest()[:16]}"
        stamp = str(int(self._clock.wall()))
        made = hmac.digest(self._secret, f"{name}.{stamp}.".encode() + body, "sha256")
        return {"webhook-id": name, "webhook-timestamp": stamp, "webhook-signature": f"v1,{b64encode(made).decode()}"}

"""Turns refusals into problems (RFC 9457), with the one table that picks HTTP statuses (section 7)."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

import msgspec

from hatchway.api.http.request import NO_STORE, NOSNIFF, Headers, Response
from hatchway.engine.base.errors import ModuleNotLicensed, PermissionDenied, Refusal, TokenRefused

PROBLEM: tuple[bytes, bytes] = (b"content-type", b"application/problem+json")

STATUS = {
    "invalid_pairing_code": 401,
    "pairing_expired_on_approval": 401,
    "invalid_signature": 401,
    "invalid_token": 401,
    "permission_denied": 403,
    "module_not_licensed": 403,
    "foreign_origin": 403,
    "not_json": 400,
    "bad_request": 400,
    "invalid_request": 422,
    "not_found": 404,
    "method_not_allowed": 405,
    "request_timeout": 408,
    "body_too_large": 413,
    "unsupported_media_type": 415,
    "misdirected_request": 421,
    "too_many_requests": 429,
    "too_many_instances": 429,
    "instance_exists": 409,
    "instance_not_found": 404,
    "image_not_found": 422,
    "runtime_unavailable": 503,
    "host_unavailable": 503,
    "resources_unavailable": 422,
    "store_unavailable": 503,
    "file_refused": 503,
    "internal_error": 500,
}
"""Every code that an endpoint can answer with, and its status."""


class BadRequest(Refusal):
    """The request breaks HTTP's own rules."""

    code = "bad_request"


class MisdirectedRequest(Refusal):
    """The Host is none of ours (RFC 9110 section 15.5.20)."""

    code = "misdirected_request"


class ForeignOrigin(Refusal):
    """A page of another origin asks."""

    code = "foreign_origin"


class UnsupportedMediaType(Refusal):
    """The body is not said to be JSON, or is said to be encoded."""

    code = "unsupported_media_type"


class BodyTooLarge(Refusal):
    """The body is over its limit."""

    code = "body_too_large"


class RequestTimeout(Refusal):
    """The body did not come in time."""

    code = "request_timeout"


class MethodNotAllowed(Refusal):
    """The path has no such method; `allow` names those it has."""

    code = "method_not_allowed"

    def __init__(self, allow: str) -> None:
        super().__init__(f"this path answers {allow} only")
        self.allow = allow


def problem(refused: Refusal, **more: Any) -> dict[str, Any]:
    """The problem object: `type`, `title`, `status`, `detail`, `code`, and `errors` where fields are named."""
    status = STATUS[refused.code]
    body: dict[str, Any] = {
        "type": "about:blank",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "detail": refused.detail,
        "code": refused.code,
    }
    if refused.errors:
        body["errors"] = refused.errors
    return body | more


def problem_response(refused: Refusal, **more: Any) -> Response:
    """The whole response, with the headers that the status wants."""
    body = problem(refused, **more)
    headers: Headers = (PROBLEM, NO_STORE, NOSNIFF, *_headers(refused, body["status"]))
    return Response(body["status"], msgspec.json.encode(body), headers)


def _headers(refused: Refusal, status: int) -> Headers:
    if isinstance(refused, TokenRefused):
        return ((b"www-authenticate", b'Bearer error="invalid_token"' if refused.sent else b"Bearer"),)
    if status == 401:
        return ((b"www-authenticate", b"Bearer"),)
    if isinstance(refused, PermissionDenied):
        scope = refused.permission.encode()
        return ((b"www-authenticate", b'Bearer error="insufficient_scope", scope="' + scope + b'"'),)
    if isinstance(refused, ModuleNotLicensed):
        return ((b"www-authenticate", b"Bearer"),)
    if isinstance(refused, MethodNotAllowed):
        return ((b"allow", refused.allow.encode()),)
    if refused.retry_after is not None or status in (429, 503):
        return ((b"retry-after", str(refused.retry_after or 5).encode()),)
    return ()

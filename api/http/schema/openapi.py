"""`/openapi.json`: the description of the API (OpenAPI 3.1), made from the table of endpoints itself."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cache
from inspect import cleandoc
from typing import Any

import msgspec

from hatchway.api.http.endpoint import Endpoint, Invocation, NoFields
from hatchway.api.http.problems import STATUS
from hatchway.api.http.request import Response, json_response
from hatchway.api.http.schema.parts import JSON, Media
from hatchway.api.http.schema.shapes import ProblemShape
from hatchway.engine.base.version import installed_version
from hatchway.engine.journal.files import SCHEMA, SealedRecord
from hatchway.engine.runtime.records import Record

REF = "#/components/schemas/{name}"

ALWAYS = (
    *("bad_request", "request_timeout", "body_too_large", "misdirected_request", "foreign_origin", "internal_error"),
    "store_unavailable",
)
"""Codes that any endpoint may refuse with: the last one of a worker process without its engine, too."""

ABOUT = """\
Sign-in and sessions for an engine on a remote host.

Every error is a problem (RFC 9457) with a stable `code`. A path under /api/ answers with and without its trailing
slash. Times are in seconds since the epoch. Nothing is versioned in the path; unknown fields of a body are refused."""


def describing(endpoints: tuple[Endpoint, ...]) -> Endpoint:
    """The endpoint that describes these endpoints, and itself."""

    @cache
    def document() -> Response:
        return json_response(openapi((*endpoints, endpoint)))

    def description(invocation: Invocation) -> Response:
        """This description."""
        return document()

    endpoint = Endpoint(
        "GET", "/openapi.json", description, "This description", answers={200: Media(JSON, "An OpenAPI 3.1 document.")}
    )
    return endpoint


def openapi(endpoints: tuple[Endpoint, ...]) -> dict[str, Any]:
    """The whole document."""
    schemas, components = _schemas(_types(endpoints))
    for component in components.values():
        component["description"] = cleandoc(component.get("description", ""))
    components["Record"] = record_schema()
    del components["Saw"]  # it stands in the record
    by_type = dict(zip(_types(endpoints), schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for endpoint in endpoints:
        paths.setdefault(endpoint.path, {})[endpoint.method.lower()] = _operation(endpoint, by_type)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Hatchway", "version": installed_version(), "description": ABOUT, "license": _LICENSE},
        "servers": [{"url": "/"}],
        "paths": paths,
        "components": {"schemas": components, "securitySchemes": {"session": _SESSION}},
    }


def _schemas(types: Iterable[Any]) -> tuple[list[dict[str, Any]], dict[str, dict[str, Any]]]:
    """The schema of each type, and the components that these refer to.

    A component has the name of its class, less the suffix by which our code tells shapes from what they are made of:
    the names of components are part of the API.
    """
    described = msgspec.json.encode(msgspec.json.schema_components(list(types), ref_template=REF))
    schemas, components = msgspec.json.decode(re.sub(rb'(?<=\w)Shape(?=")', b"", described))
    return schemas, components


def record_schema() -> dict[str, Any]:
    """The JSON Schema of a record: a line of the journal, the data of an event. Every field up to `cause` is always
    there, the others where there is something to say."""
    _, components = msgspec.json.schema_components([SealedRecord], ref_template=REF)
    schema: dict[str, Any] = components["SealedRecord"]
    fields: dict[str, dict[str, Any]] = schema["properties"]
    fields["saw"] = components["Saw"] | {"additionalProperties": False}
    fields["saw"]["description"] = cleandoc(fields["saw"]["description"])
    for field in (*fields.values(), *fields["saw"]["properties"].values()):
        field.pop("default", None)
    names = list(fields)
    exact = {"required": names[: names.index("cause") + 1], "additionalProperties": False, "title": "Record"}
    told = f"{cleandoc(Record.__doc__ or '')}\n\n{cleandoc(SealedRecord.__doc__ or '')}"
    return schema | exact | {"description": told, "$comment": f"version {SCHEMA}"}


_LICENSE = {"name": "MIT", "identifier": "MIT"}
_SESSION = {
    "type": "http",
    "scheme": "bearer",
    "bearerFormat": "JWT",
    "description": "The token of a sign-in. The names beside it in an operation are the permissions that are needed.",
}


def _types(endpoints: Iterable[Endpoint]) -> dict[Any, None]:
    """Every type of a body or a response, once, in order."""
    found: dict[Any, None] = {ProblemShape: None}
    for endpoint in endpoints:
        if endpoint.body:
            found[endpoint.body] = None
        for answer in endpoint.answers.values():
            for shape in _variants(answer):
                found.update(dict.fromkeys(shape.items if isinstance(shape, Media) else (shape,)))
    return found


def _variants(answer: Any) -> tuple[Any, ...]:
    """One status may be answered in several forms. Three shapes in a row are the items of section 2.7."""
    if answer is None:
        return ()
    if isinstance(answer, tuple) and not isinstance(answer, Media):
        return tuple(answer)
    return (answer,)


def _operation(endpoint: Endpoint, schemas: Mapping[Any, Any]) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": endpoint.function.__name__,
        "summary": endpoint.summary,
        "description": " ".join((endpoint.function.__doc__ or "").split()),
        "tags": [endpoint.function.__module__.rpartition(".")[2]],
        "parameters": _asked(endpoint),
        "responses": {**_answers(endpoint, schemas), **_refusals(endpoint)},
    }
    if endpoint.access != "open":
        operation["security"] = [{"session": [] if endpoint.access == "session" else [endpoint.access]}]
    elif "invalid_token" in endpoint.refusals:
        operation["security"] = [{}, {"session": ["MASTER"]}]
    if endpoint.body:
        operation["requestBody"] = {
            "required": endpoint.body is not NoFields,
            "content": {JSON: {"schema": schemas[endpoint.body]}},
        }
    return operation


def _asked(endpoint: Endpoint) -> list[dict[str, Any]]:
    return [
        {
            "name": param.name,
            "in": param.place,
            "required": param.place == "path",
            "schema": param.schema,
            "description": param.about,
        }
        for param in endpoint.asks
    ]


def _answers(endpoint: Endpoint, schemas: Mapping[Any, Any]) -> dict[str, Any]:
    return {str(status): _answer(answer, schemas) for status, answer in endpoint.answers.items()}


def _answer(answer: Any, schemas: Mapping[Any, Any]) -> dict[str, Any]:
    variants = _variants(answer)
    if len(variants) > 1 and not any(isinstance(shape, Media) for shape in variants):
        items = {"type": "array", "prefixItems": [schemas[shape] for shape in variants], "items": False}
        exact = {"minItems": len(variants), "maxItems": len(variants)}
        return {"description": "The items, in order.", "content": {JSON: {"schema": items | exact}}}
    content: dict[str, Any] = {}
    for shape in variants:
        if isinstance(shape, Media):
            schema = {"type": "object"} if shape.type == JSON else {"type": "string"}
            content[shape.type] = {"schema": schema | {"description": shape.about}}
            if shape.items:
                # OpenAPI 3.2 calls it itemSchema; 3.1 has nothing like it.
                content[shape.type]["x-itemSchema"] = {"oneOf": [schemas[kind] for kind in shape.items]}
        else:
            content[JSON] = {"schema": schemas[shape]}
    described: dict[str, Any] = {"description": "Done." if variants else "Nothing more to say."}
    return described | ({"content": content} if content else {})


def _refusals(endpoint: Endpoint) -> dict[str, Any]:
    """Every status that the endpoint may refuse with, and the codes that it may have."""
    by_status: dict[int, list[str]] = {}
    for code in dict.fromkeys((*_implied(endpoint), *endpoint.refusals)):
        by_status.setdefault(STATUS[code], []).append(code)
    return {str(status): _refusal(status, codes) for status, codes in sorted(by_status.items())}


def _implied(endpoint: Endpoint) -> Iterable[str]:
    yield from ALWAYS
    if endpoint.access != "open":
        yield "invalid_token"
    if endpoint.access not in ("open", "session"):
        yield "permission_denied"
    if endpoint.module:
        yield "module_not_licensed"
    if endpoint.body:
        yield from ("not_json", "unsupported_media_type", "invalid_request")
    if "{" in endpoint.path:
        yield "not_found"


def _refusal(status: int, codes: list[str]) -> dict[str, Any]:
    schema = {"allOf": [{"$ref": REF.format(name="Problem")}, {"properties": {"code": {"enum": codes}}}]}
    described: dict[str, Any] = {
        "description": ", ".join(f"`{code}`" for code in codes),
        "content": {"application/problem+json": {"schema": schema}},
    }
    if status == 401:
        described["headers"] = {"WWW-Authenticate": {"required": True, "schema": {"type": "string"}}}
    if status in (429, 503):
        described["headers"] = {"Retry-After": {"required": True, "schema": {"type": "integer"}}}
    return described

"""Reads a body's bytes into a request's fields: one JSON object in UTF-8; a refusal names every wrong field."""

from __future__ import annotations

import json
import re
from typing import Any, NoReturn, TypeVar

import msgspec

from hatchway.api.http.problems import UnsupportedMediaType
from hatchway.api.http.request import Request
from hatchway.engine.base.errors import InvalidRequest, NotJson
from hatchway.engine.base.text import counted

S = TypeVar("S", bound=msgspec.Struct)

DEEPEST = 32
"""Levels of nesting that a body may have."""

MOST_NAMED = 32
"""Unknown fields that a refusal names at most: a body may hold ten thousand."""

_JSON_TYPE = re.compile(rb"application/json[ \t]*(?:;[ \t]*charset=\"?utf-8\"?[ \t]*)?", re.IGNORECASE)
_NONE = object()


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise NotJson("the body repeats a key: send each once")
    return found


def _no_number(text: str) -> NoReturn:
    raise NotJson(f"{text} is no JSON number")


_texts = msgspec.json.Decoder(dict[str, str])
_decoder = json.JSONDecoder(object_pairs_hook=_unique, parse_constant=_no_number)


def read_object(content_type: bytes | None, body: bytes, depth: int = DEEPEST) -> dict[str, Any]:
    """The one JSON object of a body. Raises UnsupportedMediaType, NotJson."""
    if content_type is None or not _JSON_TYPE.fullmatch(content_type.strip()):
        raise UnsupportedMediaType("send the body as JSON, with Content-Type: application/json")
    if (plain := _read_plain(body)) is not None:
        return plain
    try:
        value = _decoder.decode(body.decode())
        if b"\\u" in body:
            json.dumps(value, ensure_ascii=False).encode()  # raises for half a surrogate pair, which is no text
    except (UnicodeError, json.JSONDecodeError, RecursionError, ValueError):
        raise NotJson("the body must be one JSON object in UTF-8") from None
    if not isinstance(value, dict):
        raise NotJson("the body must be one JSON object in UTF-8")
    if body.count(b"{") + body.count(b"[") > depth and _depth(value) > depth:
        raise NotJson(f"the body is nested deeper than {counted(depth, 'level')}")
    return value


def _read_plain(body: bytes) -> dict[str, str] | None:
    """The object, where its values are texts without escapes: a quick way for most bodies. None for all others.

    In such an object each key and each value has two quotes: where it has fewer keys than that, a key was repeated.
    """
    if b"\\" in body:
        return None
    try:
        value = _texts.decode(body)
    except (msgspec.DecodeError, UnicodeError):
        return None
    return value if body.count(b'"') == 4 * len(value) else None


def _depth(value: Any) -> int:
    level, deep = [value], 0
    while level:
        deep += 1
        inner = [part.values() if isinstance(part, dict) else part for part in level]
        level = [item for items in inner for item in items if isinstance(item, (dict, list))]
    return deep


def read_body(kind: type[S], request: Request, depth: int = DEEPEST) -> S:
    """The fields of a request, from its JSON body. Raises UnsupportedMediaType, NotJson, InvalidRequest."""
    if request.header(b"content-encoding") not in (None, b"", b"identity"):  # RFC 9110, section 8.4
        raise UnsupportedMediaType("send the body as it is, without a Content-Encoding")
    return read_fields(kind, read_object(request.content_type, request.body, depth))


def read_fields(kind: type[S], value: dict[str, Any]) -> S:
    """The fields of a request. Raises InvalidRequest, which names each wrong one and why."""
    try:
        return msgspec.convert(value, kind, strict=True)
    except msgspec.ValidationError:
        raise InvalidRequest(_wrong_fields(kind, value)) from None


def _wrong_fields(kind: type[msgspec.Struct], value: dict[str, Any]) -> dict[str, str]:
    errors = {}
    fields = {field.encode_name: field for field in msgspec.structs.fields(kind)}
    for name, field in fields.items():
        given = value.get(name, _NONE)
        if given is _NONE:
            if field.required:
                errors[name] = "is required"
            continue
        try:
            msgspec.convert(given, field.type, strict=True)
        except msgspec.ValidationError as error:
            errors[name] = _words(str(error))
    unknown = [name[:64] for name in value if name not in fields]
    errors.update(dict.fromkeys(unknown[:MOST_NAMED], "is unknown"))
    return errors or {"body": "is not what this endpoint takes"}


_TYPES = {
    "array": "a list",
    "bool": "true or false",
    "float": "a number",
    "int": "a whole number",
    "object": "an object",
    "str": "text",
}
"""What msgspec calls a type of JSON's, and its name for those who send it."""


def _words(error: str) -> str:
    """msgspec's sentence, in words of JSON's."""
    named = re.sub(r"`(\w+(?: \| \w+)*)`", lambda found: " or ".join(map(_name, found[1].split(" | "))), error)
    placed = re.sub(r" - at `\$\[(\d+)\]`", r", at item \1", named)
    return placed[:1].lower() + placed[1:].replace("`", "'")


def _name(kind: str) -> str:
    return _TYPES.get(kind, kind)

"""What an endpoint is described with besides shapes: parameters, bodies that are no JSON, schemas of single fields."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

from msgspec import Meta

JSON, TEXT, HTML = "application/json", "text/plain", "text/html"


class Media(NamedTuple):
    """A body that is not one JSON value: its media type, a description, and the types of a stream's items."""

    type: str
    about: str
    items: tuple[Any, ...] = ()


class Param(NamedTuple):
    """A parameter in the query, a header or the path."""

    name: str
    place: Literal["query", "header", "path"]
    schema: dict[str, Any]
    about: str


def described(**schema: Any) -> Meta:
    """The schema of a field that the endpoint checks itself, so that its refusal can say more than msgspec's."""
    return Meta(extra_json_schema=schema)

"""Lists in pages: `?limit=` and `?after=`, and `next` in the answer where there is more."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import islice
from typing import NamedTuple, TypeVar
from urllib.parse import parse_qsl

from hatchway.api.http.schema.shapes import MOST_ROWS
from hatchway.engine.base.errors import InvalidRequest

T = TypeVar("T")
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,128}|SHA256:[A-Za-z0-9+/]{43}")
"""The name of a row of a list, behind which the next page begins. That of a key is its fingerprint."""


class Page(NamedTuple):
    """At most `limit` rows, whose names come after `after`, the empty one for the first page."""

    limit: int
    after: str

    def take(self, rows: Iterable[T]) -> tuple[list[T], bool]:
        """The page's rows, of those that come behind `after`, and whether there are more."""
        found = list(islice(rows, self.limit + 1))
        return found[: self.limit], len(found) > self.limit


def read_page(query: bytes) -> Page:
    """The page that a query asks for. Raises InvalidRequest."""
    values = dict(parse_qsl(query.decode("latin-1"), keep_blank_values=True))
    limit, after = values.pop("limit", str(MOST_ROWS)), values.pop("after", "").replace(" ", "+")
    errors = {name[:64]: "is unknown" for name in values}
    if not re.fullmatch("[0-9]{1,4}", limit) or not 1 <= int(limit) <= MOST_ROWS:
        errors["limit"] = f"must be a whole number from 1 to {MOST_ROWS}"
    if after and not _NAME.fullmatch(after):
        errors["after"] = "must be the `next` of the page before"
    if errors:
        raise InvalidRequest(errors)
    return Page(int(limit), after)

"""Finds the endpoint for a method and a path, by the same rules as Quart's routes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from hatchway.api.http.endpoint import Endpoint, Route

_NO_PARAMS: Mapping[str, str] = {}


class Routes:
    """The table of endpoints, indexed. `exact` has the paths without parameters, by method and path."""

    def __init__(self, endpoints: Iterable[Endpoint]) -> None:
        rows = tuple(endpoints)
        self.exact = {
            (row.method, path): Route(row, _NO_PARAMS)
            for row in rows
            if "{" not in row.path
            for path in spellings(row.path)
        }
        self._patterns = tuple((row, _pattern(row.path)) for row in rows if "{" in row.path)

    def find(self, method: str, path: str) -> Route | None:
        """The route of a request, or None. HEAD leads where GET does."""
        method = "GET" if method == "HEAD" else method
        route = self.exact.get((method, path))
        if route is not None:
            return route
        for row, pattern in self._patterns:
            if row.method == method and (match := pattern.fullmatch(path)) is not None:
                return Route(row, match.groupdict())
        return None


def _pattern(path: str) -> re.Pattern[str]:
    parts = re.split(r"\{(\w+)\}", path.rstrip("/"))  # texts and names of parameters alternate
    return re.compile(
        "".join(f"(?P<{part}>[^/]+)" if at % 2 else re.escape(part) for at, part in enumerate(parts)) + "/?"
    )


def spellings(path: str) -> tuple[str, ...]:
    """A path with and without its trailing slash: both answer alike."""
    return tuple(dict.fromkeys((path, path.rstrip("/") or "/")))

"""`GET /api/charts/{name}/`: a chart with its layout, as the console draws it. Charts are no secret."""

from __future__ import annotations

from functools import cache

from hatchway.api.http.endpoint import Invocation
from hatchway.api.http.request import Response, json_response
from hatchway.engine.base.errors import NotFound
from hatchway.statecharts.catalogue import CHARTS


def chart(invocation: Invocation) -> Response:
    """One chart by its name. Raises NotFound."""
    return _drawn(invocation.params["name"])


@cache
def _drawn(name: str) -> Response:
    if name not in CHARTS:
        raise NotFound(f"no chart has that name; there are {', '.join(CHARTS)}")
    from hatchway.statecharts.draw.render import as_json  # imported here: few engines draw charts

    return json_response(as_json(CHARTS[name]))

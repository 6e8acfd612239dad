"""`GET /api/charts/{name}/`: a chart with its layout, as the console draws it. The tables are in every copy of the
program: no secret."""

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
    from hatchway.statecharts.draw.render import as_json  # here: only who looks at a chart needs it drawn

    return json_response(as_json(CHARTS[name]))

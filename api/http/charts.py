"""`GET /api/charts/{name}/`: a chart with its layout, as the console draws it. The tables are in every copy of the
program: no secret."""

from __future__ import annotations

from functools import cache

from api.http.call import Answer, json_answer
from api.http.door import Visit
from engine.errors import NotFound
from statecharts.catalogue import CHARTS


def chart(visit: Visit) -> Answer:
    """One chart by its name. Raises NotFound."""
    return _drawn(visit.call.params["name"])


@cache
def _drawn(name: str) -> Answer:
    if name not in CHARTS:
        raise NotFound(f"no chart has that name; there are {', '.join(CHARTS)}")
    from statecharts.render import as_json  # here: only who looks at a chart needs it drawn

    return json_answer(as_json(CHARTS[name]))

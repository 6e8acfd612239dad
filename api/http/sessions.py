"""The live sessions: list and revoke."""

from __future__ import annotations

from typing import Any

from api.http.call import NO_STORE, Answer, json_answer
from api.http.door import Visit
from api.http.pages import read_page
from engine.runtime import Actor


def list_sessions(visit: Visit) -> Answer:
    """The caller's own live sessions; all of them with MASTER. In pages, in the order of their starts."""
    page = read_page(visit.call.query)
    found, more = page.take(visit.engine.sessions.visible(visit.by, page.after))
    rows = [_described(actor, visit) for actor in found]
    return json_answer({"sessions": rows} | ({"next": found[-1].id} if more else {}))


def _described(actor: Actor, visit: Visit) -> dict[str, Any]:
    return {
        "session": actor.id,
        "identity": actor.facts.identity,
        "method": actor.facts.method,
        "permissions": actor.facts.permissions,
        "started_at": int(actor.facts.started_at),
        "expires_at": int(actor.deadline or 0),
        "address": actor.facts.address,
        "current": actor.id == visit.by.session,
    }


async def revoke_session(visit: Visit) -> Answer:
    """End one of the sessions that the caller may see."""
    origin = visit.call.origin._replace(identity=visit.by.identity)
    await visit.engine.sessions.revoke(visit.by, visit.call.params["session"], origin)
    return Answer(204, b"", (NO_STORE,))

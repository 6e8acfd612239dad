"""The live sessions: list and revoke."""

from __future__ import annotations

from api.http.call import NO_STORE, Answer, json_answer
from api.http.door import Visit


def list_sessions(visit: Visit) -> Answer:
    """The caller's own live sessions; all of them with MASTER."""
    rows = [
        {
            "session": actor.id,
            "identity": actor.facts.identity,
            "method": actor.facts.method,
            "permissions": actor.facts.permissions,
            "started_at": int(actor.facts.started_at),
            "expires_at": int(actor.deadline or 0),
            "address": actor.facts.address,
            "current": actor.id == visit.by.session,
        }
        for actor in visit.engine.sessions.visible(visit.by)
    ]
    return json_answer({"sessions": rows})


async def revoke_session(visit: Visit) -> Answer:
    """End one of the sessions that the caller may see."""
    origin = visit.call.origin._replace(identity=visit.by.identity)
    await visit.engine.sessions.revoke(visit.by, visit.call.params["session"], origin)
    return Answer(204, b"", (NO_STORE,))

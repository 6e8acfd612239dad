"""The live sessions: list and revoke."""

from __future__ import annotations

from typing import Any

from hatchway.api.http.endpoint import Invocation
from hatchway.api.http.pages import read_page
from hatchway.api.http.request import NO_STORE, Response, json_response
from hatchway.engine.runtime import Actor
from hatchway.engine.sessions.sessions import used_at


async def list_sessions(invocation: Invocation) -> Response:
    """The caller's own live sessions; all of them with MASTER. In pages, in the order of their starts."""
    await invocation.engine.sessions.wait_whole()
    page = read_page(invocation.request.query)
    found, more = page.take(invocation.engine.sessions.visible(invocation.principal, page.after))
    rows = [_described(actor, invocation) for actor in found]
    return json_response({"sessions": rows} | ({"next": found[-1].id} if more else {}))


def _described(actor: Actor, invocation: Invocation) -> dict[str, Any]:
    return {
        "session": actor.id,
        "identity": actor.facts.identity,
        "comment": invocation.engine.sessions.comment_of(actor.facts),
        "method": actor.facts.method,
        "permissions": actor.facts.permissions,
        "started_at": int(actor.facts.started_at),
        "expires_at": int(actor.deadline or 0),
        "address": actor.facts.address,
        "label": actor.facts.label,
        "agent": actor.facts.agent,
        "used_at": int(min(used_at(actor), invocation.engine.clock.wall())),
        "current": actor.id == invocation.principal.session,
    }


async def revoke_session(invocation: Invocation) -> Response:
    """End one of the sessions that the caller may see."""
    origin = invocation.origin
    await invocation.engine.sessions.revoke(invocation.principal, invocation.params["session"], origin)
    return Response(204, b"", (NO_STORE,))

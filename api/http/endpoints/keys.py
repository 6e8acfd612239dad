"""The authorized keys: what each may do, until when, when it was registered and last used (for MASTER)."""

from __future__ import annotations

from heapq import nsmallest
from operator import attrgetter
from typing import Any

from hatchway.api.http.endpoint import Invocation
from hatchway.api.http.pages import read_page
from hatchway.api.http.request import Response, json_response
from hatchway.engine.keys.authorized_keys import KeyGrant
from hatchway.engine.keys.key_options import KeyOptions
from hatchway.engine.sessions.key_uses import KeyUse

NO_OPTIONS = KeyOptions()


async def list_keys(invocation: Invocation) -> Response:
    """The keys that may sign in. In pages, in the order of their identities."""
    page, keys = read_page(invocation.request.query), invocation.engine.keys
    uses = await invocation.engine.key_uses.all()
    behind = (grant for grant in keys.granted() if grant.identity > page.after)
    found, more = page.take(nsmallest(page.limit + 1, behind, key=attrgetter("identity")))
    rows = [_described(grant, uses.get(grant.identity, KeyUse())) for grant in found]
    return json_response({"keys": rows} | ({"next": found[-1].identity} if more else {}))


def _described(grant: KeyGrant, use: KeyUse) -> dict[str, Any]:
    options = grant.options or NO_OPTIONS
    return {
        "identity": grant.identity,
        "comment": grant.comment,
        "permissions": grant.permissions,
        "bits": grant.key.bits,
        "expires_at": options.ends_at,
        "from": options.sources,
        "instances": options.instances,
        "lifetime": options.lifetime,
        "registered_at": None if use.registered_at is None else int(use.registered_at),
        "used_at": None if use.used_at is None else int(use.used_at),
    }

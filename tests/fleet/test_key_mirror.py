"""A host's copy of the fleet's keys, over a store that answers when the test wants."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any, cast

import trio
from trio.testing import wait_all_tasks_blocked

from hatchway.engine.base.clock import SystemClock
from hatchway.engine.base.permissions import MASTER
from hatchway.engine.fleet.key_mirror import KeyMirror
from hatchway.engine.fleet.keys import FleetKeys, SharedKeys
from hatchway.engine.keys.authorized_keys import AuthorizedKeys
from hatchway.engine.keys.keys import generate_token_key, token_key_pem
from hatchway.engine.store.memory import MemoryStore
from hatchway.engine.store.protocol import Stored
from tests.support.fakes import key


class Late(MemoryStore):
    """What is read next comes so many seconds late."""

    late = 0.0

    async def load(self, chart: str, actor: str) -> Stored | None:
        held, late, self.late = await super().load(chart, actor), self.late, 0.0
        await trio.sleep(late)
        return held


def put(held: SharedKeys, wanted: SharedKeys) -> tuple[SharedKeys, None]:
    return wanted, None


async def test_what_is_read_first_is_taken_first(tmp_path: Path) -> None:
    """Followed twice at once, for a message and by the second's look: the earlier keys are not taken for lost ones."""
    store, token = Late(SystemClock()), token_key_pem(generate_token_key())
    keys = FleetKeys(cast("Any", store))
    mirror = KeyMirror(keys, tmp_path)
    await keys.change(partial(put, wanted=SharedKeys(b"# one\n", token)))
    async with trio.open_nursery() as nursery:
        store.late = 0.1
        nursery.start_soon(mirror.follow)
        await wait_all_tasks_blocked()
        await keys.change(partial(put, wanted=SharedKeys(b"# two\n", token)))
        await mirror.follow()
    assert (tmp_path / "authorized_keys").read_bytes() == b"# two\n"


async def test_each_engines_key_is_called_by_its_host(tmp_path: Path) -> None:
    """Of a fleet's keys the list says whose is whose."""
    keys = FleetKeys(cast("Any", MemoryStore(SystemClock())))

    async def check(ids: tuple[str, ...]) -> None: ...

    for host in ("one", "two"):
        mirror = KeyMirror(keys, tmp_path / host)
        await mirror.join("fleet", key(host).public, f"engine {host}", tmp_path, check)
    authorized = AuthorizedKeys(tmp_path / "two" / "authorized_keys")
    grants = [authorized.find(key(host).identity) for host in ("one", "two")]
    assert [grant and (grant.comment, grant.permissions) for grant in grants] == [
        ("engine one", (MASTER,)),
        ("engine two", (MASTER,)),
    ]

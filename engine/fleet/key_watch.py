"""Takes up changes of the keys while an engine runs: by hand, by commands, by other engines (section 2.4)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import structlog
import trio
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from hatchway.engine.access.tokens import Tokens, key_id
from hatchway.engine.base.errors import Refusal
from hatchway.engine.keys.authorized_keys import AuthorizedKeys
from hatchway.engine.keys.key_lines import granted, same
from hatchway.engine.keys.own_keys import load_token_keys
from hatchway.engine.runtime.records import NOBODY, Origin, Records

if TYPE_CHECKING:
    from hatchway.engine.fleet.fleet import Fleet
    from hatchway.engine.fleet.key_mirror import KeyMirror

log = structlog.get_logger(__name__)

WATCH_INTERVAL = 1.0
"""Seconds between two looks; every use of a session looks at authorized_keys too."""


class KeyWatch:
    """Watches the keys in `folder`, and records what becomes of them. With a `mirror` the folder is a copy of what the
    fleet's store holds.

    An engine of no fleet has one too. It stands in this package since what other engines change comes in here as well.
    """

    def __init__(
        self,
        home: Path,
        folder: Path,
        keys: AuthorizedKeys,
        tokens: Tokens,
        records: Records,
        fleet: Fleet | None,
        mirror: KeyMirror | None,
    ) -> None:
        self._folder, self._keys, self._tokens, self._fleet, self._mirror = folder, keys, tokens, fleet, mirror
        self._common, self._records = folder != home, records
        self._told = keys.by_identity()
        """The lines as they were recorded last."""
        self._ended = keys.version()
        """The version of the keys by which sessions were ended last."""
        self._token_fault = ""
        self.on_token_keys: list[Callable[[], None]] = []
        """Functions to call when tokens are verified by other keys than before."""

    async def run(self, end_orphans: Callable[[], Awaitable[Any]]) -> None:
        """Watch, for ever. `end_orphans` is called when keys have changed: it ends the sessions whose key is gone."""
        told, fault = True, ""
        while True:
            await trio.sleep(WATCH_INTERVAL)
            try:
                await self.follow()
                await self._keys.settle()
                if not told:
                    self.tell_changes()
                # A command that has changed the keys tells the engine within a second; then there is no news to tell.
                told = self._keys.version() == self._ended
                if not told:
                    seen = self._keys.version()
                    if self._common:
                        # A command that removes a key ends its sessions itself, to count them: it gets time for that.
                        await trio.sleep(WATCH_INTERVAL)
                    await end_orphans()
                    self._ended = seen  # where that failed, it is tried again
                fault = ""
            except Refusal as refused:
                if refused.why != fault:  # said once, however many seconds it lasts
                    log.warning("keys_not_followed", why=refused.why)
                fault = refused.why

    def tell_changes(self, origin: Origin = NOBODY, named: Collection[str] = ()) -> None:
        """Record which keys came, changed or went since they were recorded last: those that `origin` has `named`, or
        all. Raises FileRefused."""
        now, before = self._keys.by_identity(), self._told
        gone = [name for name in named or before if name not in now]
        come = [name for name, entry in now.items() if name in named or not (named or same(entry, before.get(name)))]
        for name in sorted(gone):
            comment = before[name].comment if name in before else None
            self._records.notice("key", name, "unregister", origin=origin, comment=comment)
        for name in sorted(come):
            may = granted(now[name].permissions, now[name].options)
            self._records.notice("key", name, "register", may, origin=origin, comment=now[name].comment)
        kept = {name: entry for name, entry in before.items() if name not in gone}
        self._told = kept | {name: now[name] for name in come}

    def tell_token_key(self, before: str | None) -> None:
        """Record that tokens are signed by another key than `before`, by its `kid`; None where there was none."""
        present = self._tokens.key_ids()[0]
        if before not in (None, present):
            self._records.notice("key", present, "rotate_token", f"replaces {before}")

    async def follow(self) -> None:
        """Take up the keys that the fleet's store has now. Raises StoreUnavailable."""
        if self._mirror is not None:
            await self._mirror.follow()
            self._keys.look_anew()
        if self._common or len(self._tokens.key_ids()) > 1:
            self._follow_token_keys()

    def _follow_token_keys(self) -> None:
        """Take up a token key that another engine has made, and let the one before go once its tokens are over."""
        fault = ""
        try:
            key, old = load_token_keys(self._folder)
            found = [key_id(key.public_key())]
            if old is not None and key_id(old) not in found:  # a rotation that was cut off leaves one key in both files
                found.append(key_id(old))
            if found != list(self._tokens.key_ids()):
                self.use(key, old)
        except (Refusal, OSError) as error:
            fault = str(error)
            if fault != self._token_fault:  # said once, however many seconds it lasts
                log.warning("token_key_not_read", why=fault)
        self._token_fault = fault

    def use(self, key: Ed25519PrivateKey, old: Ed25519PublicKey | None) -> None:
        """Sign with `key` from now on, and verify with `old` too."""
        before = self._tokens.key_ids()[0]
        self._tokens.use(key, old)
        self.tell_token_key(before)
        for tell in self.on_token_keys:
            tell()
        if self._fleet is not None:
            self._fleet.messages.write_later(partial(self._fleet.tell_token_key, self._tokens.key_ids()[0]))

"""Engine: takes the folder, loads keys and store, joins the services, and runs the delays until it is left."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import structlog
import trio
from msgspec import UNSET

from hatchway.engine.access.challenges import Challenges
from hatchway.engine.access.license import License, load_license
from hatchway.engine.access.tokens import Tokens
from hatchway.engine.base import file_locks, files
from hatchway.engine.base.clock import Clock, SystemClock
from hatchway.engine.base.errors import EngineUnavailable, Refusal, StoreUnavailable, cause_of
from hatchway.engine.base.tasks import kept_up
from hatchway.engine.base.ticks import loop_ticks
from hatchway.engine.base.version import installed_command
from hatchway.engine.fleet.key_watch import KeyWatch
from hatchway.engine.instances.all_instances import AllInstances
from hatchway.engine.instances.instances import Instances, TakenBy, is_live, nobody_else
from hatchway.engine.instances.protocol import Platform
from hatchway.engine.journal.heads import KEYS as HEAD_KEYS
from hatchway.engine.journal.heads import remember_keys
from hatchway.engine.journal.journal import FileJournal
from hatchway.engine.journal.logs import log_record
from hatchway.engine.journal.metrics import Metrics
from hatchway.engine.journal.overview import Overview
from hatchway.engine.journal.replay import charts_digest
from hatchway.engine.keys.authorized_keys import AUTHORIZED_KEYS, AuthorizedKeys
from hatchway.engine.keys.key_command import KeyCommand
from hatchway.engine.keys.keys import PublicKey
from hatchway.engine.keys.own_keys import PRIVATE_KEY, load_own_key, load_token_keys, make_own_key, read_own_key
from hatchway.engine.pairings.pairings import Pairings
from hatchway.engine.platforms import make_platform
from hatchway.engine.runtime import Runtime
from hatchway.engine.runtime.records import Records, Saw
from hatchway.engine.sessions.key_sign_in import KeySignIn
from hatchway.engine.sessions.key_uses import KeyUses
from hatchway.engine.sessions.orphans import Orphans
from hatchway.engine.sessions.sessions import Sessions
from hatchway.engine.settings.redis_address import is_redis
from hatchway.engine.settings.settings import Settings, keys_folder
from hatchway.engine.settings.sources import reload
from hatchway.engine.store.memory import MemoryStore
from hatchway.engine.store.protocol import Store
from hatchway.engine.store.sqlite import SQLiteStore

if TYPE_CHECKING:
    from hatchway.engine.fleet.codes import RemoteCodes
    from hatchway.engine.fleet.instance_store import FleetInstanceStore
    from hatchway.engine.fleet.membership import Membership

log = structlog.get_logger(__name__)


class Engine:
    """Everything one engine is made of. Use `open_engine`."""

    def __init__(
        self,
        home: Path,
        load: Callable[[], Settings],
        clock: Clock,
        store: Store,
        codes: Store,
        identity: str,
        membership: Membership | None = None,
        platform: Platform | None = None,
    ) -> None:
        """`store` is the engine's own, and its fleet's where it is a member of one. `platform` stands in for the one
        that the settings name."""
        self.home, self.clock, self.identity = home, clock, identity
        self.fleet = fleet = membership.fleet if membership else None
        self.store = fleet.store if fleet else store
        self.own_store = store
        self._load, self._membership = load, membership
        self.settings = load()
        self.started_at = clock.wall()
        self.keys_in = keys_folder(home, self.settings)
        elsewhere = KeyCommand(lambda: self.settings.authorized_keys_command, clock)
        self.keys = AuthorizedKeys(
            self.keys_in / AUTHORIZED_KEYS, loop_ticks(), elsewhere=elsewhere, types=self._key_types
        )
        self.own_key = self._load_own_key()
        self.keys.check()  # raises FileRefused where others may read or write it: no engine starts on that
        self.tokens = Tokens(identity, *load_token_keys(self.keys_in))
        self.journal = FileJournal(home / "log", clock, identity, self.tokens.sign, self._kept)
        if membership is not None and self.journal.heads is not None:
            membership.join_journal(self.journal.heads, self.journal.folder)
        self.metrics = metrics = Metrics()
        self.overview, self.overview_lock = Overview(home / "log"), trio.Lock()
        self.records = Records(clock, self.journal, log_record, metrics.take, last_seq=self.journal.last_seq)
        self.runtime = Runtime(
            clock,
            self.records,
            observe_commit=metrics.observe_commit,
            observe_lateness=metrics.observe_lateness,
        )
        metrics.watch(self.runtime, self.store, self.journal, self.started_at)
        self.license = self._load_license()
        self.key_watch = KeyWatch(
            home, self.keys_in, self.keys, self.tokens, self.records, fleet, membership.keys if membership else None
        )
        self.key_watch.on_token_keys.append(self._remember_keys)
        self._remember_keys()
        self.sessions = Sessions(self.runtime, self.store, self.keys, self.tokens, lambda: self.settings, fleet)
        self.orphans = Orphans(self.sessions, self.runtime, self.keys)
        long_known = self.own_key.identity if self.journal.last_seq else None
        self.key_uses = KeyUses(self.store, clock, self.keys.identities, self.sessions.key_uses, long_known)
        self.key_sign_in = self._key_sign_in()
        self.pairings = self._pairings(codes)
        platform = platform or make_platform(lambda: self.settings, home, fleet.lease.engine_id if fleet else None)
        self.all_instances, self._instance_store = self._instances(store, platform)
        self.instances = self.all_instances.own
        self.certificate: str | None = None
        """SHA-256 fingerprint of the certificate that the server shows; None without TLS."""
        self.stopping = trio.Event()
        """Set when the engine is asked to stop: streams and other responses that are held open end then."""

    @property
    def runs(self) -> Saw:
        """What its records are to be judged by."""
        return Saw(charts=charts_digest(), shared=True if self.fleet is not None else UNSET)

    def _kept(self) -> tuple[int, int]:
        """For how many seconds the journal keeps records, and in how many bytes."""
        return self.settings.journal.days * 86_400, self.settings.journal.bytes

    def _remember_keys(self) -> None:
        """What was signed by a key that is rotated since can be verified later."""
        remember_keys(self.home / HEAD_KEYS, self.tokens.jwks())

    def _key_sign_in(self) -> KeySignIn:
        return KeySignIn(
            self.sessions,
            self.records,
            self.clock,
            self.keys,
            Challenges(self.clock, shared=self.fleet.lease if self.fleet else None),
            lambda: self.settings,
            lambda: self.own_key,
            self.key_uses.note,
            self.fleet,
        )

    def _pairings(self, store: Store) -> Pairings:
        def make(others: RemoteCodes | None) -> Pairings:
            start, end = self.sessions.start, self.sessions.end
            return Pairings(self.runtime, store, lambda: self.settings, start, end, self.fleet, others)

        if self._membership is None:
            return make(None)
        return self._membership.join_pairings(self.sessions, lambda: self.settings.limits.wrong_codes_total, make)

    def _instances(self, own: Store, platform: Platform) -> tuple[AllInstances, FleetInstanceStore | None]:
        def make(store: Store, taken_by: TakenBy = nobody_else) -> Instances:
            return Instances(
                self.runtime, store, platform, lambda: self.settings, self.home, taken_by, self._instances_allowed
            )

        if self._membership is None:
            return AllInstances(make(own), self.clock), None
        return self._membership.join_instances(own, self.runtime, make, lambda: self.stopping.is_set())

    def _key_types(self) -> tuple[str, ...]:
        return self.settings.key_types

    def _instances_allowed(self, identity: str) -> int | None:
        """How many live instances the line of a key allows it; None where it doesn't say."""
        grant = self.keys.find(identity)
        return None if grant is None or grant.options is None else grant.options.instances

    def _load_own_key(self) -> PublicKey:
        if self._membership is None or self._membership.keys is None:
            return load_own_key(self.home, self.keys)
        own = read_own_key(self.home)  # made, and authorized in the store, before there was an engine
        if own is None:
            raise EngineUnavailable(f"{self.home / PRIVATE_KEY} is missing: the next start makes one")
        return own

    def _load_license(self) -> License:
        return load_license(self.home / "license.jwt", self.settings.vendor_key, self.clock)

    def use_certificate(self, fingerprint: str, ends_at: float) -> None:
        """Take up the SHA-256 fingerprint of the certificate that the server shows from now on, and record where it is
        another one. `ends_at` is its end, in epoch seconds."""
        self.metrics.tell_certificate(ends_at)
        if fingerprint != self.certificate:
            self.records.notice("engine", self.identity, "certificate_shown", fingerprint)
        self.certificate = fingerprint

    async def start(self, *, run: bool) -> None:
        """Take up the sessions that the store holds, and end those whose key is gone. In a fleet `run` does that behind
        the first answers, where it follows."""
        if self.fleet is not None:
            await self.fleet.check_token_key(self.tokens.key_ids())
        if self.fleet is None or not run:
            await self.runtime.restore("session")
            await self.orphans.end_all()

    async def run(self, *, watch: bool = True, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Fire the delays and mind the instances, for ever; with `watch` also look for hand edits of authorized_keys,
        and at how late the event loop wakes."""
        async with trio.open_nursery() as nursery:
            if self._membership is not None:
                nursery.start_soon(self._membership.run, self.runtime, self.key_watch.follow)
                nursery.start_soon(kept_up, self.orphans.end_once, self._membership.fleet.wait_whole)
            nursery.start_soon(self.runtime.run)
            nursery.start_soon(kept_up, self.records.run)
            nursery.start_soon(kept_up, self.journal.run)
            nursery.start_soon(self._end_pairings)
            if watch:
                nursery.start_soon(kept_up, self.key_watch.run, self._follow_keys)
                nursery.start_soon(kept_up, self.key_uses.run, self.stopping)
                nursery.start_soon(kept_up, self.orphans.run, self._asks_elsewhere)
                nursery.start_soon(kept_up, self.metrics.watch_loop)
            await nursery.start(self.instances.run)
            if self._instance_store is not None:
                await nursery.start(self._instance_store.run)
            self.metrics.count(self.runtime)
            task_status.started()

    def _asks_elsewhere(self) -> bool:
        return bool(self.settings.authorized_keys_command)

    async def _follow_keys(self) -> None:
        """The keys' file was changed."""
        await self.orphans.end_all()
        await self.key_uses.follow()

    async def _end_pairings(self) -> None:
        await self.stopping.wait()
        try:
            await self.pairings.withdraw_all("engine_stopped")
        except Refusal as refused:
            log.warning("codes_not_withdrawn", why=refused.detail)  # they end with the engine

    def reload(self, also: Callable[[Settings], None] = lambda settings: None) -> tuple[str, ...]:
        """Take up settings, license, token keys and log file anew; the names of settings that wait for a restart.

        `also` takes up what others have of the settings; if it refuses, everything stays as it was.
        """
        self.journal.reopen()
        # Everything is read before anything is taken up, so that a file that can't be read changes nothing.
        settings, waiting = reload(self.settings, self._load())
        own_key, token_keys, license_ = (
            self._load_own_key(),
            load_token_keys(self.keys_in),
            self._load_license(),
        )
        also(settings)
        self.settings, self.own_key, self.license = settings, own_key, license_
        self.key_watch.use(*token_keys)
        self.records.notice("engine", self.identity, "reload", ", ".join(waiting) or None)
        return waiting

    def check_ready(self) -> None:
        """Raises StoreUnavailable where the engine is stopping, or no change can be stored now; FileRefused where the
        keys can't be read, so that nobody can sign in."""
        if self.stopping.is_set():
            raise StoreUnavailable("the engine is stopping", retry_after=5)
        self.own_store.check()
        if self.fleet is not None:
            self.fleet.check_fresh()
            self.fleet.check_leased()
        self.keys.find("")

    def why_not_ready(self) -> str | None:
        """Why the engine is not ready at the moment, in words for this host; None where it is."""
        try:
            self.check_ready()
        except Refusal as refused:
            return refused.why
        return None

    def measure_readiness(self) -> None:
        """Have the measurements say whether the engine is ready at the moment."""
        self.metrics.tell_ready(self.why_not_ready() is None)

    def status(self) -> dict[str, Any]:
        """What `engine status` shows of the engine itself. Times in epoch seconds, sizes in bytes."""
        deadlines = [actor.deadline for actor in self.runtime.actors("session") if actor.deadline]
        not_ready = self.why_not_ready()
        more = {"store": self.fleet.link.address.shown} if self.fleet else {}
        return more | {
            "ready": not_ready is None,
            "not_ready": not_ready,
            "identity": self.identity,
            "issuer": self.identity,
            "key": self.own_key.identity,
            "started_at": self.started_at,
            "sessions": len(deadlines),
            "codes": len(self.pairings),
            "instances": sum(map(is_live, self.runtime.actors("instance"))),
            "next_expiry": min(deadlines, default=None),
            "store_bytes": self.store.size(),
        }


def make_own_key_ahead(home: Path, settings: Settings) -> None:
    """Make the engine's own key ahead of its first start, unless another engine is at it. Raises FileRefused."""
    keys_in = keys_folder(home, settings)
    files.make_private_dir(home)
    with suppress(file_locks.LockHeld), file_locks.locked(home / "engine.lock", wait=False):
        if settings.keys == "store":
            make_own_key(home)
        else:
            load_own_key(home, AuthorizedKeys(keys_in / AUTHORIZED_KEYS))


@asynccontextmanager
async def open_engine(
    home: Path,
    load: Callable[[], Settings],
    clock: Clock | None = None,
    *,
    inline: bool = False,
    run: bool = True,
    store: Store | None = None,
    codes: Store | None = None,
    platform: Platform | None = None,
) -> AsyncIterator[Engine]:
    """An engine on `home`, running until left; `load` reads its settings, at start and at every reload.

    `inline` keeps the store's writes in this thread, for tests in virtual time. Without `run` no delay fires. `store`
    and `codes` stand in for the database and for the memory of pairing codes, `platform` for what runs instances; who
    brings a store closes it.
    Raises EngineUnavailable where another engine holds the folder, or the fleet's store can't be used; FileRefused
    where the folder isn't private.
    """
    clock = clock or SystemClock()
    os.umask(0o077)
    async with AsyncExitStack() as stack:
        _take_folder(stack, home)
        if store is None:
            store = database = SQLiteStore(_database(home), clock, inline=inline)
            stack.callback(database.close)
        membership = await _join(stack, home, load(), clock, store)
        identity = membership.identity if membership else await store.identity()
        engine = Engine(home, load, clock, store, codes or MemoryStore(clock), identity, membership, platform)
        stack.callback(engine.journal.close)
        stack.callback(engine.records.tell_surplus)
        await engine.start(run=run)
        async with trio.open_nursery() as nursery:
            if run:
                engine.records.notice("engine", engine.identity, "start", saw=engine.runs)
                if engine.journal.heads is not None:  # the token key may have been rotated while no engine ran
                    engine.key_watch.tell_token_key(engine.journal.heads.signed_by)
                await nursery.start(engine.run)
            try:
                yield engine
            except Exception as fault:
                if run and not engine.stopping.is_set():
                    engine.records.notice("engine", engine.identity, "stop", cause_of(fault))
                raise
            finally:
                nursery.cancel_scope.cancel()


async def _join(stack: AsyncExitStack, home: Path, settings: Settings, clock: Clock, own: Store) -> Membership | None:
    if not is_redis(settings.store):
        return None
    from hatchway.engine.fleet.membership import open_membership  # most engines are of no fleet, and load none of it

    return await stack.enter_async_context(open_membership(home, settings, clock, own))


def _take_folder(stack: AsyncExitStack, home: Path) -> None:
    files.make_private_dir(home)
    try:
        # `hatchway open` looks there for the command, which an environment in no PATH may have.
        command = str(installed_command() or "")
        stack.enter_context(file_locks.locked(home / "engine.lock", wait=False, says=command))
    except file_locks.LockHeld:
        raise EngineUnavailable(f"another engine runs on {home}: stop it with `hatchway engine stop`") from None


def _database(home: Path) -> Path:
    path = home / "engine.db"
    if path.exists():
        files.check_private(path)
    else:
        files.write_private(path, b"", overwrite=False)
    return path

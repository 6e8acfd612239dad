"""The store's contract, the same for every medium."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import msgspec
import pytest
import trio

from hatchway.engine.base.clock import SystemClock
from hatchway.engine.base.errors import EngineUnavailable, StoreUnavailable
from hatchway.engine.base.files import make_private_dir
from hatchway.engine.store import sqlite
from hatchway.engine.store.memory import MemoryStore
from hatchway.engine.store.protocol import AlreadyUsed, Change, Once, Store, Stored, VersionMoved
from hatchway.engine.store.sqlite import SQLiteStore
from hatchway.engine.store.sqlite_file import MIGRATIONS, SCHEMA_VERSION, open_database
from tests.support.redis_server import RedisServer, redis_store


class Facts(msgspec.Struct, frozen=True):
    """What the actors of these tests carry."""

    note: str
    many: tuple[str, ...] = ()


@pytest.fixture(params=["memory", "sqlite", "sqlite-inline", pytest.param("redis", marks=pytest.mark.redis)])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    """Each medium, empty."""
    clock = SystemClock()
    if request.param == "redis":
        async with redis_store(request.getfixturevalue("redis").url) as fleet:
            fleet.define({"session": Facts, "other": Facts})
            yield fleet
        return
    made: Store
    if request.param == "memory":
        made = MemoryStore(clock)
    else:
        made = SQLiteStore(tmp_path / "engine.db", clock, inline=request.param.endswith("inline"))
    made.define({"session": Facts, "other": Facts})
    yield made
    if isinstance(made, SQLiteStore):
        made.close()


def stored(version: int, state: str = "active", note: str = "") -> Stored:
    return Stored(version, state, 12.5, Facts(note))


def create(actor: str, *, once: Once | None = None, chart: str = "session") -> Change:
    return Change(chart, actor, 0, stored(1), once)


async def test_what_is_committed_is_loaded(store: Store) -> None:
    """State, version, deadline and facts come back as they were."""
    await store.commit(create("a"))
    await store.commit(Change("session", "a", 1, stored(2, note="ü")))
    assert await store.load("session", "a") == stored(2, note="ü")
    assert await store.load("session", "b") is None
    assert await store.load("other", "a") is None


async def test_equal_texts_take_memory_once(store: Store) -> None:
    """However many actors carry them: what was read for one is the very object that was read for another."""
    for actor in ("a", "b"):
        value = Stored(1, "active", None, Facts("an address", ("one", "two")))
        await store.commit(Change("session", actor, 0, value))
    (_, one), (_, other) = await store.live("session")
    assert one == other == value
    if not isinstance(store, MemoryStore):
        assert isinstance(one.facts, Facts)
        assert isinstance(other.facts, Facts)
        assert one.facts.note is other.facts.note
        assert one.facts.many is other.facts.many


async def test_a_moved_version_changes_nothing(store: Store) -> None:
    """Of two changes that start from one version the second fails, whole."""
    await store.commit(create("a"))
    await store.commit(Change("session", "a", 1, stored(2, note="first")))
    for late in (Change("session", "a", 1, stored(2, note="second")), create("a"), Change("session", "a", 1, None)):
        with pytest.raises(VersionMoved):
            await store.commit(late)
    assert await store.load("session", "a") == stored(2, note="first")


async def test_once_is_once(store: Store) -> None:
    """A nonce is used up in the same step as the session it starts; a second use stores nothing."""
    nonce = Once(b"nonce", 60)
    await store.commit(create("a", once=nonce))
    with pytest.raises(AlreadyUsed):
        await store.commit(create("b", once=nonce))
    assert await store.load("session", "b") is None


async def test_a_failed_step_uses_nothing_up(store: Store) -> None:
    """A nonce offered with a change that failed can still be used."""
    await store.commit(create("a"))
    with pytest.raises(VersionMoved):
        await store.commit(create("a", once=Once(b"n", 60)))
    await store.commit(create("b", once=Once(b"n", 60)))


async def test_once_is_forgotten_after_its_seconds(store: Store) -> None:
    """The used set does not grow for ever."""
    await store.commit(create("a", once=Once(b"n", 0.0)))
    await store.commit(create("b", once=Once(b"n", 60)))


async def test_removed_is_gone(store: Store) -> None:
    """A final step removes the actor; `live` lists what is left."""
    for actor in ("a", "b", "c"):
        await store.commit(create(actor))
    await store.commit(create("x", chart="other"))
    await store.commit(Change("session", "b", 1, None))
    assert sorted(name for name, _ in await store.live("session")) == ["a", "c"]


async def test_parallel_uses_of_one_nonce(store: Store) -> None:
    """Fifty at once: one wins."""
    won: list[str] = []

    async def attempt(actor: str) -> None:
        try:
            await store.commit(create(actor, once=Once(b"n", 60)))
        except AlreadyUsed:
            return
        won.append(actor)

    async with trio.open_nursery() as nursery:
        for number in range(50):
            nursery.start_soon(attempt, str(number))
    assert len(won) == 1
    assert [name for name, _ in await store.live("session")] == won


async def test_many_at_once(store: Store) -> None:
    """Those asked for, in their order; one that is not there is None."""
    for actor in ("a", "b"):
        await store.commit(create(actor))
    assert await store.load_many("session", ["b", "-", "a"]) == [stored(1), None, stored(1)]


async def test_sqlite_outlives_its_process(tmp_path: Path) -> None:
    """A second opening finds actors and identity."""
    path, clock = tmp_path / "engine.db", SystemClock()
    first = SQLiteStore(path, clock)
    first.define({"session": Facts})
    await first.commit(create("a"))
    identity = await first.identity()
    first.close()
    second = SQLiteStore(path, clock)
    second.define({"session": Facts})
    assert await second.live("session") == [("a", stored(1))]
    assert await second.identity() == identity
    assert second.size() > 0
    second.close()


def test_an_older_schema_is_brought_to_this_one(tmp_path: Path) -> None:
    """Nothing that it held is lost."""
    path = tmp_path / "engine.db"
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.executescript(MIGRATIONS[0])
        connection.execute("INSERT INTO engine VALUES ('urn:uuid:x')")
        connection.execute("INSERT INTO actors VALUES ('session', 'a', 1, 'active', NULL, x'80')")
        connection.execute("PRAGMA user_version = 1")
    with closing(open_database(path)) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (SCHEMA_VERSION,)
        assert connection.execute("SELECT identity, id FROM engine, actors").fetchall() == [("urn:uuid:x", "a")]
        assert (
            connection.execute("SELECT name FROM sqlite_master WHERE type = 'index' AND sql NOT NULL").fetchall() == []
        )


def test_the_first_release_does_not_start_on_a_folder_of_this_one(tmp_path: Path) -> None:
    """0.1.0 knows the schemas to 2. It would write a journal that no longer checks, and forget what sessions hold."""
    path = tmp_path / "engine.db"
    with closing(open_database(path)) as connection:
        assert connection.execute("PRAGMA user_version").fetchone()[0] > 2


def test_a_newer_schema_is_refused_in_words(tmp_path: Path) -> None:
    """An older Hatchway does not touch what it can't understand."""
    path = tmp_path / "engine.db"
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
    with pytest.raises(EngineUnavailable, match="newer Hatchway"):
        SQLiteStore(path, SystemClock())


def test_a_damaged_file_is_refused_in_words(tmp_path: Path) -> None:
    """The engine does not start empty over a broken store (D16)."""
    path = tmp_path / "engine.db"
    path.write_bytes(b"this is no database" * 1000)
    with pytest.raises(EngineUnavailable, match="restore it from a backup"):
        SQLiteStore(path, SystemClock())
    assert path.read_bytes().startswith(b"this is no database")


def refusal(path: Path) -> str:
    """Why no store is opened on a sound file, which is left as it was: nothing is told to be damaged."""
    before = path.read_bytes()
    with pytest.raises(EngineUnavailable) as refused:
        SQLiteStore(path, SystemClock())
    assert path.read_bytes() == before
    assert str(path) in refused.value.detail
    assert "move it away" not in refused.value.detail
    return refused.value.detail


def made(tmp_path: Path) -> Path:
    """A store's file in a private folder."""
    make_private_dir(tmp_path / "home")
    path = tmp_path / "home" / "engine.db"
    path.touch(0o600)
    SQLiteStore(path, SystemClock()).close()
    return path


@pytest.mark.parametrize("how", ["IMMEDIATE", "EXCLUSIVE"])
def test_a_file_that_another_program_holds_is_no_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """At the start: it is told who has it, and nobody is led to move the sessions away."""
    path = made(tmp_path)
    connect = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda *args, **more: connect(*args, **{**more, "timeout": 0.1}))
    with closing(connect(path, isolation_level=None)) as other:
        other.execute("PRAGMA locking_mode = " + ("EXCLUSIVE" if how == "EXCLUSIVE" else "NORMAL"))
        other.execute(f"BEGIN {how}")
        other.execute("UPDATE engine SET identity = identity")
        assert "held by another program" in refusal(path)


@pytest.mark.mount
def test_a_file_that_may_not_be_written_is_no_damage(tmp_path: Path) -> None:
    """An immutable one, and one beside which something stands in the way: each is named, with what mends it."""
    path = made(tmp_path)
    subprocess.run(["chattr", "+i", str(path)], check=True)
    try:
        assert "chattr -i" in refusal(path)
    finally:
        subprocess.run(["chattr", "-i", str(path)], check=True)
    wal = path.with_name("engine.db-wal")
    wal.unlink(missing_ok=True)
    wal.mkdir()
    assert "engine.db-wal is not a plain file" in refusal(path)
    wal.rmdir()
    SQLiteStore(path, SystemClock()).close()


async def test_damage_deep_in_the_file_is_told_in_words(tmp_path: Path) -> None:
    """Also where only the sessions' own pages are broken, or one of them is nothing that we wrote."""
    path = made(tmp_path)
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("INSERT INTO actors VALUES ('session', 'a', 1, 'active', NULL, x'c1')")
    store = SQLiteStore(path, SystemClock())
    store.define({"session": Facts})
    with pytest.raises(EngineUnavailable, match="restore it from a backup"):
        await store.live("session")
    store.close()
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("DELETE FROM engine")
    with pytest.raises(EngineUnavailable, match="restore it from a backup"):
        SQLiteStore(path, SystemClock())


async def test_a_store_that_cannot_be_written_says_so(tmp_path: Path) -> None:
    """A full disk refuses the change and spoils nothing that was there."""
    store = SQLiteStore(tmp_path / "engine.db", SystemClock())
    store.define({"session": Facts})
    await store.commit(create("a"))
    store._connection.execute("PRAGMA max_page_count = 1")
    store.check()
    with pytest.raises(StoreUnavailable):
        await store.commit(Change("session", "large", 0, stored(1, note="x" * 400_000)))
    store._connection.execute("PRAGMA max_page_count = 1000000")
    await store.commit(create("b"))
    store.check()
    assert await store.load("session", "a") == stored(1)
    store.close()


async def test_a_foreign_writer_is_waited_for_outside_the_event_loop(tmp_path: Path) -> None:
    """Somebody holds the file for a while: the commit waits for it, and the event loop for nobody."""
    path = tmp_path / "engine.db"
    store = SQLiteStore(path, SystemClock())
    store.define({"session": Facts})
    await store.commit(create("a"))
    foreign = sqlite3.connect(path, isolation_level=None)
    foreign.execute("BEGIN IMMEDIATE")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(store.commit, create("b"))
        nursery.start_soon(store.commit, create("c"))
        began = trio.current_time()
        for _ in range(3):
            await trio.sleep(0.05)
        assert trio.current_time() - began < 3
        assert sorted(name for name, _ in await store.live("session")) == ["a"]
        foreign.execute("ROLLBACK")
    assert sorted(name for name, _ in await store.live("session")) == ["a", "b", "c"]
    foreign.close()
    store.close()


async def test_a_foreign_writer_that_never_ends_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Past our patience the change is refused, and nothing of it is stored."""
    monkeypatch.setattr(sqlite, "PATIENCE", 0.1)
    path = tmp_path / "engine.db"
    store = SQLiteStore(path, SystemClock())
    store.define({"session": Facts})
    foreign = sqlite3.connect(path, isolation_level=None)
    foreign.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreUnavailable, match="locked"):
        await store.commit(create("a"))
    with pytest.raises(StoreUnavailable, match="locked"):
        store.check()
    foreign.execute("ROLLBACK")
    with pytest.raises(StoreUnavailable, match="locked"):
        store.check()  # it has been tried this second
    store._next_probe = 0
    store.check()
    await store.commit(create("b"))
    assert [name for name, _ in await store.live("session")] == ["b"]
    foreign.close()
    store.close()


async def test_another_program_that_looks_into_the_file(tmp_path: Path) -> None:
    """As the sqlite3 command or a backup does: it is never the last one, which removes the WAL, while the store has the
    file open. What is committed after it is in the file for everybody."""
    path = tmp_path / "engine.db"
    look = f"import sqlite3; [print(name) for name, in sqlite3.connect({str(path)!r}).execute('SELECT id FROM actors')]"
    store = SQLiteStore(path, SystemClock())
    store.define({"session": Facts})
    await store.commit(create("a"))
    await store.live("session")
    await store.load("session", "a")
    assert subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=True).stdout == "a\n"
    await store.commit(create("b"))
    store.check()
    assert subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=True).stdout == "a\nb\n"
    store.close()


async def test_a_wal_that_was_taken_away_is_missed(tmp_path: Path) -> None:
    """Commits are in it before they are in the file."""
    path = tmp_path / "engine.db"
    store = SQLiteStore(path, SystemClock())
    store.define({"session": Facts})
    await store.commit(create("a"))
    path.with_name("engine.db-wal").unlink()
    with pytest.raises(StoreUnavailable, match="moved or removed"):
        await store.commit(create("b"))
    with pytest.raises(StoreUnavailable, match="moved or removed"):
        store.check()
    store.close()


async def test_a_file_that_was_taken_away_is_missed(tmp_path: Path) -> None:
    """What was written to it would be gone at the next start: nothing is acknowledged, until it is back."""
    path = tmp_path / "engine.db"
    store = SQLiteStore(path, SystemClock())
    store.define({"session": Facts})
    path.rename(tmp_path / "elsewhere")
    for _ in range(2):
        with pytest.raises(StoreUnavailable, match="moved or removed"):
            await store.commit(create("a"))
        with pytest.raises(StoreUnavailable, match="moved or removed"):
            store.check()
        path.write_bytes((tmp_path / "elsewhere").read_bytes())  # the same in another file is not the same
    (tmp_path / "elsewhere").rename(path)
    await store.commit(create("b"))
    store.check()
    assert [name for name, _ in await store.live("session")] == ["b"]
    store.close()


async def test_a_commit_whose_caller_leaves_is_made_all_the_same(tmp_path: Path) -> None:
    """Cancelled meanwhile, it ends with the change stored; the cancellation comes after it."""
    store = SQLiteStore(tmp_path / "engine.db", SystemClock())
    store.define({"session": Facts})
    with trio.CancelScope() as scope:
        scope.cancel()
        await store.commit(create("a"))
        assert await store.load("session", "a") == stored(1)
        await trio.lowlevel.checkpoint()
    assert scope.cancelled_caught
    store.close()


@pytest.mark.redis
async def test_connections_that_break_are_not_missed(redis: RedisServer) -> None:
    """However many of its own connections a fleet's engine loses, it gets another."""
    async with redis_store(redis.url) as store:
        for _ in range(100):
            with pytest.raises(StoreUnavailable, match="missed"):  # noqa: PT012 - what is lost is lost inside
                async with store.link.one_connection() as ask:
                    await ask(b"PING")
                    raise StoreUnavailable("messages were missed")

"""What a fleet knows of its instances, over a real Redis: a name is taken once, and what is told comes right again."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from unittest.mock import patch

import pytest
import trio
from structlog.testing import capture_logs

from hatchway.engine.base.clock import SystemClock
from hatchway.engine.base.errors import (
    HostUnavailable,
    InstanceExists,
    InstanceNotFound,
    Refusal,
    StoreUnavailable,
    TooManyRequests,
)
from hatchway.engine.engine import open_engine
from hatchway.engine.fleet import change_reader, instance_store, remote_instances
from hatchway.engine.fleet.fleet import Fleet, open_fleet
from hatchway.engine.fleet.membership import Membership
from hatchway.engine.fleet.remote_calls import Caller
from hatchway.engine.fleet.roster import generation_of
from hatchway.engine.instances.instances import Instances, TakenBy
from hatchway.engine.instances.request import InstanceFields
from hatchway.engine.platforms import jobs_folder
from hatchway.engine.runtime import Runtime
from hatchway.engine.runtime.records import Record, Records
from hatchway.engine.settings.settings import Settings, SlurmSettings
from hatchway.engine.store.memory import MemoryStore
from hatchway.engine.store.protocol import Change, Store
from tests.support.fake_platform import ORIGIN, TestPlatform
from tests.support.fakes import effort
from tests.support.redis_server import RedisServer, speak

pytestmark = [pytest.mark.redis, pytest.mark.process]

ROUNDS = int(10 * effort())


class InstanceMember:
    """One engine's instances in a fleet, on a platform of the test's own."""

    def __init__(self, fleet: Fleet, own: MemoryStore, platform: TestPlatform) -> None:
        self.records: list[Record] = []
        self.allowed: int | None = None
        """What the key of whoever starts instances here allows."""
        self.runtime = Runtime(SystemClock(), Records(SystemClock(), self.records.append))
        self.place, known = Membership(fleet, "", None), Settings(registries=("docker.io",))
        self.fleet, self.roster, self.calls = fleet, self.place.roster, self.place.calls

        def make(store: Store, taken_by: TakenBy) -> Instances:
            allowance = lambda identity: self.allowed  # noqa: E731
            return Instances(self.runtime, store, platform, lambda: known, Path("/engine"), taken_by, allowance)

        self.everywhere, self.shared = self.place.join_instances(own, self.runtime, make, lambda: False)
        self.instances = self.everywhere.own

    async def start(self, name: str = "one") -> str:
        """The state it is in then, or the code of the refusal."""
        try:
            fields = InstanceFields("docker://x", identity=name, env=["SECRET=word"])
            return (await self.instances.start(fields, ORIGIN)).state
        except Refusal as refused:
            return refused.code

    async def listed(self) -> list[tuple[str, str, str, bool]]:
        seen = await self.everywhere.all()
        return [(one.identity, one.state, one.host, one.answers) for one in seen]

    async def until_listed(self, *rows: tuple[str, str, str, bool]) -> None:
        with trio.fail_after(20):
            while await self.listed() != list(rows):
                await trio.sleep(0.05)


class Host:
    """What of an engine survives it: its store, its containers, and the name that it has in the fleet."""

    def __init__(self, url: str, name: str) -> None:
        self.url, self.name = url, name
        self.store, self.platform = MemoryStore(SystemClock()), TestPlatform()
        self.platform.takes = 0.05

    @asynccontextmanager
    async def engine(self) -> AsyncIterator[InstanceMember]:
        with patch("socket.gethostname", lambda: self.name):
            place = open_fleet(self.url, SystemClock(), self.name, await self.store.identity())
            async with place as fleet, trio.open_nursery() as nursery:
                member = InstanceMember(fleet, self.store, self.platform)
                nursery.start_soon(member.place.run, member.runtime, trio.lowlevel.checkpoint)
                nursery.start_soon(member.runtime.run)
                await nursery.start(member.instances.run)
                await nursery.start(member.shared.run)
                yield member
                nursery.cancel_scope.cancel()


@pytest.fixture
def hosts(redis: RedisServer) -> tuple[Host, Host]:
    return Host(redis.url, "ash"), Host(redis.url, "elm")


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Comparisons come round within a test's time; these engines have no sessions."""
    monkeypatch.setattr(change_reader, "SHARED_CHARTS", ())
    monkeypatch.setattr(instance_store, "LOOK_INTERVAL", 0.1)
    monkeypatch.setattr(instance_store, "COMPARE_INTERVAL", 0.5)


Hosts = tuple[Host, Host]


async def test_a_name_is_taken_once(hosts: Hosts) -> None:
    """Of two engines that start one name at one time, one does; the other starts nothing."""
    async with hosts[0].engine() as a, hosts[1].engine() as b:
        for number in range(ROUNDS):
            came: list[str] = []

            async def race(member: InstanceMember, name: str, came: list[str] = came) -> None:
                came.append(await member.start(name))

            async with trio.open_nursery() as nursery:
                nursery.start_soon(race, a, f"n{number}")
                nursery.start_soon(race, b, f"n{number}")
            assert Counter(came) == {"running": 1, "instance_exists": 1}
        starts = [name for host in hosts for word, name in host.platform.told if word == "start"]
        assert sorted(starts) == sorted(f"n{number}" for number in range(ROUNDS))
        assert await a.listed() == await b.listed()


async def test_where_a_name_is_taken(hosts: Hosts) -> None:
    """The refusal names the host; what ended there gives its name free, and is shown no more once it is another's."""
    async with hosts[0].engine() as a, hosts[1].engine() as b:
        assert await a.start() == "running"
        with pytest.raises(InstanceExists, match="there already, on ash"):
            await b.instances.start(InstanceFields("docker://x", identity="one"), ORIGIN)
        await b.everywhere.stop("one", ORIGIN)
        assert await b.start() == "running"
        assert await a.listed() == await b.listed() == [("one", "running", "elm", True)]
        assert a.instances.show("one").state == "stopped"
        assert (await a.everywhere.find("one")).host == "elm"
        with capture_logs() as told:
            await a.shared._compare()
        assert told == []  # that a name went to another is no news
        assert await a.start() == "instance_exists"
        with pytest.raises(InstanceNotFound, match="no engine of this fleet"):
            await a.everywhere.find("two")


async def test_a_refused_start_costs_nothing(hosts: Hosts) -> None:
    """What ended here under a name that another host has by now is still there, with its exit code and log."""
    async with hosts[0].engine() as a, hosts[1].engine() as b:
        assert await a.start() == "running"
        await a.everywhere.stop("one", ORIGIN)
        assert await b.start() == "running"
        assert await a.start() == "instance_exists"
        assert a.instances.show("one").state == "stopped"


async def test_a_name_that_was_taken_for_nothing(hosts: Hosts) -> None:
    """An engine cut off between taking a name and storing the instance gives the name back when it is there again."""
    async with hosts[0].engine() as a:

        async def cut_off(change: Change) -> None:
            raise StoreUnavailable("as if it were killed")

        with patch.object(hosts[0].store, "commit", cut_off):
            assert await a.start() == "store_unavailable"
        a.shared._untold.clear()  # what is known of it dies with the process
        row = await a.roster.row("one")
    assert row is not None
    async with hosts[1].engine() as b:
        assert await b.start() == "instance_exists"
        async with hosts[0].engine():
            with trio.fail_after(20):
                while await b.start() != "running":
                    await trio.sleep(0.05)


async def test_nothing_older_comes_after(hosts: Hosts) -> None:
    """A telling that was late, of an earlier state or of an earlier instance's end, undoes nothing."""
    async with hosts[0].engine() as a:
        await a.start()
        row = await a.roster.row("one")
        assert row is not None
        assert await a.roster.enter("one", row.version - 1, True, row.told) == ""
        await a.roster.drop("one", generation_of(row.told.facts) + "9")
        assert await a.roster.row("one") == row


async def test_a_key_s_instances_are_counted_over_the_fleet(hosts: Hosts) -> None:
    """Starts at two engines at once, by a key with `instances="4"`: four run, and the others are refused for that; one
    that has ended makes room on either host."""
    told: Counter[str] = Counter()

    async def start(member: InstanceMember, number: int) -> None:
        told[await member.start(f"name{number}")] += 1

    async with hosts[0].engine() as a, hosts[1].engine() as b:
        a.allowed = b.allowed = 4
        async with trio.open_nursery() as nursery:
            for number in range(50):
                nursery.start_soon(start, (a, b)[number % 2], number)
        assert told == {"running": 4, "too_many_instances": 46}
        live = [name for name, state, *_ in await a.listed() if state == "running"]
        assert len(live) == 4
        await a.everywhere.stop(live[0], ORIGIN)
        assert await b.start("another") == "running"
        assert await a.start("yet-another") == "too_many_instances"


async def test_progress_is_told(hosts: Hosts) -> None:
    """What a start is doing reaches the others while it does it."""
    hosts[0].platform.takes = 60
    doing = "fetching image"
    hosts[0].platform.progress = lambda identity: doing  # type: ignore[method-assign]
    async with hosts[0].engine() as a, hosts[1].engine() as b, trio.open_nursery() as nursery:
        nursery.start_soon(a.start)
        for doing in ("fetching image", "creating container"):
            await _until(lambda seen, now=doing: seen.progress == now, b)
        nursery.cancel_scope.cancel()


async def _until(true: Callable[..., bool], member: InstanceMember) -> None:
    with trio.fail_after(20):
        while True:
            try:
                if true(await member.everywhere.find("one")):
                    return
            except InstanceNotFound:
                pass
            await trio.sleep(0.05)


async def test_away_and_forgotten(hosts: Hosts, redis: RedisServer) -> None:
    """An engine that is away keeps its instances' names until it is forgotten. Back, it tells of them again; where a
    name is another's by then, both go on, and each host shows its own."""
    async with hosts[0].engine() as a:
        assert (await a.start("one"), await a.start("two")) == ("running", "running")
        home = a.roster.engine_id
    async with hosts[1].engine() as b:
        await b.until_listed(("one", "running", "ash", False), ("two", "running", "ash", False))
        with pytest.raises(HostUnavailable, match="the engine on ash"):
            await b.everywhere.stop("one", ORIGIN)
        assert await b.start() == "instance_exists"
        speak(redis.port, "DEL", f"hatchway:home:{home}")
        assert await b.listed() == []
        assert await b.start() == "running"
        async with hosts[0].engine() as a:
            await b.until_listed(("two", "running", "ash", True), ("one", "running", "elm", True))
            assert [row[:3] for row in await a.listed()] == [("one", "running", "ash"), ("two", "running", "ash")]
            await b.everywhere.stop("one", ORIGIN)
            await b.until_listed(("one", "running", "ash", True), ("two", "running", "ash", True))


async def test_a_name_freed_by_hand(hosts: Hosts, redis: RedisServer) -> None:
    """As the handbook has it: of a host that is gone for good a name is free at once; a living engine tells again."""
    async with hosts[1].engine() as b:
        async with hosts[0].engine() as a:
            await a.start()
            assert speak(redis.port, "HDEL", "hatchway:instances", "one") == b":1\r\n"
            await b.until_listed(("one", "running", "ash", True))
        assert await b.start() == "instance_exists"
        speak(redis.port, "HDEL", "hatchway:instances", "one")
        assert await b.start() == "running"


async def test_a_row_of_a_newer_version(hosts: Hosts, redis: RedisServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """What one engine tells in words that another does not know yet hides nothing else, and is not guessed at."""
    monkeypatch.setattr(instance_store, "COMPARE_INTERVAL", 60)  # else its engine would put it right
    async with hosts[0].engine() as a, hosts[1].engine() as b:
        assert (await a.start("one"), await b.start("two")) == ("running", "running")
        row = speak(redis.port, "HGET", "hatchway:instances", "two").split(b"\r\n", 1)[1].split(b"|", 4)
        speak(redis.port, "HSET", "hatchway:instances", "two", "|".join([*(part.decode() for part in row[:4]), "?"]))
        with capture_logs() as said:
            assert await a.listed() == [("one", "running", "ash", True)]
        assert [line["name"] for line in said if line["event"] == "instance_not_understood"] == ["two"]
        with pytest.raises(StoreUnavailable, match="newer version"):
            await a.everywhere.find("two")


async def test_a_store_that_forgot(hosts: Hosts, redis: RedisServer) -> None:
    """Told again of everything, from what each engine has itself."""
    async with hosts[0].engine() as a, hosts[1].engine() as b:
        await a.start()
        await b.start("two")
        before = await a.listed()
        speak(redis.port, "DEL", "hatchway:instances")
        await b.until_listed(*before)
        await a.until_listed(*before)


async def test_logs_read_at_once(hosts: Hosts, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Beyond the most that an engine hands on at once one is refused; a reader that leaves makes room."""
    monkeypatch.setattr(remote_instances, "READ_AT_ONCE", 1)
    monkeypatch.setattr(remote_instances, "READ_HELD", 0.1)
    log = tmp_path / "log"
    log.write_bytes(b"said\n")
    hosts[0].platform.log = lambda started, stream: (log, 0)  # type: ignore[method-assign]
    async with hosts[0].engine() as a, hosts[1].engine() as b:
        await a.start()
        first = await b.everywhere.read("one", "out", lambda: True)
        with pytest.raises(TooManyRequests):
            await b.everywhere.read("one", "out", None)
        assert await anext(first) == b"said\n"
        with pytest.raises(TooManyRequests):
            await b.everywhere.read("one", "out", None)
        await first.aclose()
        pieces = [piece async for piece in await b.everywhere.read("one", "out", None)]
        assert pieces == [b"said\n"]


async def test_a_log_that_never_pauses(hosts: Hosts, tmp_path: Path) -> None:
    """Followed at its own host or another, it ends with what lets it go on, however much is still being written."""
    log, name = tmp_path / "log", "one"
    hosts[0].platform.log = lambda started, stream: (log, 0)  # type: ignore[method-assign]
    async with hosts[0].engine() as a, hosts[1].engine() as b:
        await a.start(name)
        for reader in (a, b):
            log.write_bytes(b"said\n")
            allowed = iter((True, False))
            pieces = await reader.everywhere.read(name, "out", partial(next, allowed))
            assert await anext(pieces) == b"said\n"
            log.write_bytes(b"said\nmore\n")
            assert [piece async for piece in pieces] == []


async def test_a_start_that_is_left(hosts: Hosts) -> None:
    """Who leaves while what had the name before is cleared away leaves nothing of it behind: the start goes on."""
    async with hosts[0].engine() as a:
        await a.start()
        await a.everywhere.stop("one", ORIGIN)
        dropping = trio.Event()

        async def slow(name: str, generation: str) -> None:
            dropping.set()
            await trio.sleep(0.1)

        async with trio.open_nursery() as nursery:
            with patch.object(a.roster, "drop", slow):
                nursery.start_soon(a.start)
                await dropping.wait()
                nursery.cancel_scope.cancel()
                await trio.lowlevel.cancel_shielded_checkpoint()
        await a.until_listed(("one", "running", "ash", True))
        assert hosts[0].platform.words("forget") == 1


async def test_an_engine_that_hangs(hosts: Hosts, monkeypatch: pytest.MonkeyPatch) -> None:
    """Alive by its lease, it answers nothing: who asks waits so long, and no longer."""
    monkeypatch.setattr(remote_instances, "STOPPED_WITHIN", 0.5)
    async with hosts[0].engine() as a, hosts[1].engine() as b:
        await a.start()
        with patch.dict(a.calls.methods, {"stop": _never}), pytest.raises(HostUnavailable, match="on ash"):
            await b.everywhere.stop("one", ORIGIN)


async def _never(body: bytes, caller: Caller) -> bytes:
    await trio.sleep_forever()


async def test_a_reply_to_a_caller_that_seems_gone(
    hosts: Hosts, redis: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the store was away leases are renewed one by one: a reply does not wait for its caller's."""
    monkeypatch.setattr(remote_instances, "STOPPED_WITHIN", 10)
    async with hosts[0].engine() as a, hosts[1].engine() as b:
        await a.start()
        stop = a.calls.methods["stop"]

        async def stop_and_lapse(body: bytes, caller: Caller) -> bytes:
            answer = await stop(body, caller)
            speak(redis.port, "DEL", f"hatchway:engine:{b.fleet.lease.run_id}")
            return answer

        with patch.dict(a.calls.methods, {"stop": stop_and_lapse}):
            assert (await b.everywhere.stop("one", ORIGIN)).state == "stopped"


async def test_a_fault_of_the_other_engine(hosts: Hosts) -> None:
    """It is told as such, and the calls after it are answered."""
    async with hosts[0].engine() as a, hosts[1].engine() as b:
        await a.start()
        fault = partial(_raise, ValueError("a fault of ours"))
        with patch.dict(a.calls.methods, {"stop": fault}), pytest.raises(HostUnavailable, match="log has why"):
            await b.everywhere.stop("one", ORIGIN)
        assert (await b.everywhere.stop("one", ORIGIN)).state == "stopped"


async def _raise(error: Exception, body: bytes, caller: Caller) -> bytes:
    raise error


async def test_folders_of_jobs(redis: RedisServer, tmp_path: Path) -> None:
    """Where `slurm.folder` is one for the fleet, each engine has a part of it, the same one at its next start."""
    settings = Settings(store=redis.url, platform="slurm", slurm=SlurmSettings(folder=tmp_path / "jobs"))
    told = []
    for name in ("a", "b", "a"):
        async with open_engine(tmp_path / name, lambda: settings, run=False) as engine:
            assert engine.fleet is not None
            told.append(jobs_folder(engine.settings, engine.home, engine.fleet.lease.engine_id))
    assert told[0] == told[2] != told[1]
    assert {folder.parent for folder in told} == {tmp_path / "jobs"}

"""A full run seen through its records: one for each step and refusal, all of one schema, and no secret in any."""

from __future__ import annotations

import io
import json
import logging
import re
import time
from collections.abc import AsyncIterator, Iterator
from itertools import product
from pathlib import Path
from typing import Any

import msgspec
import pytest
import structlog
import trio
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from msgspec import UnsetType

from hatchway.api.http.app import make_app
from hatchway.api.http.schema.openapi import record_schema
from hatchway.engine.base.clock import SYSTEM_CLOCK, TrioClock
from hatchway.engine.base.permissions import FIVE
from hatchway.engine.engine import Engine
from hatchway.engine.journal import logs
from hatchway.engine.journal.files import CURRENT, SealedRecord
from hatchway.engine.journal.journal import FileJournal
from hatchway.engine.journal.logs import set_up_logs
from hatchway.engine.keys.key_edits import edit
from hatchway.engine.runtime.actors import RegisteredChart
from hatchway.engine.runtime.records import SURPLUS_INTERVAL, Origin, Record, Records, Saw
from hatchway.engine.settings.settings import LogSettings
from hatchway.statecharts.catalogue import CHARTS
from hatchway.statecharts.chart import NONE, Chart
from tests.support.fakes import Browser, Reply, jump, key, sign_in, signed, virtual_engine, watch_of
from tests.support.virtual_pairings import OPERATOR, Host, claim

pytestmark = pytest.mark.virtual_time

VERIFY = "/api/auth/verify/"


@pytest.fixture
def log() -> Iterator[io.StringIO]:
    """The engine's log at its most talkative."""
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    stream = io.StringIO()
    writer = set_up_logs(LogSettings(level="debug"), stream)
    yield stream
    writer.close()
    root.handlers, root.level = before, level
    structlog.reset_defaults()
    logs._quick = None


@pytest.fixture
async def engine(home: Path, log: io.StringIO) -> AsyncIterator[Engine]:
    async with virtual_engine(home, TrioClock()) as made:
        yield made


class Run:
    """Everything that sessions and pairings can go through, and the secrets that were seen on the way."""

    def __init__(self, engine: Engine) -> None:
        self.engine, self.host = engine, Host(engine)
        self.browser = Browser(make_app(engine))
        self.secrets: set[str] = set()

    async def sign_in(self, **more: Any) -> str:
        session = await sign_in(self.browser, **more)
        self.secrets.add(session["token"])
        token: str = session["token"]
        return token

    async def sessions(self) -> None:
        """Every way a session begins, goes on and ends."""
        token = await self.sign_in()
        renewed = await self.browser.post("/api/auth/renew/", token=token)
        self.secrets.add(renewed.json()["token"])
        await self.browser.post("/api/auth/logout/", token=token)
        short = await self.sign_in(lifetime="1m")
        await jump(61)
        await self.browser.get("/api/auth/inspect/", token=short)
        await self.sign_in(lifetime="24h")
        sooner = {"expiry-time": time.strftime("%Y%m%d%H%M%SZ", time.gmtime(self.engine.clock.wall() + 36_000))}
        self.engine.keys.edit(lambda data: edit(data, key().identity, options=sooner))
        await trio.sleep(2.5)
        await self.engine.sessions.end_all_of({key().identity}, OPERATOR)

    async def failures(self) -> None:
        """Sign-ins that fail, each for another reason."""
        nonce = (await self.browser.get("/api/auth/challenge/")).json()["nonce"]
        good = signed(nonce, key())
        await self.browser.post(VERIFY, good)
        stranger = signed((await self.browser.get("/api/auth/challenge/")).json()["nonce"], key("stranger"))
        for body in (
            good,
            stranger,
            {"nonce": "made up", "signature": "QUFB" * 20},
            {"nonce": nonce, "signature": "no base64"},
        ):
            assert (await self.browser.post(VERIFY, body)).status == 401
            self.secrets |= {body["nonce"], body["signature"]}
        await self.browser.post("/api/auth/pair/request/", {"code": "ZZZZ9999"})
        self.secrets.add("ZZZZ9999")

    async def pairings(self, nursery: trio.Nursery) -> None:
        """Every way a pairing ends."""
        for approved in (True, False):
            issued, reply = await self.claimed(nursery)
            await self.host.answer(issued, approved)
            await reply.done.wait()
            self.secrets.add(reply.lines()[-1].get("token", "-" * 30))
        await self.issued()
        await jump(31)
        await self.claimed(nursery)
        await jump(31)
        await self.engine.pairings.withdraw((await self.issued()).id, OPERATOR)
        issued, _ = await self.claimed(nursery)
        await self.engine.pairings.withdraw(issued.id, OPERATOR)
        _, reply = await self.claimed(nursery)
        reply.hang_up.set()
        await reply.done.wait()

    async def issued(self) -> Any:
        issued = await self.host.print_code()
        self.secrets |= {issued.code, issued.code.replace("-", "")}
        return issued

    async def claimed(self, nursery: trio.Nursery) -> tuple[Any, Reply]:
        issued = await self.issued()
        return issued, await claim(nursery, self.browser, issued.code)


async def full_run(engine: Engine, nursery: trio.Nursery) -> Run:
    run = Run(engine)
    await run.sessions()
    await run.failures()
    await run.pairings(nursery)
    engine.reload()
    return run


def lines(engine: Engine) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (engine.home / "log" / "events.jsonl").read_text().splitlines()]


async def test_all_that_is_logged_has_one_schema(engine: Engine, nursery: trio.Nursery) -> None:
    """Every line of the log of a full run is valid by the record's JSON Schema, which lets nothing else through."""
    await full_run(engine, nursery)
    schema = record_schema()
    Draft202012Validator.check_schema(schema)
    validator = Draft202012Validator(schema)
    found = lines(engine)
    assert len(found) > 30
    for record in found:
        validator.validate(record)
    assert {record["kind"] for record in found} == {"transition", "refusal", "notice"}
    for spoilt in (found[0] | {"more": 1}, {"seq": 1}, found[0] | {"seq": "1"}, found[0] | {"kind": "other"}):
        assert not validator.is_valid(spoilt)


@pytest.mark.parametrize("chart", [CHARTS["pairing"], CHARTS["session"]], ids=lambda chart: chart.name)
async def test_every_row_leaves_its_record(engine: Engine, nursery: trio.Nursery, chart: Chart) -> None:
    """Each row of the chart is taken in the full run, and its record says source, event, target and effects."""
    await full_run(engine, nursery)
    found = {
        (record.source, record.event, record.target, record.effects)
        for record in watch_of(engine).records
        if record.chart == chart.name and record.kind == "transition"
    }
    assert found == {(row.state, row.event, row.target, row.effects) for row in chart.rows}


async def test_records_say_who_and_why(engine: Engine, nursery: trio.Nursery) -> None:
    """Identity, address and request of whoever acted; failures have causes that their answers did not tell."""
    await full_run(engine, nursery)
    records = watch_of(engine).records
    started = [record for record in records if (record.chart, record.event) == ("session", "start") and record.target]
    assert {record.identity for record in started} >= {key().identity}
    assert all(record.address == "127.0.0.1" and record.request_id for record in started)
    causes = [record.cause for record in records if record.kind == "refusal" and record.chart == "session"]
    assert len(set(causes)) >= 3
    assert all(causes)
    elapsed = [record for record in records if record.event.endswith("elapsed")]
    assert elapsed
    assert all(record.identity is None and record.request_id is None for record in elapsed)
    assert [record.seq for record in records] == sorted({record.seq for record in records})


async def test_no_secret_is_ever_logged(engine: Engine, nursery: trio.Nursery, log: io.StringIO) -> None:
    """No token, nonce, signature, code or key of the run is in the events, the log, the metrics or the store."""
    run = await full_run(engine, nursery)
    await trio.sleep(1)
    assert len(run.secrets) > 15
    kept = [
        path.read_bytes() for path in engine.home.rglob("*") if path.is_file() and path.suffix not in (".pem", ".pub")
    ]
    text = log.getvalue() + engine.metrics.text().decode() + b"\n".join(kept).decode("latin-1")
    assert "session.start" in text
    assert [secret for secret in run.secrets if secret in text] == []
    assert not re.search(r"BEGIN [A-Z ]*PRIVATE KEY", text)


async def test_the_surplus_is_told_each_second(nursery: trio.Nursery) -> None:
    """For as long as there is any: one record stands for a second's refusals, and numbers have no gap."""
    told: list[Record] = []
    records, stranger = Records(TrioClock(), told.append, last_seq=7), Origin(None, "192.0.2.1", None)
    nursery.start_soon(records.run)
    for _ in range(2):
        await trio.sleep(5)
        for _ in range(3):
            records.surplus("session", "start", stranger)
            await trio.sleep(SURPLUS_INTERVAL / 4)
        await trio.sleep(5)
    nursery.cancel_scope.cancel()
    assert [(record.seq, record.address, record.count) for record in told] == [(8, "192.0.2.1", 3), (9, "192.0.2.1", 3)]


def test_no_field_of_a_record_is_free_text() -> None:
    """The fields, in order, are the agreed ones: none that a secret would be put in."""
    assert tuple(record_schema()["properties"]) == SealedRecord.__struct_fields__
    assert tuple(record_schema()["properties"]["saw"]["properties"]) == Saw.__struct_fields__
    assert Saw.__struct_fields__ == ("at", "of", "now", "deadline", "proof", "asked", "held", "charts", "shared")
    assert SealedRecord.__struct_fields__ == (
        "time",
        "seq",
        "kind",
        "chart",
        "actor",
        "event",
        "source",
        "target",
        "effects",
        "identity",
        "address",
        "request_id",
        "cause",
        "count",
        "saw",
        "traceparent",
        "label",
        "comment",
        "schema",
        "prev",
        "lost",
        "hash",
    )


async def test_a_record_is_little_longer_for_what_it_proves(engine: Engine, nursery: trio.Nursery) -> None:
    """At most 60 bytes for each record: what was decided on, and the hash. The first one of a file tells more."""
    await full_run(engine, nursery)
    told = [record for record in lines(engine) if "schema" not in record]
    assert {record["chart"] for record in told} >= {"session", "pairing"}
    assert [record for record in told if added(record) > 60] == []


def added(record: dict[str, Any]) -> int:
    """The bytes of what a record proves."""
    told = {name: value for name, value in record.items() if name not in ("saw", "hash")}
    return len(msgspec.json.encode(record)) - len(msgspec.json.encode(told))


@pytest.mark.parametrize("chart", CHARTS.values(), ids=CHARTS)
def test_no_kind_of_record_is_much_longer(chart: Chart, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At most 60 bytes in every state of every chart, on a host that has been up for years, in each millisecond of the
    longest delay; and where permissions were asked and held, their names besides."""
    clock, journal = TrioClock(), FileJournal(home / "log", SYSTEM_CLOCK)
    monkeypatch.setattr(clock, "wall", lambda: 1_890_123_456.1234567)
    monkeypatch.setattr(clock, "elapsed", lambda: 123_456_789.12345678)
    rules = {delay.seconds: lambda facts, now: now + 600.0 for delay in chart.delays.values()}
    named = {name: rule for name, rule in rules.items() if isinstance(name, str)}
    effects = dict.fromkeys(chart.effects, lambda actor, data: None)
    registered, records = RegisteredChart(chart, clock, effects, named, keep=False), Records(clock, journal)
    origin = Origin("operator", "192.0.2.1", "ab-1")
    asking = origin._replace(asked="RUNTIME", held=FIVE)
    for state, event in product(sorted(chart.states), sorted({row.event for row in chart.rows})):
        since = 123_456_789.87654321 - 599.0
        proof = {"proof": "signature"} if (state, event) == (NONE, "start") else {}
        wall = state in registered.timings and registered.timings[state].clock == "wall"
        now, deadline = (1_890_123_456.1234567, 1_890_127_056.0) if wall else (clock.elapsed(), since + 600.0)
        data = {"now": now, "since": since, "deadline": deadline, **proof}
        for who in (origin, asking):
            records.transition(chart.name, "a", event, state, "b", (), who, None, *registered.seen(state, data))
            records.refusal(chart.name, "a", event, "no_row", who, state, *registered.seen(state, data))
    journal.close()
    _, *told = map(json.loads, (home / "log" / CURRENT).read_text().splitlines())
    names = len(msgspec.json.encode({"asked": "RUNTIME", "held": FIVE}))
    assert max(added(record) for record in told if "asked" not in record.get("saw", {})) <= 60
    assert max(added(record) for record in told if "asked" in record.get("saw", {})) <= 60 + names


@given(
    st.floats(0, 1e9, allow_subnormal=False),
    st.sampled_from([30.0, 60.0, 600.0]),
    st.floats(0, 1.5) | st.floats(1 - 1e-9, 1 + 1e-9),
)
def test_a_rounded_time_decides_as_the_whole_one(since: float, seconds: float, share: float) -> None:
    """What a record tells of a delay is on the same side of the deadline as what was compared."""
    now, deadline = since + seconds * share, since + seconds
    chart = CHARTS["pairing"]
    effects = dict.fromkeys(chart.effects, lambda actor, data: None)
    registered = RegisteredChart(chart, TrioClock(), effects, {}, keep=False)
    seen, _ = registered.seen("issued", {"now": now, "since": since, "deadline": deadline})
    assert isinstance(seen, Saw)
    at, of = seen.at, seen.of
    assert not isinstance(at, UnsetType)
    assert not isinstance(of, UnsetType)
    assert (at < of) == (now < deadline)
    assert of == seconds
    assert abs(at - (now - since)) < 0.0011

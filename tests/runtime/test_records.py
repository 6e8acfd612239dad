"""A full run seen through its records: one for each step and refusal, all of one schema, and no secret in any."""

from __future__ import annotations

import io
import json
import logging
import re
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog
import trio
from jsonschema import Draft202012Validator

from hatchway.api.http.app import make_app
from hatchway.api.http.schema.openapi import record_schema
from hatchway.engine.base.clock import TrioClock
from hatchway.engine.engine import Engine
from hatchway.engine.journal.files import SealedRecord
from hatchway.engine.journal.logs import set_up_logs
from hatchway.engine.keys.key_edits import edit
from hatchway.engine.runtime.records import Saw
from hatchway.engine.settings.settings import LogSettings
from hatchway.statecharts.catalogue import CHARTS
from hatchway.statecharts.chart import Chart
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


def test_no_field_of_a_record_is_free_text() -> None:
    """The fields, in order, are the agreed ones: none that a secret would be put in."""
    assert tuple(record_schema()["properties"]) == SealedRecord.__struct_fields__
    assert tuple(record_schema()["properties"]["saw"]["properties"]) == Saw.__struct_fields__
    assert Saw.__struct_fields__ == ("now", "deadline", "proof", "asked", "held", "charts", "shared")
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
        "schema",
        "prev",
        "lost",
        "hash",
    )


async def test_a_record_is_little_longer_for_what_it_proves(engine: Engine, nursery: trio.Nursery) -> None:
    """At most 60 bytes for each record of a session, and on average: what was decided on, and the hash."""
    await full_run(engine, nursery)
    more = []
    for record in lines(engine):
        told = {name: value for name, value in record.items() if name not in ("saw", "hash", "schema", "prev")}
        extra = len(json.dumps(record, separators=(",", ":"))) - len(json.dumps(told, separators=(",", ":")))
        if "schema" not in record:
            more.append(extra)
            assert record["chart"] != "session" or extra <= 60, record
    assert sum(more) / len(more) <= 60

"""The past is read in pages, found by what is asked, and how things stood before any record is told as it was."""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog

from hatchway.engine.journal import history as history_module
from hatchway.engine.journal import journal as journal_module
from hatchway.engine.journal.files import read_after, segments
from hatchway.engine.journal.history import Question, page, segments_since
from hatchway.engine.journal.overview import Overview, standing_at
from hatchway.statecharts.catalogue import CHARTS
from tests.support.generated_journal import Generated, kept_whole
from tests.support.timing import kept


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Generated]:
    """A few thousand records in some dozen files, of an engine that was killed once and still runs."""
    patch = pytest.MonkeyPatch()
    patch.setattr(journal_module, "SEGMENT_BYTES", 60_000)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    for _ in kept_whole():
        generated = Generated(tmp_path_factory.mktemp("history") / "log")
        generated.start()
        generated.work(1500)
        generated.start()
        generated.work(1500)
        assert len(segments(generated.folder)) > 12
        yield generated
    structlog.reset_defaults()
    patch.undo()


def everything(made: Generated) -> list[dict[str, Any]]:
    return [json.loads(line.data) for lines in read_after(made.folder, 0) for line in lines]


def pages(made: Generated, question: Question, limit: int, after: int | None = None) -> list[int]:
    found: list[int] = []
    while True:
        one = page(made.folder, question, after, limit)
        assert len(one.lines) <= limit
        found += [line.seq for line in one.lines]
        if one.next is None:
            return found
        assert after is None or one.next > after
        after = one.next


@pytest.mark.parametrize("limit", [1, 7, 1000])
def test_every_question_is_answered_in_pages(made: Generated, limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """By actor, identity, address, kind, chart, event and time, and by several at once: all that fit, each once, in
    order, however little is looked through for a page."""
    monkeypatch.setattr(history_module, "SCANNED", 50_000)
    records = everything(made)
    dice = random.Random(limit)
    for _ in range(20):
        like, begin = dice.choice(records), dice.choice(records)["time"]
        names = dice.sample(["actor", "identity", "address", "kind", "chart", "event"], dice.randrange(3))
        wanted = {name: like[name] for name in names if like[name] is not None}
        since = begin if dice.random() < 0.5 else None
        until = begin + 5000 if dice.random() < 0.5 else None
        expected = [
            record["seq"]
            for record in records
            if all(record[name] == value for name, value in wanted.items())
            and record["time"] >= (since or 0)
            and record["time"] <= (until or 1e12)
        ]
        if limit == 1:
            expected_page = page(made.folder, Question(**wanted, since=since, until=until), None, 1)
            assert [line.seq for line in expected_page.lines] == expected[:1] or expected_page.next is not None
        else:
            assert pages(made, Question(**wanted, since=since, until=until), limit) == expected


@pytest.mark.parametrize("segment_bytes", [2_000, 60_000])
@pytest.mark.parametrize("slip", [1800, 5000, 365 * 86_400])
def test_a_clock_that_was_wrong_for_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, segment_bytes: int, slip: int
) -> None:
    """As after a boot or a resume, half an hour or a year ahead: what was recorded once it was right is found all the
    same, however little is read at once."""
    monkeypatch.setattr(journal_module, "SEGMENT_BYTES", segment_bytes)
    monkeypatch.setattr(history_module, "LOOKED_THROUGH", 1000)
    made = Generated(tmp_path / "log")
    begin = made.clock.now
    for ahead in (0, slip, 0):
        made.clock.now += ahead
        made.work(30)
        made.clock.now -= ahead
    made.clock.now += 3600
    after = made.journal.last_seq
    made.work(30)
    right = [one["seq"] for one in everything(made) if begin <= one["time"] <= begin + 3000]
    assert len(right) >= 60
    assert right[-1] == after
    assert pages(made, Question(since=begin, until=begin + 3000), 20) == right


def test_a_page_goes_on_after_any_number(made: Generated) -> None:
    """And begins in the file that holds the next."""
    for after in (0, 1, 777, 2000, 2998):
        assert page(made.folder, Question(), after, 3).lines[0].seq == after + 1
    last = made.journal.last_seq
    assert page(made.folder, Question(), last, 3).lines == []


def test_no_value_passes_for_a_field(made: Generated) -> None:
    """What stands in one field is not found in another, nor are quotes in it."""
    assert pages(made, Question(actor='x","event":"start'), 1000) == []
    assert pages(made, Question(identity="operator"), 1000) != []
    assert pages(made, Question(actor="operator"), 1000) == []


def test_how_things_stood(made: Generated) -> None:
    """Before any record, of any chart: as a reader of the whole journal would have counted."""
    states: Counter[tuple[str, str]] = Counter()
    overview, records = Overview(made.folder), everything(made)
    final = {(chart.name, state) for chart in CHARTS.values() for state in (*chart.final, "none")}
    expected: dict[int, Counter[tuple[str, str]]] = {}
    for record in records:
        expected[record["seq"]] = +Counter({key: count for key, count in states.items() if key not in final})
        if record["kind"] == "transition":
            states[record["chart"], record["source"]] -= 1
            states[record["chart"], record["target"]] += 1
        elif record["event"] == "start":
            for key in [key for key in states if key[0] == "pairing"]:
                del states[key]
    now = Counter({key: count for key, count in states.items() if key not in final})
    for seq in (1, 2, 500, 1499, 1502, 1503, 2222, made.journal.last_seq):
        told = overview.states_before(seq, now, made.journal.last_seq)
        assert +Counter({key: count for key, count in told.items() if key not in final}) == expected[seq], seq
    moment = records[1000]["time"]
    assert standing_at(made.folder, moment) == (expected[1002], 1001)


def test_a_burst_is_seen(made: Generated) -> None:
    """Sign-ins, refusals and live sessions over the time shown, in at most so many stretches."""
    records = everything(made)
    since, until = records[300]["time"], records[-1]["time"]
    steps = [record for record in records if (record["chart"], record["kind"]) == ("session", "transition")]
    live = sum((record["event"] == "start") - (record["target"] in ("ended", "expired")) for record in steps)
    plot = Overview(made.folder).plot(since, until, 40, live)
    assert len(plot.sign_ins) == len(plot.refusals) == len(plot.sessions) <= 40
    shown = [record for record in records if plot.since <= record["time"] < plot.since + plot.step * 40]
    assert sum(plot.sign_ins) == sum(record["event"] == "start" and record in steps for record in shown)
    assert sum(plot.refusals) == sum(record["kind"] == "refusal" for record in shown)
    assert plot.sessions[-1] == live


def test_a_moment_is_found_at_once(made: Generated) -> None:
    """A page by moment takes less than 200 ms, wherever it begins."""
    records = everything(made)
    dice = random.Random(0)
    moments = [dice.uniform(records[0]["time"], records[-1]["time"]) for _ in range(200)]

    def slowest() -> float:
        spent = []
        for moment in moments:
            began = time.perf_counter()
            assert page(made.folder, Question(since=moment), None, 200).lines[0].seq > 1
            spent.append(time.perf_counter() - began)
        return sorted(spent)[197]

    kept(0.2, slowest)
    assert segments_since(made.folder, records[-1]["time"])[-1] == segments(made.folder)[-1]


def test_nothing_is_no_error(tmp_path: Path) -> None:
    """Before the first engine's start."""
    assert page(tmp_path / "log", Question(), None, 10).lines == []
    assert standing_at(tmp_path / "log", 1e9) == (Counter(), 0)
    assert Overview(tmp_path / "log").plot(0.0, 3600.0, 60, 0).sign_ins == [0] * 52

"""What operators read at the terminal: events with the engine up or down, charts, and the engine's status."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import click
import httpx
import pytest
from click.testing import CliRunner, Result

from hatchway.api.cli import cli
from hatchway.engine.journal.journal import FileJournal
from hatchway.engine.runtime.records import Origin, Records
from hatchway.statecharts.catalogue import CHARTS
from hatchway.statecharts.draw.render import FORMATS
from tests.support.fakes import MovedClock
from tests.support.processes import EngineProcess, running_engine, sign_in
from tests.support.terminal import terminal

pytestmark = pytest.mark.usefixtures("command_folder")


def start_session(actor: str, records: Records) -> None:
    records.transition("session", actor, "start", "none", "active", ())


def run(*arguments: str, code: int = 0) -> Result:
    done = CliRunner().invoke(cli, arguments)
    assert done.exit_code == code, done.output
    return done


def write(home: Path, ago: float, tell: Callable[[Records], None]) -> None:
    """Records as an engine wrote them some seconds ago."""
    clock = MovedClock(-ago)
    home.mkdir(mode=0o700, exist_ok=True)
    journal = FileJournal(home / "log", clock)
    tell(Records(clock, journal, last_seq=journal.last_seq))
    journal.close()


@pytest.fixture
def told(home: Path) -> None:
    """A pairing an hour and a half ago, a refused sign-in now."""
    origin = Origin("operator", "192.0.2.1", "ab-1")
    write(home, 5400, lambda records: records.transition("pairing", "p1", "issue", "none", "issued", ("a",), origin))
    write(home, 0, lambda records: records.refusal("session", "-", "start", "wrong_signature", origin))


@pytest.mark.usefixtures("told")
def test_events_are_read_with_the_engine_down() -> None:
    """One line a record, for people: when, which chart and event, from where to where, who."""
    lines = run("events").stdout.splitlines()
    lines = [line for line in lines if re.match(r"\d\d:\d\d:\d\d  ", line)]
    assert [re.split(r" {2,}| (?=none)", line)[1:] for line in lines] == [
        ["pairing", "issue", "none -> issued", "p1", "operator", "192.0.2.1"],
        ["session", "start", "refused", "-", "operator", "192.0.2.1", "wrong_signature"],
    ]
    assert "\x1b" not in "".join(lines)


@pytest.mark.usefixtures("told")
def test_programs_get_the_records_themselves(home: Path) -> None:
    """`--json` prints each record as it lies in the file, one a line."""
    assert run("events", "--json").stdout == (home / "log" / "events.jsonl").read_text()


@pytest.mark.usefixtures("told")
@pytest.mark.parametrize(
    ("arguments", "charts"),
    [
        (("--since", "1h"), ["session"]),
        (("--since", "2h"), ["pairing", "session"]),
        (("--since", "7d"), ["pairing", "session"]),
        (("--since", "0s"), []),
        (("--until", "30m"), ["pairing"]),
        (("--since", "2000-01-01", "--until", "2000-01-02T12:00"), []),
        (("--chart", "pairing"), ["pairing"]),
        (("--chart", "session", "--since", "30m"), ["session"]),
        (("--chart", "instance"), []),
    ],
)
def test_events_are_chosen(arguments: tuple[str, ...], charts: list[str]) -> None:
    """By chart, and by how long ago."""
    found = [json.loads(line)["chart"] for line in run("events", "--json", *arguments).stdout.splitlines()]
    assert found == charts


@pytest.mark.parametrize("since", ["1", "h", "-1h", "1w", "1.5h", "", "\u0661h", "9999999999s"])
def test_a_time_that_is_none_is_a_usage_error(since: str) -> None:
    """The message says what may be written."""
    for option in ("--since", "--until"):
        assert "write 30m, 2h or 7d for a while ago" in run("events", option, since, code=2).stderr


def test_times_that_contradict_each_other() -> None:
    """No quiet night is told: neither is passed over."""
    assert "--until is before --since" in run("events", "--since", "1h", "--until", "2h", code=2).stderr
    assert "--follow or --until" in run("events", "--follow", "--until", "1h", code=2).stderr


def test_a_chart_that_there_is_not_is_an_error() -> None:
    """A slip of the pen is not the same as a quiet night: the names are listed."""
    assert "'pairing', 'session', 'instance', 'engine', 'key'" in run("events", "--chart", "sesion", code=2).stderr


def incident(records: Records) -> None:
    """A key that comes, signs in from two places and goes; somebody else meanwhile."""
    for identity, comment, address, session in (
        ("SHA256:alice", "alice@laptop", "192.0.2.66", "s1"),
        ("SHA256:alice", "alice@laptop", "10.0.0.1", "s2"),
        ("SHA256:bob", "bob", "10.0.0.2", "s3"),
    ):
        records.notice("key", identity, "register", origin=Origin("operator"), comment=comment)
        began = Origin(identity, address)
        records.transition("session", session, "start", "none", "active", ("issue_token",), began, comment=comment)
        records.refusal("session", "-", "start", "foreign_address", began, comment=comment)
        records.transition(
            "session", session, "revoke", "active", "ended", ("end_session",), Origin("operator"), "key_unregistered"
        )


@pytest.mark.parametrize(
    ("who", "found"),
    [
        ("s3", [10, 12]),
        ("192.0.2.66", [2, 3, 4]),
        ("alice@laptop", [1, 2, 3, 4, 5, 6, 7, 8]),
        ("SHA256:alice", [1, 2, 3, 4, 5, 6, 7, 8]),
        ("bob", [9, 10, 11, 12]),
    ],
)
def test_an_incident_is_read_by_who_it_was(home: Path, who: str, found: list[int]) -> None:
    """A session, an address, a key by either name: what they did, and what became of their sessions, whoever did it."""
    write(home, 0, incident)
    told = [json.loads(line)["seq"] for line in run("events", "of", who, "--json").stdout.splitlines()]
    assert told == found
    assert "no record of 'nobody'" in run("events", "of", "nobody", code=1).stderr


def test_no_events_are_no_error() -> None:
    """Where no engine ever ran there is nothing to print."""
    assert run("events").stdout == ""


def test_nothing_in_a_record_moves_the_terminal(home: Path) -> None:
    """Control bytes in a value are spelled out."""
    write(home, 0, lambda records: records.notice("key", "x\x1b[2J\u202e", "register", "c\rause"))
    assert not set("\x1b\r\u202e") & set(run("events").stdout)


async def test_events_are_followed_in_colour(home: Path) -> None:
    """On a terminal: what was, then each thing as it happens, in colour, until Ctrl-C."""
    write(home, 60, lambda records: records.notice("engine", "e", "start"))
    async with terminal("events", "--follow", "--chart", "session", home=home) as screen:
        for actor in ("s1", "s2", "s3"):
            write(home, 0, partial(start_session, actor))
            await screen.wait_for(actor)
        screen.type(b"\x03")
        assert await screen.wait_end() == 0
    assert re.search(r"\x1b\[36msession  start +\x1b\[0m none -> active", screen.text)
    assert "engine" not in screen.text


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("name", CHARTS)
def test_charts_are_shown_in_every_form(name: str, form: str) -> None:
    """What is printed is the rendering itself, so that it can be sent to a file."""
    shown = run("chart", "show", name, "--format", form).stdout
    assert shown == FORMATS[form](CHARTS[name])
    if form in ("xstate", "json"):
        json.loads(shown)
    if form in ("svg", "scxml"):
        ElementTree.fromstring(shown)


def test_json_is_a_form_like_any_command_has_it() -> None:
    """`--json` is `--format json`; the table is what people get."""
    assert run("chart", "show", "session", "--json").stdout == FORMATS["json"](CHARTS["session"])
    assert run("chart", "show", "session").stdout == FORMATS["table"](CHARTS["session"])


def test_an_unknown_chart_names_those_there_are() -> None:
    """A usage error, with the names."""
    assert "pairing, session, instance" in run("chart", "show", "lamp", code=2).stderr


def test_the_forms_offered_are_the_forms_there_are() -> None:
    """The command's choices are render.py's, in its order."""
    group = cli.get_command(click.Context(cli), "chart")
    assert isinstance(group, click.Group)
    (form,) = [option for option in group.commands["show"].params if option.name == "form"]
    assert isinstance(form.type, click.Choice)
    assert list(form.type.choices) == list(FORMATS)


@pytest.mark.process
def test_status_tells_how_the_engine_is(home: Path) -> None:
    """Version, address, uptime, what is live, next expiry, store size; for people and for programs."""
    with running_engine(home) as engine, httpx.Client(base_url=engine.url) as client:
        session = sign_in(client)
        time.sleep(0.01)
        status: dict[str, Any] = json.loads(engine.command("engine", "status", "--json"))
        assert status["url"] == engine.url + "/"
        assert (status["sessions"], status["codes"], status["instances"]) == (1, 0, 0)
        assert status["next_expiry"] == pytest.approx(session["expires_at"], abs=1)
        assert 0 < status["uptime"] < 60
        assert status["store_bytes"] > 0
        assert status["version"]
        people = engine.command("engine", "status")
        assert "not ready" not in people
        for words in (
            r"ready +yes",
            engine.url,
            r"uptime +\d+s",
            r"store bytes +[\d.]+ (B|KiB|MiB)",
            r"sessions +1",
            r"instances +0",
        ):
            assert re.search(words, people), people


@pytest.mark.process
def test_the_log_of_a_process_is_json(home: Path, tmp_path: Path) -> None:
    """Off a terminal every line on standard error is JSON; a reload moves on to a new file of events."""
    engine = EngineProcess(home)
    try:
        engine.start()
        with httpx.Client(base_url=engine.url) as client:
            sign_in(client)
            (home / "log" / "events.jsonl").rename(tmp_path / "moved")
            engine.command("engine", "reload")
            sign_in(client)
        engine.terminate()
    finally:
        engine.close()
    lines = [json.loads(line) for line in engine.log().splitlines()]
    assert [line["event"] for line in lines if line["event"] == "session.start"] == ["session.start"] * 2
    moved = [json.loads(line) for line in (tmp_path / "moved").read_text().splitlines()]
    here = [json.loads(line) for line in (home / "log" / "events.jsonl").read_text().splitlines()]
    assert [record["seq"] for record in moved + here] == list(range(1, len(moved + here) + 1))
    assert [record["event"] for record in here] == ["reload", "start", "stop"]

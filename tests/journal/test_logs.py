"""The log says one thing a line, to people or to programs, and never holds up the engine."""

from __future__ import annotations

import io
import json
import logging
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import structlog

from hatchway.engine.base.clock import SystemClock
from hatchway.engine.journal import logs
from hatchway.engine.journal.heads import Heads
from hatchway.engine.journal.logs import LineWriter, log_record, set_up_logs, use_log_settings
from hatchway.engine.runtime.records import Record
from hatchway.engine.settings.settings import LogSettings

RECORD = Record(
    1_800_000_000.0,
    5,
    "transition",
    "pairing",
    "p1",
    "claim",
    "issued",
    "claimed",
    ("ask_operator",),
    None,
    "192.0.2.1",
)
NASTY = "a\x1b[2J\x07\r\n\x9b31m\u202ex\x00\ud800"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def unset() -> Iterator[None]:
    """Logging as it was before, after the test."""
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    yield
    root.handlers, root.level = before, level
    structlog.reset_defaults()
    logs._quick = None


def written(stream: io.StringIO, writer: LineWriter) -> str:
    writer.close()
    return stream.getvalue()


@pytest.mark.usefixtures("unset")
def test_programs_get_json() -> None:
    """Off a terminal a record is one JSON object in ASCII, with level and time."""
    stream = io.StringIO()
    writer = set_up_logs(LogSettings(), stream)
    log_record(RECORD)
    told = json.loads(written(stream, writer))
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z", told.pop("timestamp"))
    assert told == {
        "event": "pairing.claim",
        "level": "info",
        "kind": "transition",
        "seq": 5,
        "actor": "p1",
        "source": "issued",
        "target": "claimed",
        "effects": ["ask_operator"],
        "address": "192.0.2.1",
    }


@pytest.mark.usefixtures("unset")
def test_a_record_is_told_as_structlog_would_tell_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The short way to a line leaves nothing out and adds nothing, whatever the record holds."""
    records = [
        RECORD,
        Record(1.0, 1, "notice", "engine", NASTY, "start", cause=NASTY),
        Record(1.0, 2, "refusal", "session", "-", "start", None, None, (), "SHA256:x", "::1", "r-1", "wrong_signature"),
    ]
    stream = io.StringIO()
    writer = set_up_logs(LogSettings(), stream)
    for way in (logs._quick, None):
        monkeypatch.setattr(logs, "_quick", way)
        for record in records:
            log_record(record)
    told = [json.loads(line) for line in written(stream, writer).splitlines()]
    assert [line.keys() for line in told[:3]] == [line.keys() for line in told[3:]]
    for line in told:
        del line["timestamp"]
    assert told[:3] == told[3:]


@pytest.mark.usefixtures("unset")
@pytest.mark.parametrize("people", [True, False])
def test_no_value_reaches_the_terminal_raw(people: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Control bytes, line ends and turned writing are escaped: in values, in tracebacks, in lines of libraries."""
    monkeypatch.setenv("NO_COLOR", "1")
    stream = Terminal() if people else io.StringIO()
    writer = set_up_logs(LogSettings(), stream)
    log_record(Record(1.0, 1, "notice", "engine", NASTY, "start", cause=NASTY))
    try:
        int(NASTY)
    except ValueError:
        structlog.get_logger().exception("failed", why=[NASTY])
    logging.getLogger("quart").error("odd: %s", NASTY)
    text = written(stream, writer)
    assert set(text) <= {chr(code) for code in range(0x20, 0x7F)} | {"\n"}
    starts = [line for line in text.splitlines() if line.startswith("{" if not people else tuple("0123456789"))]
    assert len(starts) == 3


@pytest.mark.usefixtures("unset")
def test_people_get_colour_unless_they_said_no(monkeypatch: pytest.MonkeyPatch) -> None:
    """Colour on a terminal; none with NO_COLOR, none where the console's form goes to a file."""
    monkeypatch.delenv("NO_COLOR", raising=False)
    for stream, colour in ((Terminal(), True), (io.StringIO(), False)):
        writer = set_up_logs(LogSettings(format="console"), stream)
        log_record(RECORD)
        text = written(stream, writer)
        assert ("\x1b[" in text) == colour
        assert "pairing.claim" in text


@pytest.mark.usefixtures("unset")
@pytest.mark.parametrize("people", [True, False])
def test_heads_are_for_programs(people: bool, tmp_path: Path) -> None:
    """Each signed head is a line of the log that programs carry away; people at a terminal are spared it."""
    stream = Terminal() if people else io.StringIO()
    writer = set_up_logs(LogSettings(), stream)
    Heads(tmp_path, SystemClock(), "urn:uuid:x", lambda kind, payload: "signed").sign(5, "hash", 1, "minute")
    structlog.get_logger().info("after_it")
    text = written(stream, writer)
    assert "after_it" in text
    assert ("signed" in text) != people
    assert (tmp_path / "heads").read_text() == "signed\n"


@pytest.mark.usefixtures("unset")
def test_settings_are_taken_up_at_once() -> None:
    """`log.level` and `log.format` change with a reload: later lines keep to them."""
    stream = io.StringIO()
    writer = set_up_logs(LogSettings(), stream)
    log_record(RECORD)
    use_log_settings(LogSettings(level="warning"), people=False)
    log_record(RECORD)
    log_record(Record(1.0, 2, "refusal", "session", "-", "start", cause="wrong_signature"))
    use_log_settings(LogSettings(format="console"), people=False)
    log_record(RECORD)
    lines = written(stream, writer).splitlines()
    assert [line.startswith("{") for line in lines] == [True, True, False]
    assert json.loads(lines[1])["level"] == "warning"


def test_a_reader_that_stops_holds_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-S, or a pipe that nobody empties: logging goes on at once, later lines are dropped and counted."""
    monkeypatch.setattr(logs, "LONGEST_QUEUE", 100)
    reading, writing = os.pipe()
    with os.fdopen(reading) as lines, os.fdopen(writing, "w") as stream:
        writer = LineWriter(stream)
        started = time.monotonic()
        for _ in range(5000):
            writer.msg("x" * 100)
        assert time.monotonic() - started < 10  # a thousandth of a second a line would be another's time
        told = next(line for line in lines if "dropped" in line)
        assert re.fullmatch(r"\(\d{4} lines were dropped: nobody read them\)\n", told)
        writer.close()


def test_the_last_lines_are_written_at_the_end() -> None:
    """What was logged last is there when the process has ended."""
    code = (
        "import structlog; from hatchway.engine.journal.logs import set_up_logs;"
        "from hatchway.engine.settings.settings import LogSettings; set_up_logs(LogSettings());"
        "[structlog.get_logger().info('last', number=number) for number in range(500)]"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert [json.loads(line)["number"] for line in done.stderr.splitlines()] == list(range(500))


def test_a_file_that_takes_no_more_is_waited_for(tmp_path: Path) -> None:
    """Whatever the reason, here the limit of a file's size: once it takes more, every line comes, and none is cut."""
    code = (
        "import resource, sys, time; from hatchway.engine.journal.logs import LineWriter;"
        "_, most = resource.getrlimit(resource.RLIMIT_FSIZE);"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1000, most));"
        "writer = LineWriter(sys.stderr); [writer.msg(f'line {number}') for number in range(200)];"
        "time.sleep(0.5); resource.setrlimit(resource.RLIMIT_FSIZE, (most, most)); writer.close()"
    )
    with (tmp_path / "log").open("wb") as file:
        subprocess.run([sys.executable, "-c", code], stderr=file, check=True)
    assert (tmp_path / "log").read_text().splitlines() == [f"line {number}" for number in range(200)]


def test_a_log_that_is_rotated(tmp_path: Path) -> None:
    """As logrotate does it: moved away, then a reload. What comes after that is in a file of the old name, of our
    own."""
    code = """
import os, pathlib, time
from hatchway.engine.journal import logs
from hatchway.engine.settings.settings import LogSettings

def write(line, name):
    writer.msg(line)
    while line not in pathlib.Path(name).read_text():
        time.sleep(0.01)

writer = logs.set_up_logs(LogSettings())
write("one", "log")
os.rename("log", "log.1")
write("two", "log.1")
for line in ("three", "four"):
    logs.reopen_log()
    write(line, "log")
"""
    with (tmp_path / "log").open("ab") as file:
        subprocess.run([sys.executable, "-c", code], stderr=file, check=True, cwd=tmp_path)
    assert (tmp_path / "log.1").read_text() == "one\ntwo\n"
    assert (tmp_path / "log").read_text() == "three\nfour\n"
    assert (tmp_path / "log").stat().st_mode & 0o777 == 0o600


def test_a_closed_reader_ends_nothing() -> None:
    """Standard error may be gone: the engine goes on."""
    reading, writing = os.pipe()
    os.close(reading)
    stream = os.fdopen(writing, "w")
    writer = LineWriter(stream)
    for _ in range(10):
        writer.msg("x")
    writer.close()
    assert not writer._thread.is_alive()
    with suppress(BrokenPipeError):
        stream.close()

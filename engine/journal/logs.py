"""The log on standard error: JSON for programs, colour for people. A reader that stops never stops the engine."""

from __future__ import annotations

import atexit
import json
import logging
import os
import queue
import re
import sys
import threading
import time
from collections.abc import Callable, MutableMapping
from contextlib import suppress
from datetime import UTC, datetime
from operator import attrgetter
from pathlib import Path
from stat import S_ISREG
from typing import Any, TextIO

import msgspec
import structlog
from structlog.typing import Processor

from hatchway.engine.journal.heads import JOURNAL_HEAD
from hatchway.engine.runtime.records import Record
from hatchway.engine.settings.settings import LogSettings

LONGEST_QUEUE = 10_000
"""Lines that wait for a reader of standard error; further ones are dropped, and counted."""

GATHER_PAUSE = 0.02
"""Seconds in which lines gather for one write: to wake the thread for each would cost more than the line itself."""

PAUSE = 0.2
"""Seconds until it is tried again to write a line that a file does not take: the disk is full, or a network folder's
server is away."""

FLUSH_WITHIN = 1.0
"""Seconds in which the last lines are written when the engine ends."""

_UNPRINTABLE = re.compile(r"[^\x20-\x7e]")

log = structlog.get_logger("hatchway")

_quick: tuple[int, Callable[[str], Any]] | None = None
"""While programs read the log: the level from which records are logged, and the function that writes a line."""


_writer: LineWriter | None = None
"""Where the engine's log goes."""


class LineWriter:
    """Writes lines by a thread of its own: Ctrl-S on the terminal, or a full pipe, must not hold the engine."""

    def __init__(self, stream: TextIO) -> None:
        self._stream, self._path = stream, _path_of(stream)
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._dropped = 0
        self._thread = threading.Thread(target=self._run, name="log-writer", daemon=True)
        self._thread.start()

    def msg(self, line: str) -> None:
        """Queue one line; returns at once."""
        if self._lines.qsize() < LONGEST_QUEUE:
            self._lines.put(line)
        else:
            self._dropped += 1

    debug = info = warning = error = critical = msg

    def reopen(self) -> None:
        """Go on in a file of the same name, where somebody has moved the old one away. Raises OSError."""
        if self._path is None:
            return
        written = self._stream.fileno()
        with suppress(FileNotFoundError):
            if os.path.samestat(os.stat(self._path), os.fstat(written)):
                return
        opened = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        os.dup2(opened, written)
        os.close(opened)

    def close(self) -> None:
        """Write what is queued, for as long as the reader takes it."""
        self._lines.put(None)
        self._thread.join(FLUSH_WITHIN)

    def _run(self) -> None:
        over = False
        while not over:
            lines = [self._lines.get()]
            if lines[0] is not None:
                time.sleep(GATHER_PAUSE)
            lines += [self._lines.get() for _ in range(self._lines.qsize())]
            over = None in lines
            if self._dropped:
                lines.append(f"({self._dropped} lines were dropped: nobody read them)")
                self._dropped = 0
            try:
                self._write("".join(f"{line}\n" for line in lines if line is not None))
            except (OSError, ValueError):
                return  # the reader of standard error is gone

    def _write(self, text: str) -> None:
        buffer = getattr(self._stream, "buffer", None)
        raw = getattr(buffer, "raw", buffer)  # under PYTHONUNBUFFERED there is no buffer between
        if raw is None:
            self._stream.write(text)
            self._stream.flush()
            return
        # By hand, since Python's own buffer does not say how much of it a full disk has taken.
        data = text.encode(self._stream.encoding, self._stream.errors or "strict")
        while data:
            try:
                taken = raw.write(data) or 0  # None where the stream is one that does not wait
            except OSError:
                if not S_ISREG(os.fstat(raw.fileno()).st_mode):
                    raise
                taken = 0
            if not taken:
                time.sleep(PAUSE)
            data = data[taken:]


def _path_of(stream: TextIO) -> Path | None:
    """The path of the plain file that the stream goes to; None for a terminal, a pipe, and what has no descriptor."""
    with suppress(OSError, ValueError):
        if S_ISREG(os.fstat(stream.fileno()).st_mode):
            return Path(os.readlink(f"/proc/self/fd/{stream.fileno()}"))
    return None


def set_up_logs(settings: LogSettings, stream: TextIO | None = None) -> LineWriter:
    """Send every log line, also those of the libraries, to `stream` (standard error) in the form that is set."""
    stream = stream or sys.stderr
    global _writer
    writer = _writer = LineWriter(stream)
    atexit.register(writer.close)
    structlog.configure(logger_factory=lambda *names: writer, cache_logger_on_first_use=False)
    use_log_settings(settings, people=stream.isatty())
    root = logging.getLogger()
    root.handlers = [_ToStructlog()]
    logging.getLogger("transitions").setLevel(logging.WARNING)  # below that, the library logs every step
    return writer


def reopen_log() -> None:
    """Have the log go on in a file of the same name, where it goes to a file that was moved away (logrotate(8))."""
    if _writer is not None:
        try:
            _writer.reopen()
        except OSError as error:
            log.warning("log_not_reopened", why=str(error))


def use_log_settings(settings: LogSettings, *, people: bool) -> None:
    """Take up `log.format` and `log.level`. `people` says whether `auto` means the format for people."""
    for_people = settings.format == "console" or (settings.format == "auto" and people)
    level = logging.getLevelNamesMapping()[settings.level.upper()]
    logging.getLogger().setLevel(max(level, logging.INFO))
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="%H:%M:%S" if for_people else "iso", utc=not for_people),
        structlog.processors.format_exc_info,
    ]
    if for_people:
        colours = people and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
        form: list[Processor] = [
            _without_heads,
            _printable,
            structlog.dev.ConsoleRenderer(colors=colours, pad_event_to=24, sort_keys=False),
        ]
    else:
        form = [structlog.processors.JSONRenderer(serializer=_json)]
    structlog.configure(
        processors=[*shared, *form],
        wrapper_class=structlog.make_filtering_bound_logger(level),
    )
    global _quick
    _quick = None if for_people else (level, structlog.get_config()["logger_factory"]().msg)


_DETAILS = (
    *("source", "target", "effects", "identity", "address", "request_id", "cause", "count", "traceparent"),
    *("label", "comment"),
)
"""Fields of a record that a log line has too, where they say anything."""

_details = attrgetter(*_DETAILS)

_LogLine = msgspec.defstruct(
    "_LogLine",
    [("kind", str), ("seq", int), ("actor", str), ("event", str), ("level", str), ("timestamp", datetime)]
    + [(field.name, field.type, field.default) for field in msgspec.structs.fields(Record) if field.name in _DETAILS],
    omit_defaults=True,
    gc=False,
)
"""A record's line in the format for programs: what structlog would write, in a fifth of the time."""


def log_record(record: Record) -> None:
    """A sink of records: each is one log line, a refusal a warning."""
    level = logging.WARNING if record.kind == "refusal" else logging.INFO
    if _quick is not None and structlog.is_configured():
        least, tell = _quick
        if level >= least:
            tell(_json(_line(record, "warning" if level == logging.WARNING else "info")))
        return
    fields = {name: getattr(record, name) for name in ("kind", "seq", "actor", *_DETAILS)}
    told = {name: value for name, value in fields.items() if value not in (None, (), msgspec.UNSET)}
    log.log(level, f"{record.chart}.{record.event}", **told)


def _line(record: Record, level: str) -> msgspec.Struct:
    event = f"{record.chart}.{record.event}"
    return _LogLine(record.kind, record.seq, record.actor, event, level, datetime.now(UTC), *_details(record))


def _without_heads(logger: Any, name: str, fields: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """A processor of structlog's that drops the journal's heads: each is a line of 450 characters, for programs that
    carry the log away."""
    if fields.get("event") == JOURNAL_HEAD:
        raise structlog.DropEvent
    return fields


def _printable(logger: Any, name: str, fields: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """A processor of structlog's that escapes control characters: values may quote what a stranger sent."""
    for key, value in fields.items():
        kept = value if isinstance(value, str) else repr(value)
        lines = kept.split("\n") if key == "exception" else [kept]
        fields[key] = "\n".join(_UNPRINTABLE.sub(_escaped, line) for line in lines)
    return fields


_encode = msgspec.json.Encoder(enc_hook=repr).encode


def _json(fields: Any, **options: Any) -> str:
    """JSON in ASCII, since a terminal may show it. The standard library, five times slower, does what msgspec can't."""
    try:
        text = _encode(fields)
    except (UnicodeError, TypeError, ValueError):
        text = b"\xff"
    if text.isascii():
        return text.decode()
    return json.dumps(fields if isinstance(fields, dict) else msgspec.to_builtins(fields), **options)


def _escaped(found: re.Match[str]) -> str:
    return ascii(found[0])[1:-1]


class _ToStructlog(logging.Handler):
    """Hands the lines of libraries, which log by the standard library, to structlog."""

    def emit(self, record: logging.LogRecord) -> None:
        structlog.get_logger(record.name).log(
            record.levelno, "library", logger=record.name, message=record.getMessage(), exc_info=record.exc_info
        )

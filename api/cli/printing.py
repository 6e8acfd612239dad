"""The one printer: tables and facts for people, JSON for programs; colour on a terminal only.

Engines, peers and files write some of what is printed. Nothing of it may act upon a terminal, or pass for another line.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

import click

from hatchway.engine.base.text import printable

FEW_COLUMNS = 4
"""A row of so many is still read easily where the terminal breaks it."""


def say(*lines: str, err: bool = False, fg: str | None = None, color: bool | None = None) -> None:
    """Print these lines. What a terminal could act upon is escaped, a line end within a line too."""
    for line in lines:
        text = printable(line)
        click.echo(click.style(text, fg=fg) if fg else text, err=err, color=color)


def print_json(value: Any) -> None:
    """`value` as JSON on standard output."""
    print_json_text(json.dumps(value, indent=2, default=_plain, ensure_ascii=not _takes_all(sys.stdout)))


def print_json_text(text: str) -> None:
    """Print a JSON text, with escapes for whatever a terminal could act upon: for programs it is the same value."""
    click.echo("".join(c if c.isprintable() or c == "\n" else _escaped(c) for c in text))


def _escaped(letter: str) -> str:
    code = ord(letter)
    if code < 0x10000:
        return f"\\u{code:04x}"
    return f"\\u{0xD800 + (code - 0x10000 >> 10):04x}\\u{0xDC00 + (code & 0x3FF):04x}"  # RFC 8259, 7


def _takes_all(stream: TextIO) -> bool:
    """Whether every character can be written to the stream as it is."""
    return stream.encoding.lower().replace("-", "").startswith("utf")


def _plain(value: object) -> object:
    if isinstance(value, Path):
        return str(value)
    raise TypeError(f"{type(value).__name__} has no JSON form")


def print_table(columns: Sequence[str], rows: Sequence[Sequence[object]], empty: str) -> None:
    """A table: aligned columns, no line ever cut, `-` where a column with a name has nothing. `empty` goes to standard
    error where there is no row. Many columns that a terminal is too narrow for become a paragraph for each row."""
    if not rows:
        note(empty)
        return
    cells = [[_shown(cell) or ("-" if name else "") for name, cell in zip(columns, row, strict=True)] for row in rows]
    widths = [max(len(row[index]) for row in [columns, *cells]) for index in range(len(columns))]
    if sys.stdout.isatty():
        if len(columns) > FEW_COLUMNS and max(len(_line(row, widths)) for row in [columns, *cells]) > _screen_width():
            _print_paragraphs(columns, cells)
            return
        click.secho(_line(columns, widths), bold=True)
    else:
        click.echo(_line(columns, widths))
    for row in cells:
        click.echo(_line(row, widths))


def _screen_width() -> int:
    from shutil import get_terminal_size  # here: it loads every way to pack a file

    return get_terminal_size().columns


def _print_paragraphs(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    width = max(map(len, columns))
    for first, *others in rows:
        click.secho(first, bold=True)
        for name, cell in zip(columns[1:], others, strict=True):
            if cell not in ("", "-"):
                click.echo(f"  {click.style(name.lower().ljust(width), dim=True)}  {cell}")


def _shown(cell: object) -> str:
    return "" if cell is None else printable(str(cell))


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    return "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip()


def print_facts(facts: Mapping[str, object]) -> None:
    """Print one fact a line, with aligned values."""
    width = max(len(name) for name in facts)
    for name, value in facts.items():
        click.echo(f"{click.style(name.ljust(width), dim=True)}  {printable(str(value))}")


def note(text: str) -> None:
    """A remark on standard error."""
    say(text, err=True)


def span(seconds: float) -> str:
    """A length of time for people: `23h 59m`, `45s`."""
    left = max(0, int(seconds))
    for unit, size, smaller, small in (("d", 86_400, "h", 3600), ("h", 3600, "m", 60), ("m", 60, "s", 1)):
        if left >= size:
            rest = left % size // small
            return f"{left // size}{unit} {rest}{smaller}" if rest else f"{left // size}{unit}"
    return f"{left}s"


def size(count: int) -> str:
    """A number of bytes for people: `912 B`, `52.0 KiB`."""
    left, unit = float(count), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if left < 1024:
            break
        left, unit = left / 1024, larger
    return f"{count} B" if unit == "B" else f"{left:.1f} {unit}"


def moment(epoch: float) -> str:
    """A point in time for people, with its time zone."""
    return time.strftime("%Y-%m-%d %H:%M:%S %Z", time.localtime(epoch))

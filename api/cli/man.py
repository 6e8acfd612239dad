"""`hatchway man`: the manual page, made from the help texts (man(7))."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click


@click.command(
    epilog="""\b
Examples:
  hatchway man | man -l -
  hatchway man > ~/.local/share/man/man1/hatchway.1"""
)
@click.pass_context
def man(context: click.Context) -> None:
    """Print the manual page of all commands."""
    from hatchway.engine.base.version import installed_version

    root = context.find_root()
    lines = [f'.TH HATCHWAY 1 "" "hatchway {installed_version()}" "User Commands"']
    lines += [".SH NAME", rf"hatchway \- {_roff(_first(root.command))}"]
    lines += [".SH SYNOPSIS", r"\fBhatchway\fR [OPTIONS] COMMAND [ARGS]..."]
    lines += [".SH DESCRIPTION", *_body(root.command, root), ".SH COMMANDS"]
    for command, below in _commands(root.command, root):
        pieces = " ".join(command.collect_usage_pieces(below))
        lines += [rf".SS \fB{_roff(below.command_path)}\fR {_roff(pieces)}", *_body(command, below)]
    click.echo("\n".join(lines))


def _commands(command: click.Command, context: click.Context) -> Iterator[tuple[click.Command, click.Context]]:
    """Every command below, parents first, in the order of the help."""
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            if found is not None and not found.hidden:
                below = click.Context(found, info_name=name, parent=context)
                yield found, below
                yield from _commands(found, below)


def _body(command: click.Command, context: click.Context) -> list[str]:
    """A command's description, options and examples, in roff."""
    lines = [piece for text in (command.help or "").split("\n\n") for piece in (".PP", *_paragraph(text))]
    for parameter in command.get_params(context):
        record: Any = parameter.get_help_record(context)
        if record is not None:
            lines += [".TP", rf"\fB{_roff(record[0])}\fR", _roff(record[1] or "")]
    for text in filter(None, (command.epilog or "").split("\n\n")):
        lines += [".PP", *_paragraph(text)]
    return lines


def _paragraph(text: str) -> list[str]:
    r"""One paragraph of a help text; after click's mark for it, `\b`, its lines stay as they are."""
    if text.startswith("\b"):
        return [".nf", *map(_roff, text.strip("\b\n").splitlines()), ".fi"]
    return [_roff(" ".join(text.split()))]


def _roff(text: str) -> str:
    """Text that roff prints as it stands: dashes that can be copied, no line that begins a request."""
    text = text.replace("\\", r"\e").replace("-", r"\-")
    return rf"\&{text}" if text.startswith((".", "'")) else text


def _first(command: click.Command) -> str:
    return (command.help or "").partition("\n")[0].rstrip(".")

"""Groups whose commands are imported when they are used, and the one place where a failure becomes words and a code."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import click

Option = Callable[[Callable[..., Any]], Callable[..., Any]]
"""What click.option gives, for a function that is no command yet."""

WORDS = f"{__name__}.words"
"""The key of what was typed behind `hatchway`, in `click.Context.meta`."""


class LazyGroup(click.Group):
    """A group that knows its commands by `module:object`."""

    def __init__(self, *args: Any, commands_at: Mapping[str, str], **options: Any) -> None:
        super().__init__(*args, **options)
        self._at = commands_at

    def list_commands(self, context: click.Context) -> list[str]:
        return list(self._at)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        if name not in self._at:
            return None
        module, _, attribute = self._at[name].partition(":")
        command: click.Command = getattr(import_module(module), attribute)
        return command

    def resolve_command(
        self, context: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if self.get_command(context, name) is None and not name.startswith("-") and not context.resilient_parsing:
            import difflib

            near = difflib.get_close_matches(name, self._at, n=1)
            hint = f" Did you mean '{near[0]}'?" if near else ""
            raise click.UsageError(f"No such command '{name}'.{hint}", context)
        return super().resolve_command(context, args)


class RootGroup(LazyGroup):
    """The command itself: colour as decided, and refusals in words."""

    def parse_args(self, context: click.Context, args: list[str]) -> list[str]:
        words = list(args)
        with _options_in_their_place(context, words):
            rest = super().parse_args(context, args)
        context.meta[WORDS] = words
        return rest

    def resolve_command(
        self, context: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name, command, rest = super().resolve_command(context, args)
        named, meant = _meant(context, args)
        asked = context.params.get("url") and not context.resilient_parsing
        if asked and meant and not _takes_url(meant) and not {"-h", "--help"} & set(rest):
            raise _acts_here(named, context)
        return name, command, rest

    def invoke(self, context: click.Context) -> Any:
        if os.environ.get("NO_COLOR"):
            context.color = False
        try:
            _warn_of_foreign_variables()
            with _options_in_their_place(context, context.meta[WORDS]):
                return super().invoke(context)
        except (click.ClickException, click.Abort, click.exceptions.Exit, BrokenPipeError):
            raise  # the reader of the output, such as `head`, has ended: click ends silently
        except Exception as fault:
            from hatchway.api.cli.failures import Failed, failure_of

            told = failure_of(fault)
            if told is None:
                raise
            raise Failed(*told) from None


def _warn_of_foreign_variables() -> None:
    """Say which variables look like settings and are none. They may be another program's, so no command ends for
    them."""
    if not any(name.startswith("HATCHWAY_") and name != "HATCHWAY_HOME" for name in os.environ):
        return
    from hatchway.engine.base.imports import without
    from hatchway.engine.base.memory import UNUSED

    with without(*UNUSED):  # an engine that is started here loads no more for it
        from hatchway.engine.settings.sources import foreign_variables

    sentences = foreign_variables(os.environ)
    if sentences:
        from hatchway.api.cli.printing import note

        for sentence in sentences:
            note(f"warning: {sentence}")


@contextmanager
def _options_in_their_place(root: click.Context, words: list[str]) -> Iterator[None]:
    """An option that stands before the command which takes it is refused by saying where it belongs."""
    try:
        yield
    except click.NoSuchOption as unknown:
        name, command = _meant(root, words)
        option = unknown.option_name
        if unknown.ctx is None or command is None:
            raise
        if option == "--url" and not _takes_url(command):
            raise _acts_here(name, unknown.ctx) from None
        if command is unknown.ctx.command or not _takes(command, option):
            raise
        told = f"'{option}' comes after the command's name: {root.command_path} {name} {option}"
        raise click.UsageError(told, unknown.ctx) from None


def _acts_here(name: str, context: click.Context) -> click.UsageError:
    told = f"`hatchway {name}` acts on this machine, where --url means nothing: run it on the engine's host"
    return click.UsageError(told, context)


def _meant(root: click.Context, words: Sequence[str]) -> tuple[str, click.Command | None]:
    """The command that is named among these words, in groups or not, with its whole name. None for a group that is to
    tell of its commands."""
    command, names = root.command, []
    for word in words:
        below = command.get_command(root, word) if isinstance(command, click.Group) else None
        if below is not None:
            command = below
            names.append(word)
    tells = isinstance(command, click.Group) and not command.invoke_without_command
    return " ".join(names), None if tells else command


def _takes_url(command: click.Command) -> bool:
    """Whether it speaks with an engine by its address. All others act on this machine."""
    return _takes(command, "--url")


def _takes(command: click.Command, option: str) -> bool:
    return any(option in parameter.opts for parameter in command.params)


def url_option(default: str = "the setting url, else where you are signed in, else this host's engine") -> Option:
    """`--url`, on every command that speaks with an engine by its address; before the command's name it is the same."""
    words = f"The engine's address. Default: {default}."
    return click.option("--url", expose_value=False, callback=keep_url, help=words)


def keep_url(context: click.Context, parameter: click.Parameter, url: str | None) -> str | None:
    """Note the address that `--url` gives, wherever it stands. Raises BadParameter for none, and for two."""
    root = context.find_root()
    before = root.params.get("url")
    if url == "":
        raise click.BadParameter("it is empty: give the engine's address, or leave it out")
    if url and before and url.rstrip("/") != before.rstrip("/"):
        raise click.BadParameter(f"two engines are named: {before} and {url}")
    if url is not None:
        root.params["url"] = url
    return url


def json_option(command: Any) -> Any:
    """`--json`, on every command that prints data."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")(command)

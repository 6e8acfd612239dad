"""Groups whose commands are imported when they are used, and the one place where a failure becomes words and a code."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

import click

Option = Callable[[Callable[..., Any]], Callable[..., Any]]
"""What click.option gives, for a function that is no command yet."""


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

    def resolve_command(
        self, context: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name, command, rest = super().resolve_command(context, args)
        named, meant = _meant(context, name, command, [word for word in rest if word != "--"])
        asked = context.params.get("url") and not context.resilient_parsing
        if asked and meant and not _takes_url(meant) and not {"-h", "--help"} & set(rest):
            raise click.UsageError(
                f"`hatchway {named}` acts on this machine, where --url means nothing: run it on the engine's host",
                context,
            )
        return name, command, rest

    def invoke(self, context: click.Context) -> Any:
        if os.environ.get("NO_COLOR"):
            context.color = False
        try:
            _warn_of_foreign_variables()
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


def _meant(
    context: click.Context, name: str | None, command: click.Command | None, rest: list[str]
) -> tuple[str, click.Command | None]:
    """The command that these words name, in groups or not, with its whole name. None for a group that is to tell of its
    commands."""
    words = [name or ""]
    for word in rest:
        if not isinstance(command, click.Group) or word.startswith("-"):
            break
        command = command.get_command(context, word)
        words.append(word)
    tells = isinstance(command, click.Group) and not command.invoke_without_command
    return " ".join(words), None if tells else command


def _takes_url(command: click.Command) -> bool:
    """Whether it speaks with an engine by its address. All others act on this machine."""
    return any(parameter.name == "url" for parameter in command.params)


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

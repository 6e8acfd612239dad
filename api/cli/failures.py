"""Failures in words on standard error: the detail as it came, then the command that mends it (section 7)."""

from __future__ import annotations

from typing import IO, Any

import click

from api.wire import ClientFault, KeyMissing, Refused, Unreachable, printable
from engine.errors import Refusal

RECIPE = (
    "401 Unauthorized; take a fresh token:",
    "  hatchway config unset connection-token",
    "  hatchway engine ping",
)
"""The contract's cure for a dead token, where the command could not heal it by itself."""


class Failed(click.ClickException):
    """Exit code 1: refused or failed."""

    exit_code = 1

    def __init__(self, detail: str, hints: tuple[str, ...] = ()) -> None:
        super().__init__(detail)
        self.hints = hints

    def show(self, file: IO[Any] | None = None) -> None:
        click.secho(self.message, fg="red", err=True, color=self.show_color)
        for hint in self.hints:
            click.echo(hint, err=True)


def failure_of(fault: BaseException) -> tuple[str, tuple[str, ...]] | None:
    """A refusal's detail and what to do about it; None for a fault of the program, which is for its maintainers."""
    while isinstance(fault, BaseExceptionGroup):
        fault = fault.exceptions[0]
    if isinstance(fault, Refused):
        return fault.detail, _hints(fault)
    if isinstance(fault, ClientFault):
        return fault.detail, _ways_out(fault)
    if isinstance(fault, Refusal):
        return printable(fault.detail), ()
    if isinstance(fault, OSError):
        where = f"{fault.filename}: " if fault.filename else ""
        return printable(f"{where}{fault.strerror or fault}"), ()
    return None


def _ways_out(fault: ClientFault) -> tuple[str, ...]:
    if isinstance(fault, KeyMissing):
        return (
            "sign in with one:",
            "  hatchway login --url URL --key FILE",
            "or with a code that `hatchway engine pair` prints on the engine's host:",
            "  hatchway pair CODE --url URL",
        )
    if isinstance(fault, Unreachable) and not fault.sent:
        return ("start one here with: hatchway engine start", "or say where it is: hatchway config set url URL")
    return ()


def _hints(refused: Refused) -> tuple[str, ...]:
    hints = [refused.skew_hint] if refused.skew_hint else []
    if refused.code == "invalid_token":
        hints.extend(RECIPE)
    if refused.code == "invalid_signature":
        hints.append("see which keys are registered, on the engine's host: hatchway key list")
    if refused.retry_after is not None:
        hints.append(f"try again in {refused.retry_after} s")
    return tuple(hints)

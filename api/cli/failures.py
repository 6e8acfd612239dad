"""Failures in words on standard error: the detail as it came, then the command that mends it (section 7)."""

from __future__ import annotations

from typing import IO, Any

import click

from hatchway.api.client.wire import CertificateRefused, ClientFault, KeyMissing, Refused, Unreachable
from hatchway.engine.base.errors import Refusal
from hatchway.engine.base.text import printable

RECIPE = (
    "401 Unauthorized; take a fresh token:",
    "  hatchway config unset connection-token",
    "  hatchway engine ping",
)
"""What the specification says to do about a token that is no longer valid, where the command could not replace it."""


MENDED = {
    "ambiguous": "see which keys there are: hatchway key list",
    "image_not_found": "see image_folders and registries, on the engine's host: hatchway config list",
    "instance_not_found": "see which instances there are: hatchway instance list",
    "invalid_signature": "see which keys are registered, on the engine's host: hatchway key list",
    "module_not_licensed": "see what the license grants, on the engine's host: hatchway license info",
    "no_key_file": "make a key: hatchway key generate",
    "not_found": "see which sessions there are: hatchway session list",
    "permission_denied": "see what you may do: hatchway engine ping",
    "setting_refused": "see the settings and what they are: hatchway config list",
    "unknown_key": "see which keys there are: hatchway key list",
}
"""A refusal's code, or its cause where that says more, and the command that leads on."""


class Failed(click.ClickException):
    """Exit code 1: refused or failed."""

    exit_code = 1

    def __init__(self, detail: str, hints: tuple[str, ...] = ()) -> None:
        super().__init__(detail)
        self.hints = hints

    def show(self, file: IO[Any] | None = None) -> None:
        from hatchway.api.cli.printing import note, say

        say(self.message, fg="red", err=True, color=self.show_color)
        for hint in self.hints:
            note(hint)


def failure_of(fault: BaseException) -> tuple[str, tuple[str, ...]] | None:
    """An error's sentence, and what to do about it; None for a fault of the program itself."""
    while isinstance(fault, BaseExceptionGroup):
        fault = fault.exceptions[0]
    if isinstance(fault, Refused):
        return fault.detail, _hints(fault)
    if isinstance(fault, ClientFault):
        return fault.detail, ways_out(fault)
    if isinstance(fault, Refusal):
        return printable(fault.detail), _mended(fault.cause, fault.code)
    if isinstance(fault, OSError):
        where = f"{fault.filename}: " if fault.filename else ""
        return printable(f"{where}{fault.strerror or fault}"), ()
    return None


def ways_out(fault: ClientFault) -> tuple[str, ...]:
    """What to do where no answer came, line by line."""
    if isinstance(fault, KeyMissing):
        return (
            "sign in with one:",
            "  hatchway login --url URL --key FILE",
            "or with a code that `hatchway engine pair` prints on the engine's host:",
            "  hatchway pair --url URL",
        )
    if isinstance(fault, Unreachable) and not fault.sent and not isinstance(fault, CertificateRefused):
        return ("start one here with: hatchway engine start", "or say where it is: hatchway config set url URL")
    return ()


def _mended(*words: str) -> tuple[str, ...]:
    return tuple(MENDED[word] for word in words if word in MENDED)[:1]


def _hints(refused: Refused) -> tuple[str, ...]:
    hints = [refused.skew_hint] if refused.skew_hint else []
    if refused.code == "invalid_token":
        hints.extend(RECIPE)
    hints.extend(_mended(refused.code))
    if refused.retry_after is not None:
        hints.append(f"try again in {refused.retry_after} s")
    return tuple(hints)

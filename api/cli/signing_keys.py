"""The keys that a command signs in with: files, whose passphrases are asked for, and what the SSH agent holds."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hatchway.api.client.agent import AgentFault
from hatchway.api.client.signers import FileSigner, Signer, agent_signers, read_key
from hatchway.engine.base.errors import KeyRefused, Refusal
from hatchway.engine.settings.kinds import AGENT

if TYPE_CHECKING:
    from hatchway.engine.keys.keys import PrivateKey

CONFIRMED_WITHIN = 2.0
"""Seconds after which standard error says that an agent's signature waits for a person."""


class Signers:
    """The signers of several sources. Each source is read when those before it were of no use: a passphrase is asked
    for only then."""

    def __init__(self, sources: tuple[str, ...]) -> None:
        """`sources` are paths of files, and names in the SSH agent after `agent:`."""
        self.sources = sources
        self._last = sources[0] if sources else None

    def __call__(self) -> Iterator[Signer]:
        """The signers, in order. A source that has none is passed over where another one has. Raises what the first
        source did where none has."""
        faults: list[AgentFault | Refusal] = []
        given = False
        for source in self.sources:
            self._last = source
            try:
                found = _signers_of(source)
            except (AgentFault, Refusal) as fault:
                faults.append(fault)
            else:
                given = True
                yield from found
        if faults and not given:
            raise faults[0]

    def kept_name(self, signer: Signer | None) -> str | None:
        """The name under which the key of a session is stored with its token, that of `signer`, the last one. Of an
        agent's keys it is the one that signed in."""
        if self._last is not None and self._last.startswith(AGENT) and signer is not None:
            return AGENT + signer.identity
        return self._last


class TellingSigner:
    """A signer that says on standard error when a signature waits for a person."""

    def __init__(self, signer: Signer) -> None:
        self._signer = signer
        self.identity, self.algorithm, self.words = signer.identity, signer.algorithm, signer.words

    def sign(self, message: bytes) -> bytes:
        """As the other does."""
        from threading import Timer

        from hatchway.api.cli.printing import note

        words = f"waiting for the SSH agent to sign with {self.identity}: confirm it, or touch the token"
        timer = Timer(CONFIRMED_WITHIN, lambda: note(words))
        timer.daemon = True
        timer.start()
        try:
            return self._signer.sign(message)
        finally:
            timer.cancel()


def _signers_of(source: str) -> Iterable[Signer]:
    if source.startswith(AGENT):
        return [TellingSigner(signer) for signer in agent_signers(source.removeprefix(AGENT))]
    return [FileSigner(_ask_for_key(Path(source)))]


def _ask_for_key(path: Path) -> PrivateKey:
    """The private key in `path`; its passphrase, if it has one, is asked for at the terminal."""
    from hatchway.engine.keys.key_files import PassphraseWanted

    try:
        return read_key(path)
    except FileNotFoundError:
        raise KeyRefused(f"{path}: no such key file", cause="no_key_file") from None
    except PassphraseWanted:
        if not sys.stdin.isatty():
            raise
        return read_key(path, click.prompt(f"Passphrase of {path}", hide_input=True, err=True).encode())

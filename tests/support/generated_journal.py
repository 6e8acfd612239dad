"""Journals of any length, made by the records and the journal of an engine, as many people at work would make them."""

from __future__ import annotations

import logging
import os
import random
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from hatchway.engine.access.tokens import Tokens
from hatchway.engine.journal import journal as journal_module
from hatchway.engine.journal.heads import read_keys, remember_keys
from hatchway.engine.journal.journal import FileJournal
from hatchway.engine.journal.replay import charts_digest
from hatchway.engine.runtime.records import UNPROVEN, Origin, Records, Saw
from tests.support.fakes import SetClock

ISSUER = "urn:uuid:0f0e0d0c-0b0a-4908-8706-050403020100"
LIFETIME = 3600
"""Seconds of each session."""

SIGNED_IN = Saw(proof="signature")


class Generated:
    """A journal in `folder` with the token key that signs its heads, and the records that people cause."""

    def __init__(self, folder: Path, *, begin: float = 1_790_000_000.0, seed: int = 1) -> None:
        os.umask(0o077)
        self.folder, self.clock, self.dice = folder, SetClock(begin, 1_700_000_000.0), random.Random(seed)
        self.tokens = Tokens(ISSUER, Ed25519PrivateKey.generate())
        self.keys_path = folder.parent / "head-keys.json"
        folder.parent.mkdir(parents=True, exist_ok=True)
        remember_keys(self.keys_path, self.tokens.jwks())
        self.keys = read_keys(self.keys_path.read_bytes())
        self.journal = FileJournal(folder, self.clock, ISSUER, self.tokens.sign)
        self.records = Records(self.clock, self.journal, last_seq=self.journal.last_seq)
        self._live: list[tuple[str, str, int]] = []
        self._count, self._sealed_at = 0, begin

    def start(self) -> None:
        """The engine starts."""
        self.records.notice("engine", ISSUER, "start", saw=Saw(charts=charts_digest()))

    def stop(self) -> None:
        """The engine stops."""
        self.records.notice("engine", ISSUER, "stop")
        self.journal.close()

    def work(self, count: int, pause: float = 3.0) -> None:
        """So many records, with `pause` seconds between two of them on average."""
        until = self.journal.last_seq + count
        while self.journal.last_seq < until:
            self.clock.now += self.dice.expovariate(1 / pause)
            if self.clock.now - self._sealed_at >= 60:
                self.journal.seal("minute")
                self._sealed_at = self.clock.now
            self._one()

    def _one(self) -> None:
        dice = self.dice.random()
        if len(self._live) > 500:
            self._session(renewed=False)
        elif dice < 0.45 or not self._live:
            self._sign_in()
        elif dice < 0.60:
            self._pair()
        elif dice < 0.65:
            self.records.refusal("session", "-", "start", "wrong_signature", self._origin(None), saw=UNPROVEN)
        else:
            self._session(renewed=dice < 0.75)

    def _session(self, *, renewed: bool) -> None:
        """Somebody renews a session or logs out; one whose lifetime is over ends by itself."""
        place = self.dice.randrange(len(self._live))
        name, identity, deadline = self._live[place]
        told, saw, who = self.records.transition, Saw(deadline=deadline), self._origin(identity)
        if deadline <= self.clock.now:
            del self._live[place]
            told("session", name, "lifetime_elapsed", "active", "expired", ("clean_up_tokens",), saw=saw)
        elif renewed:
            self._live[place] = (name, identity, int(self.clock.now) + LIFETIME)
            told("session", name, "renew", "active", "active", ("issue_token",), who, None, saw)
        else:
            del self._live[place]
            told("session", name, "logout", "active", "ended", ("end_session",), who, None, saw)

    def _sign_in(self, identity: str | None = None) -> None:
        self._count += 1
        who = identity or f"SHA256:{self._count % 500:043d}"
        name = f"{int(self.clock.now * 1000):011x}{self._count:012d}"
        proof = SIGNED_IN if identity is None else Saw(proof="approval")
        effects = ("issue_token",)
        self.records.transition("session", name, "start", "none", "active", effects, self._origin(who), None, proof)
        self._live.append((name, who, int(self.clock.now) + LIFETIME))

    def _pair(self) -> None:
        self._count += 1
        name, told = f"p{self._count:011d}", self.records.transition
        operator = Origin("operator")
        told("pairing", name, "issue", "none", "issued", ("print_code",), operator)
        self.clock.now += 2
        effects: tuple[str, ...] = ("confirm_claim", "ask_operator")
        told("pairing", name, "claim", "issued", "claimed", effects, self._origin(None), None, Saw(at=2, of=30))
        self.clock.now += 1
        effects = ("consume_code", "sign_in")
        told("pairing", name, "approve", "claimed", "approved", effects, operator, None, Saw(at=1, of=30))
        self._sign_in(f"pairing:{name}")

    def _origin(self, identity: str | None) -> Origin:
        return Origin(identity, f"192.0.2.{self.dice.randrange(256)}", f"ab12cd-{self._count}")


def kept_whole() -> Iterator[None]:
    """Journals are not cut to a week and 64 MiB."""
    patch = pytest.MonkeyPatch()
    patch.setattr(journal_module, "KEPT_SECONDS", 1e12)
    patch.setattr(journal_module, "KEPT_BYTES", 1 << 50)
    patch.setattr(journal_module, "MOST_FILES", 1 << 30)
    yield
    patch.undo()


def main(folder: str, count: str) -> None:
    """Make one by hand: `python -m tests.support.generated_journal FOLDER COUNT`."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    for _ in kept_whole():
        made = Generated(Path(folder) / "log")
        made.start()
        made.work(int(count))
        made.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])

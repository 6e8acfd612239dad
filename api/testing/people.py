"""Those who use an engine under test: keys, operators who answer as they are told, sessions that renew themselves."""

from __future__ import annotations

from base64 import b64encode
from contextlib import suppress
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec
import trio

from hatchway.engine.access.principal import IssuedSession, Principal
from hatchway.engine.base import files
from hatchway.engine.base.durations import lifetime as seconds_of
from hatchway.engine.base.errors import InvalidRequest, Refusal
from hatchway.engine.base.permissions import FIVE, parse_permissions
from hatchway.engine.engine import Engine
from hatchway.engine.keys.keys import PrivateKey, generate_key, sign
from hatchway.engine.runtime.records import Origin
from hatchway.engine.sessions.key_sign_in import Proof
from hatchway.statecharts.pairing import DECISION_WINDOW

Answer = Literal["approve", "reject", "late"]

OPERATOR = Origin("operator")
LOOPBACK = "127.0.0.1"
BITS = 2048
"""Size of a test's keys, which are made in a few hundredths of a second."""


class AuthorizedKey(NamedTuple):
    """A key that is authorized. `file` is its private half, PKCS#8 PEM."""

    name: str
    identity: str
    file: Path


class Session(msgspec.Struct, frozen=True):
    """A session that is signed in. `expires_at` in epoch seconds by the engine's clock."""

    token: str
    permissions: tuple[str, ...]
    expires_at: int


def granted(names: list[str] | tuple[str, ...] | None) -> tuple[str, ...]:
    """These permissions; the five where none are named. Raises InvalidRequest."""
    return FIVE if names is None else parse_permissions(",".join(names))


def lasting(lifetime: str | None) -> int:
    """Seconds of a lifetime such as `30m`; an hour where none is given. Raises InvalidRequest."""
    try:
        return seconds_of(lifetime)[0]
    except Refusal as refused:
        raise InvalidRequest({"lifetime": refused.detail}) from None


class Keys:
    """The private keys of a test, each in a file of its own, and authorized with the engine."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._private: dict[str, PrivateKey] = {}

    def make(self, engine: Engine, name: str | None, permissions: tuple[str, ...]) -> AuthorizedKey:
        """A new key. Raises InvalidRequest where the name is taken, or none."""
        name = name or f"key-{len(self._private) + 1}"
        if name in self._private or not (name.isascii() and name.replace("-", "").replace("_", "").isalnum()):
            raise InvalidRequest({"name": "must be letters, digits, - and _, and no other key's"})
        private = self._private[name] = generate_key(BITS)
        self._path(name).parent.mkdir(mode=0o700, exist_ok=True)
        files.write_private(self._path(name), private.pem())
        engine.keys.register(private.public, permissions, comment=name)
        return AuthorizedKey(name, private.public.identity, self._path(name))

    def find(self, name: str) -> PrivateKey:
        """The key of that name, or identity. Raises InvalidRequest."""
        for known, private in self._private.items():
            if name in (known, private.public.identity):
                return private
        raise InvalidRequest({"key": f"must be a key that this test made: {', '.join(self._private)}"})

    def forget_all_but(self, name: str) -> None:
        """Forget all other keys, which were those of an earlier test."""
        for other in [other for other in self._private if other != name]:
            self._path(other).unlink()
            del self._private[other]

    def _path(self, name: str) -> Path:
        return self._folder / f"{name}.pem"


class People:
    """Operators and session owners of an engine, between two resets. `nursery` ends with a reset."""

    def __init__(self, engine: Engine, host: str, nursery: trio.Nursery) -> None:
        """`host` is what is dialled: host and port."""
        self._engine, self._host, self._nursery = engine, host, nursery

    async def pair(self, permissions: tuple[str, ...], lifetime: int, answer: Answer | None) -> str:
        """A code that is out, whose operator gives that answer once it is claimed; None gives none.

        Raises TooManyRequests where four are out, StoreUnavailable.
        """

        def terminal(event: str, **details: object) -> None:
            if event == "claimed" and answer is not None:
                self._nursery.start_soon(self._answer, name, answer)

        issued = await self._engine.pairings.issue(permissions, lifetime, terminal, OPERATOR)
        name = issued.id
        return issued.code

    async def _answer(self, name: str, answer: Answer) -> None:
        if answer == "late":
            await trio.sleep(DECISION_WINDOW)
        with suppress(Refusal):  # it came too late, or the console has gone
            await self._engine.pairings.answer(name, answer != "reject", OPERATOR)

    async def sign_in(self, private: PrivateKey, lifetime: int) -> Session:
        """A session by challenge and signature. Raises SignatureRefused, TooManyRequests, StoreUnavailable."""
        identity, by_key = private.public.identity, self._engine.key_sign_in
        _, nonce = by_key.challenge(self._host, identity)
        signature = b64encode(sign(private, nonce.encode())).decode()
        proof = Proof(nonce, signature, "PS256", lifetime, identity)
        return _session(await by_key.verify(proof, Origin(None, LOOPBACK)))

    def keep_alive(self, session: Session) -> None:
        """From now on the session renews itself at half its lifetime, as our clients do, until it may no more."""
        self._nursery.start_soon(self._renew, self._engine.sessions.authenticate(session.token))

    async def _renew(self, principal: Principal) -> None:
        sessions, clock = self._engine.sessions, self._engine.clock
        origin, expires_at = Origin(principal.identity, LOOPBACK), principal.expires_at
        try:
            while True:
                await trio.sleep((expires_at - clock.wall()) / 2)
                expires_at = (await sessions.renew(principal, origin)).expires_at
        except Refusal:
            return  # it has ended


def _session(signed_in: IssuedSession) -> Session:
    return Session(signed_in.token, signed_in.permissions, signed_in.expires_at)

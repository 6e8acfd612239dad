"""The session service where other engines have a hand in its store: what it waits for, and whom it then believes."""

from __future__ import annotations

import pytest

from hatchway.engine.access.limits import Limit
from hatchway.engine.base.errors import SignatureRefused, StoreUnavailable, TokenRefused
from hatchway.engine.base.permissions import FIVE
from hatchway.engine.engine import Engine
from hatchway.engine.runtime.records import NOBODY
from hatchway.engine.sessions.key_sign_in import Proof
from hatchway.engine.sessions.sessions import Sessions
from tests.support.fakes import key, signed

pytestmark = pytest.mark.virtual_time


class Fleet:
    """What the service needs of a fleet. `news` comes while it is waited for; it may have lost touch."""

    def __init__(self, engine: Engine) -> None:
        self.engine, self.fresh, self.waits = engine, True, 0
        self.taken_out: str | None = None

    def limit(self, *_: object) -> Limit:
        raise AssertionError("asked for before there were sessions")

    def check_fresh(self) -> None:
        if not self.fresh:
            raise StoreUnavailable("the fleet's store can't be reached")

    async def wait_fresh(self) -> None:
        self.waits += 1
        self.check_fresh()
        if self.taken_out is not None:
            self.engine.keys.unregister(self.taken_out)

    async def wait_whole(self, seconds: float) -> None:
        raise AssertionError("nothing is listed here")


@pytest.fixture
async def fleet(engine: Engine) -> Fleet:
    fleet = engine.sessions._fleet = engine.key_sign_in._fleet = Fleet(engine)
    return fleet


async def made(engine: Engine) -> str:
    """The token of a new session."""
    return (await engine.sessions.start("key", key().identity, FIVE, 3600, proof="signature", origin=NOBODY)).token


def forget(sessions: Sessions, token: str) -> str:
    """As if another engine had started it: the store has the session, and nothing is known of it here."""
    name = sessions.name_of(token)
    sessions._runtime.forget("session", name)
    return name


async def test_a_key_that_was_taken_out_elsewhere_signs_in_nowhere(engine: Engine, fleet: Fleet) -> None:
    """What the others did is heard before the key is looked for, also where a worker has checked the signature."""
    body = signed(engine.key_sign_in.challenge("h", None)[1], key())
    challenge = engine.key_sign_in._challenges.read(body["nonce"])
    fleet.taken_out = key().identity
    with pytest.raises(SignatureRefused):
        await engine.key_sign_in.start_verified(challenge, key().identity, 3600, NOBODY)
    fleet.engine.keys.register(key().public, FIVE)
    with pytest.raises(SignatureRefused):
        await engine.key_sign_in.verify(Proof(body["nonce"], body["signature"], "PS256", 3600), NOBODY)
    assert fleet.waits == 2


async def test_an_engine_out_of_touch_answers_for_no_session(engine: Engine, fleet: Fleet) -> None:
    """Neither that it is good nor that it is over: both may have changed."""
    token = await made(engine)
    assert engine.sessions.authenticate(token).permissions == FIVE
    fleet.fresh = False
    with pytest.raises(StoreUnavailable):
        engine.sessions.authenticate(token)
    with pytest.raises(StoreUnavailable):
        await engine.sessions.look_again(token)


async def test_a_session_that_is_not_known_yet_is_looked_for(engine: Engine, fleet: Fleet) -> None:
    """Another engine made it just now; or it went a step further there than is known here."""
    token = await made(engine)
    forget(engine.sessions, token)
    with pytest.raises(TokenRefused):
        engine.sessions.authenticate(token)
    await engine.sessions.look_again(token)
    principal = engine.sessions.authenticate(token)
    await engine.sessions.renew(principal, NOBODY)
    actor = engine.runtime.peek("session", principal.session)
    assert actor is not None
    stored = (actor.version, actor.deadline)
    actor.version, actor.deadline = 1, 0.0  # as if the renewal had been another engine's
    await engine.sessions.look_again(token)
    assert (actor.version, actor.deadline) == stored
    assert fleet.waits == 2


async def test_a_first_token_of_a_session_that_began_elsewhere(engine: Engine, fleet: Fleet) -> None:
    """It is as good as one of the engine that began it; of no session, or of one that is over, there is none."""
    name = forget(engine.sessions, await made(engine))
    signed_in = await engine.sessions.started_elsewhere(name)
    principal = engine.sessions.authenticate(signed_in.token)
    assert (principal.session, principal.expires_at) == (name, signed_in.expires_at)
    await engine.sessions.logout(principal, NOBODY)
    for gone in (name, "nobody's"):
        with pytest.raises(TokenRefused):
            await engine.sessions.started_elsewhere(gone)


async def test_what_is_over_stays_over(engine: Engine) -> None:
    """Renewed or logged out after its end it is refused; settled again, nothing happens to it or to a bad token."""
    token = await made(engine)
    principal = engine.sessions.authenticate(token)
    await engine.sessions.logout(principal, NOBODY)
    for ask in (engine.sessions.renew, engine.sessions.logout):
        with pytest.raises(TokenRefused):
            await ask(principal, NOBODY)
    for over in (token, token[:-4], ""):
        await engine.sessions.settle(over)

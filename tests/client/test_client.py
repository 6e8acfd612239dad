"""The Python client on a real engine: signs in, heals and renews by itself."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio

from hatchway.api.client import Accepted, AsyncClient, Client, ClientFault, Refused, SignedIn, StoredToken
from hatchway.engine.base.permissions import FIVE
from hatchway.engine.engine import Engine
from hatchway.engine.runtime.records import NOBODY
from tests.support.fakes import key
from tests.support.live_engine import live_engine


class Keeper:
    """What a command does with tokens: keeps the last."""

    def __init__(self) -> None:
        self.kept: list[StoredToken | None] = []

    def __call__(self, stored: StoredToken | None) -> None:
        self.kept.append(stored)


async def test_sign_in_inspect_renew_logout(home: Path) -> None:
    """The whole life of a session through the client, each answer typed."""
    keeper = Keeper()
    async with live_engine(home) as (_, url, _), AsyncClient(url, key=key().pem(), on_token=keeper) as client:
        signed_in = await client.sign_in("30m")
        inspection = await client.inspect()
        assert inspection.valid
        assert (inspection.identity, inspection.method) == (key().identity, "key")
        assert inspection.permissions == signed_in.permissions == FIVE
        renewed = await client.renew()
        assert renewed.token != signed_in.token
        assert [row["session"] for row in await client.sessions()] == [inspection.session]
        await client.logout()
        stored = keeper.kept[-2]
        assert keeper.kept[-1] is None
        assert stored is not None
        assert (stored.lifetime, stored.session, stored.url) == (1800, inspection.session, url)
        async with AsyncClient(url, stored=stored) as other:
            with pytest.raises(Refused) as refused:
                await other.inspect()
        assert (refused.value.status, refused.value.code) == (401, "invalid_token")


async def test_a_session_that_nobody_else_has_ends_with_its_client(home: Path) -> None:
    """One that a call began by itself: a program that runs each minute would soon hold all that its key may have. One
    whose token was handed out lives on, and an engine that is gone holds nobody up."""
    async with live_engine(home) as (engine, url, _):

        def use(*, explicit: bool, fail: bool = False) -> None:
            with Client(url, key=key()) as client:
                if explicit:
                    client.sign_in()
                client.inspect()
                if fail:
                    raise ZeroDivisionError

        await trio.to_thread.run_sync(partial(use, explicit=False))
        with pytest.raises(ZeroDivisionError):
            await trio.to_thread.run_sync(partial(use, explicit=False, fail=True))
        async with AsyncClient(url, key=key()) as client:
            await client.inspect()
        with trio.move_on_after(5) as cancelled:
            async with AsyncClient(url, key=key()) as client:
                await client.inspect()
                cancelled.cancel()
                await trio.sleep_forever()
        assert list(engine.runtime.actors("session")) == []
        await trio.to_thread.run_sync(partial(use, explicit=True))
        async with AsyncClient(url, key=key()) as client:
            await client.inspect()
            await client.renew()
        assert len(list(engine.runtime.actors("session"))) == 2
        last = AsyncClient(url, key=key())
        await last.__aenter__()
        await last.inspect()
    await last.__aexit__()


async def test_the_sync_client_does_the_same(home: Path) -> None:
    """`Client` runs the same flows, from a thread without an event loop."""

    def use(url: str) -> str:
        with Client(url, key=key()) as client:
            identity = client.inspect().identity
            client.revoke(client.sessions()[0]["session"])
            with pytest.raises(Refused, match="sign in again"):
                client.renew()
        return identity

    async with live_engine(home) as (_, url, _):
        assert await trio.to_thread.run_sync(use, url) == key().identity


@pytest.mark.parametrize(
    "url", ["127.0.0.1:7420", "ftp://x", "https:///path", "", "http://x:99999", "http://x?y=1", "http://x/?y=1"]
)
@pytest.mark.parametrize("kind", [Client, AsyncClient])
def test_what_is_no_address_is_refused(kind: type[Client | AsyncClient], url: str) -> None:
    """Before anything is sent, in words that say what would be one."""
    with pytest.raises(ClientFault, match=r"is no engine's address: .* is wanted|such as http"):
        kind(url)


async def test_a_client_is_used_in_its_block(home: Path) -> None:
    """Before and after it a call says so: nobody would close its connections."""
    async with live_engine(home) as (_, url, _):
        client, other = AsyncClient(url, key=key()), Client(url, key=key())
        with pytest.raises(RuntimeError, match="within its `with` block"):
            await client.inspect()
        async with client:
            await client.inspect()
        with pytest.raises(RuntimeError, match="within its `with` block"):
            await client.inspect()
        with pytest.raises(RuntimeError, match="within its `with` block"):
            other.inspect()


async def test_a_refused_token_heals_once(home: Path) -> None:
    """A stored token that has ended is replaced by a sign-in, and the call goes on; without a key it is refused."""
    keeper = Keeper()
    async with live_engine(home) as (engine, url, _):
        async with AsyncClient(url, key=key(), on_token=keeper) as client:
            await client.inspect()
            await engine.sessions.end_all_of({key().identity})
            assert (await client.inspect()).valid
        assert len(keeper.kept) == 2
        await engine.sessions.end_all_of({key().identity})
        async with AsyncClient(url, stored=keeper.kept[-1]) as client:
            with pytest.raises(Refused):
                await client.inspect()


async def test_a_token_is_renewed_past_half_its_lifetime(home: Path) -> None:
    """Used before half of its lifetime it stays, after it is renewed, after its end there is a new sign-in."""
    now = 1000.0
    keeper = Keeper()
    async with (
        live_engine(home) as (_, url, _),
        AsyncClient(url, key=key(), lifetime="10m", on_token=keeper, wall=lambda: now) as client,
    ):
        session = (await client.inspect()).session
        now += 290
        await client.inspect()
        assert len(keeper.kept) == 1
        now += 20
        assert (await client.inspect()).session == session
        assert len(keeper.kept) == 2
        now += 601
        assert (await client.inspect()).session != session


def no_terminal(event: str, **details: Any) -> None:
    """A terminal that nobody looks at."""


async def pair(engine: Engine, client: AsyncClient, *, approve: bool) -> SignedIn:
    """Pair a client; the operator answers once the match number is shown."""
    issued = await engine.pairings.issue(("SHELL",), 60, no_terminal, NOBODY)
    asked = trio.Event()

    def accepted(told: Accepted) -> None:
        assert len(told.match) == 2
        asked.set()

    async def answer_it() -> None:
        await asked.wait()
        await engine.pairings.answer(issued.id, approve, NOBODY)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(answer_it)
        try:
            return await client.pair(issued.code, accepted)
        except Refused as fault:
            refused = fault
    raise refused


async def test_pairing_streams_to_a_session(home: Path) -> None:
    """A code is accepted with its match number, and answered when the operator says yes; a no raises the one 401."""
    async with live_engine(home) as (engine, url, _), AsyncClient(url) as client:
        with pytest.raises(Refused, match=r"^invalid pairing code$") as refused:
            await pair(engine, client, approve=False)
        assert (refused.value.status, refused.value.code) == (401, "invalid_pairing_code")
        assert (await pair(engine, client, approve=True)).permissions == ("SHELL",)
        assert (await client.inspect()).method == "pairing"

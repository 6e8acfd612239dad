"""The people of the simulation: owners of keys, operators at terminals, consoles, and strangers who try."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import trio

from tests.support.fakes import key, signed
from tests.support.simulation.ledger import Violation

if TYPE_CHECKING:
    from tests.support.simulation.world import Heard, World

INSPECT, VERIFY, RENEW, LOGOUT = (f"/api/auth/{name}/" for name in ("inspect", "verify", "renew", "logout"))
PAIR = "/api/auth/pair/request/"


def people(world: World) -> Iterator[Callable[[], Awaitable[None]]]:
    """Everybody who will come, in the order of the dice."""
    for _ in range(world.dice.choice((1, 2, 3))):
        yield partial(owner, world)
    for _ in range(world.dice.choice((1, 2, 2))):
        yield partial(operator, world)
    yield partial(stranger, world)


async def owner(world: World) -> None:
    """Somebody with a key: signs in, uses the session, ends it, and looks whether it has ended."""
    dice = world.dice
    await trio.sleep(dice.uniform(0, 60))
    token = await _sign_in(world, dice.choice(("one", "two")))
    if token is not None:
        await use(world, token)


async def _sign_in(world: World, name: str) -> str | None:
    dice, life = world.dice, await world.now_living()
    challenge = await world.ask("GET", "/api/auth/challenge/")
    if not challenge.whole:
        return None
    body = signed(challenge.json()["nonce"], key(name)) | {"lifetime": dice.choice(("1m", "2m", "1h"))}
    proof, born = f"nonce {body['nonce'][-8:]}", trio.current_time()
    await trio.sleep(dice.choice((0, 1, 30)))
    world.ledger.proved.add(body["nonce"])
    replies: list[Heard] = []

    async def verify() -> None:
        replies.append(await world.ask("POST", VERIFY, body))

    for _ in range(20):
        replies.clear()
        async with trio.open_nursery() as copies:
            for _ in range(dice.choice((1, 1, 2, 3))):
                copies.start_soon(verify)
        tokens = [world.ledger.signed_in(reply.json(), proof) for reply in replies if reply.status == 200]
        if tokens:
            return tokens[0]
        if world.life is not life or not all(reply.whole for reply in replies):
            return None  # the nonce died with its engine, or nobody knows
        if any(reply.status == 401 for reply in replies) and trio.current_time() < born + 60:
            raise Violation(f"the {proof} was burnt without a session")
        await trio.sleep(dice.uniform(0.1, 3))
    return None


async def use(world: World, token: str) -> None:
    """Look, renew, log out, all at once or one after the other."""
    dice = world.dice
    doings = {inspect: 4, renew: 2, renew_and_log_out: 1, log_out: 1}
    for _ in range(dice.randrange(2, 6)):
        await trio.sleep(dice.choice((0, 0.01, 1, dice.uniform(0, 30))))
        (doing,) = dice.choices(list(doings), list(doings.values()))
        token = await doing(world, token) or token


async def inspect(world: World, token: str) -> None:
    asked = world.ledger.about(token)
    world.ledger.judge(token, asked, await world.ask("GET", INSPECT, token=token))


async def renew(world: World, token: str) -> str | None:
    ledger = world.ledger
    known, asked = ledger.known(token), ledger.about(token)
    known.renewing += 1
    reply = await world.ask("POST", RENEW, token=token)
    known.renewing -= 1
    if reply.whole and reply.status == 503:
        return None
    if not ledger.judge(token, asked, reply):
        # Nobody knows whether it was stored, nor with which lifetime.
        if not reply.whole:
            known.expect(known.deadlines | {asked.wall + seconds for seconds in (60, 120, 3600)}, world.clock.wall())
        return None
    session: dict[str, Any] = reply.json()
    told = {session["expires_at"]} | (known.deadlines if known.renewing else set())
    known.expect(told, world.clock.wall())
    ledger.tokens[session["token"]] = ledger.tokens[token]
    return str(session["token"])


async def log_out(world: World, token: str) -> None:
    ledger = world.ledger
    known, asked = ledger.known(token), ledger.about(token)
    known.ending += 1
    reply = await world.ask("POST", LOGOUT, token=token)
    if reply.whole and reply.status == 503:
        known.ending -= 1  # nothing has changed
    if ledger.judge(token, asked, reply, taken=204):
        known.ended = True
    await inspect(world, token)


async def renew_and_log_out(world: World, token: str) -> None:
    async with trio.open_nursery() as both:
        both.start_soon(renew, world, token)
        both.start_soon(log_out, world, token)


async def stranger(world: World) -> None:
    """A key that nobody registered, and codes that nobody printed."""
    await trio.sleep(world.dice.uniform(0, 60))
    challenge = await world.ask("GET", "/api/auth/challenge/")
    if challenge.whole:
        reply = await world.ask("POST", VERIFY, signed(challenge.json()["nonce"], key("stranger")))
        if reply.status == 200:
            raise Violation("a stranger's key signed in")
    reply = await world.ask("POST", PAIR, {"code": "00000000"}, address="10.9.9.9")
    if reply.whole and reply.status != 401:
        raise Violation(f"a guessed code was answered {reply.status}")


async def operator(world: World) -> None:
    """Somebody at the host's terminal who prints a code, hands it to consoles, and answers."""
    dice = world.dice
    await trio.sleep(dice.uniform(0, 60))
    _, lines, stream = await world.dial_operator()
    async with trio.open_nursery() as nursery:
        try:
            await lines.write({"op": "pair", "permissions": None, "lifetime": dice.choice((60, 120, 3600))})
            issued = await lines.read()
            if issued is None or "code" not in issued:
                return
            code = issued["code"]
            for number in range(dice.choice((0, 1, 2, 2, 3))):
                nursery.start_soon(console, world, code, f"10.0.{len(world.ledger.lines) % 250}.{number}")
            with trio.move_on_after(dice.choice((float("inf"), float("inf"), dice.uniform(0, 40)))):
                await _answer(world, lines, code)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass  # the engine has died
        finally:
            with trio.CancelScope(shield=True):
                await stream.aclose()


async def _answer(world: World, lines: Any, code: str) -> None:
    dice = world.dice
    while (told := await lines.read()) is not None:
        world.ledger.note(f"terminal of {code}: {told}")
        if told.get("event") == "claimed":
            await trio.sleep(dice.choice((0, 0.01, 2, dice.uniform(0, 40), 30, 29.99)))
            for answer in dice.choice(("y", "y", "y", "n", "yn", "ny", "yy", "")):
                if answer == "y":
                    world.ledger.answered_yes.add(code)
                await lines.write({"answer": answer})


async def console(world: World, code: str, address: str) -> None:
    """A browser that was given the code; some of them hang up."""
    dice, ledger = world.dice, world.ledger
    await trio.sleep(dice.choice((0, 0, 1, 29.99, 30, dice.uniform(0, 40))))
    patience = dice.choice((1e9, 1e9, 0.0, 0.01, dice.uniform(0, 40)))
    headers = dice.choice(({}, {}, {"accept": "application/json"}))
    ledger.note(f"{address} claims {code}")
    reply = await world.ask("POST", PAIR, {"code": code}, patience=patience, address=address, headers=headers)
    session = next((item for item in _items(reply) if "token" in item), None)
    if session is not None:
        if code not in ledger.answered_yes:
            raise Violation(f"the code {code} gave a session without an operator's yes")
        token = ledger.signed_in(session, f"code {code}")
        ledger.known(token).ending += not reply.whole  # who hangs up on a session ends it
        await use(world, token)
    elif not reply.whole:
        ledger.hung_up[address] = trio.current_time()
    elif reply.status == 200 and "status" not in _items(reply)[-1]:
        raise Violation(f"the claim of {address} was let go without its last item: {reply.body!r}")
    elif reply.status not in (200, 401, 503):
        raise Violation(f"a claim was answered {reply.status}")


def _items(reply: Heard) -> list[dict[str, Any]]:
    return reply.lines() if reply.status == 200 else []

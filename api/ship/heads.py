"""Carries the heads of an engine's journal to where somebody with rights on its host can't take them back."""

from __future__ import annotations

import msgspec
import structlog
import trio

from hatchway.api.ship.records import NotTaken, Parcel
from hatchway.api.ship.targets import Options, Target, read_secret, target_of
from hatchway.engine.engine import Engine
from hatchway.engine.journal.heads import claims

log = structlog.get_logger(__name__)

SIGNED_WITH = "heads-secret"
"""File in the engine's folder that holds the secret of webhooks; made where a webhook is set and there is none."""

RETRY = 10.0
"""Seconds until a head that was not taken is tried again, or a later one in its place: it covers all before it."""


async def carry_heads(engine: Engine, address: str) -> None:
    """Hand each head of the engine's journal to the target at `address`, for ever. Where the target is slow it gets the
    latest alone, which covers the others. Raises TargetRefused, FileRefused."""
    heads = engine.journal.heads
    assert heads is not None
    secret = read_secret(engine.home / SIGNED_WITH) if address.startswith("http") else b""
    target = target_of(address, Options(engine.clock, None, secret))
    latest: list[str] = []
    news = trio.Event()

    def take(signed: str) -> None:
        latest[:] = [signed]
        news.set()

    heads.subscribers.append(take)
    while True:
        await news.wait()
        news = trio.Event()
        signed = latest[0]
        pause = await _carry(target, signed)
        if pause is not None:
            await trio.sleep(pause)
            news.set()


async def _carry(target: Target, signed: str) -> float | None:
    """Seconds until it is to be tried again, where the target did not take it."""
    try:
        await trio.to_thread.run_sync(_hand_on, target, _parcel(signed), abandon_on_cancel=True)
    except Exception as fault:  # whatever a target meets, it must not end the engine
        log.warning("head_not_carried", why=str(fault) or type(fault).__name__)
        target.close()
        return RETRY if not isinstance(fault, NotTaken) or fault.retry_after is None else fault.retry_after
    return None


def _hand_on(target: Target, parcel: Parcel) -> None:
    """Raises OSError, NotTaken, FileRefused."""
    try:
        target.settled(parcel.seq)  # notices a receiver that has hung up since the last head
    except OSError:
        target.close()
    target.send([parcel])


def _parcel(signed: str) -> Parcel:
    """A head as records are handed on."""
    said = claims(signed)
    record = {"time": said["iat"], "seq": said["seq"], "kind": "notice", "chart": "engine", "actor": said["iss"]}
    record |= {"event": "head", "cause": said["why"], "head": signed}
    return Parcel(said["seq"], msgspec.json.encode(record), record)

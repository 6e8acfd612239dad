"""Carries the heads of an engine's journal to where somebody with rights on its host can't take them back."""

from __future__ import annotations

import msgspec
import structlog
import trio

from hatchway.api.ship.records import NotTaken, Parcel
from hatchway.api.ship.targets import Options, Target, read_secret, target_of
from hatchway.engine.base.errors import FileRefused
from hatchway.engine.engine import Engine
from hatchway.engine.journal.heads import claims

log = structlog.get_logger(__name__)

SIGNED_WITH = "heads-secret"
"""File in the engine's folder that holds the secret of webhooks; made where a webhook is set and there is none."""

RETRY = 10.0
"""Seconds until a head that was not taken is tried again, or a later one in its place: it covers all before it."""


async def carry_heads(engine: Engine, address: str) -> None:
    """For ever; the latest head alone where the target is slow. Raises TargetRefused, FileRefused."""
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
        if not await _carry(target, signed):
            await trio.sleep(RETRY)
            news.set()


async def _carry(target: Target, signed: str) -> bool:
    try:
        await trio.to_thread.run_sync(target.send, [_parcel(signed)], abandon_on_cancel=True)
    except (OSError, NotTaken, FileRefused) as fault:
        log.warning("head_not_carried", why=str(fault) or type(fault).__name__)
        target.close()
        return False
    return True


def _parcel(signed: str) -> Parcel:
    """A head as records are handed on."""
    said = claims(signed)
    record = {"time": said["iat"], "seq": said["seq"], "kind": "notice", "chart": "engine", "actor": said["iss"]}
    record |= {"event": "head", "cause": said["why"], "head": signed}
    return Parcel(said["seq"], msgspec.json.encode(record), record)

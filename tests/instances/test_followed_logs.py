"""Many follow one log: it is read once for all of them, and each of them ends in its time."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
import trio

from hatchway.engine.instances import output, tails

pytestmark = pytest.mark.virtual_time
FOLLOWERS = 1500


class Log:
    """A log that grows, and its followers."""

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.path, self.tails, self.live, self.allowed = path, tails.Tails(), True, set(range(FOLLOWERS))
        self.calls: Counter[str] = Counter()
        self.got: dict[int, bytes] = dict.fromkeys(range(FOLLOWERS), b"")
        self.ended: set[int] = set()
        path.write_bytes(b"begin ")
        for name in ("read", "size"):
            monkeypatch.setattr(output, name, self._counted(name, getattr(output, name)))

    def _counted(self, name: str, call: object) -> object:
        def counted(*arguments: object) -> object:
            self.calls[name] += 1
            return call(*arguments)  # type: ignore[operator]

        return counted

    async def follow(self, number: int) -> None:
        """One follower, until its log ends or it may not go on."""
        goes_on = lambda: number in self.allowed  # noqa: E731
        async for piece in tails.pieces(tails.LogFile(self.path, 0), lambda: self.live, goes_on, self.tails):
            self.got[number] += piece
        self.ended.add(number)

    def write(self, text: bytes) -> None:
        with self.path.open("ab") as file:
            file.write(text)


async def test_a_log_is_read_once_for_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A silent log costs a look each quarter of a second, however many follow it; what comes is read once, and all get
    all of it. Who may not go on ends within a second and a bit, and gets nothing more; the rest end with the log."""
    log = Log(tmp_path / "out", monkeypatch)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(log.tails.run)
        for number in range(FOLLOWERS):
            nursery.start_soon(log.follow, number)
        await trio.sleep(2)
        assert set(log.got.values()) == {b"begin "}
        log.calls.clear()
        await trio.sleep(60)
        assert log.calls["read"] == 0
        assert 230 <= log.calls["size"] <= 250
        log.write(b"middle ")
        await trio.sleep(2)
        assert set(log.got.values()) == {b"begin middle "}
        assert log.calls["read"] <= 2
        log.allowed.remove(7)
        await trio.sleep(1.5)
        assert log.ended == {7}
        log.write(b"end")
        log.live = False
        await trio.sleep(2)
        assert log.ended == set(range(FOLLOWERS))
        assert log.got.pop(7) == b"begin middle "
        assert set(log.got.values()) == {b"begin middle end"}
        log.calls.clear()
        await trio.sleep(60)
        assert not log.calls
        nursery.cancel_scope.cancel()


async def test_a_follower_that_leaves_takes_nobody_along(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Followers come and go at any time; those who stay miss nothing."""
    log = Log(tmp_path / "out", monkeypatch)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(log.tails.run)
        for number in range(10):
            nursery.start_soon(log.follow, number)
        for step in range(20):
            with trio.move_on_after(0.3):
                await log.follow(11)
            log.write(b"%d," % step)
        await trio.sleep(1)
        log.live = False
        await trio.sleep(2)
        assert {log.got[number] for number in range(10)} == {log.path.read_bytes()}
        nursery.cancel_scope.cancel()

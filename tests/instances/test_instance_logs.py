"""An instance's log is bounded: its beginning and its newest are kept, and whoever reads is told what is left out."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from hatchway.engine.instances import output, tails
from hatchway.engine.instances.apptainer import watcher
from hatchway.engine.instances.apptainer.watcher import BoundedLog

MOST = 4000
CUT = re.compile(rb"\n\[hatchway: (\d+) bytes are left out here: the log was full\]\n")


def taken(path: Path) -> int:
    """Bytes on disk of the log and all that is beside it."""
    return sum(output.size(file) for file in path.parent.iterdir() if file.name.startswith(path.name))


def numbers(count: int) -> bytes:
    return b"".join(b"%09d\n" % number for number in range(count))


async def whole(path: Path, begin: int = 0) -> bytes:
    return b"".join(
        [piece async for piece in tails.pieces(tails.LogFile(path, begin), lambda: False, None, tails.Tails())]
    )


@pytest.mark.parametrize("size", [1, 7, 999, 1000, 1001, 2000, 5000, 50_000])
@pytest.mark.parametrize("begin", [0, 123])
async def test_beginning_and_newest(tmp_path: Path, size: int, begin: int) -> None:
    """However it is written: what is kept is in its place, and what is said to be left out is what is missing."""
    path, text = tmp_path / "log", numbers(3000)
    path.write_bytes(b"x" * begin)
    log = BoundedLog(str(path), begin, MOST)
    for at in range(0, len(text), size):
        log.write(text[at : at + size])
        assert size < 999 or taken(path) <= begin + MOST + 200
    assert taken(path) <= begin + MOST + 200
    first, left_out, last = CUT.split(await whole(path, begin))
    assert first == text[: MOST // 2]
    assert text.endswith(last)
    assert len(last) >= MOST // 4
    assert len(first) + int(left_out) + len(last) == len(text)
    assert b"the log is full here" in path.read_bytes()


async def test_what_fits_is_whole(tmp_path: Path) -> None:
    """Up to its bound nothing is left out, though it lies in several files."""
    for count in (199, 200, 201, 300, 400):
        path = tmp_path / f"log{count}"
        BoundedLog(str(path), 0, MOST).write(numbers(count))
        assert await whole(path) == numbers(count)


async def test_what_the_container_writes_itself(tmp_path: Path) -> None:
    """It has the file open: what is over the bound is taken out of it, the newest kept, and it goes on."""
    path, text = tmp_path / "log", numbers(3000)
    log = BoundedLog(str(path), 0, MOST)
    own = os.open(path, os.O_WRONLY | os.O_APPEND)
    for at in range(0, len(text), 6000):
        os.write(own, text[at : at + 6000])
        log.bound()
        assert taken(path) <= MOST + 200
    os.close(own)
    first, *_, last = CUT.split(await whole(path))
    assert first == text[: MOST // 2]
    assert text.endswith(last)


async def test_a_log_that_is_followed_while_it_is_cut(tmp_path: Path, autojump_clock: MockClock) -> None:
    """Whoever keeps up misses nothing and reads nothing twice; whoever does not is told how much was missed."""
    path, text, done = tmp_path / "log", numbers(3000), list[bool]()
    log = BoundedLog(str(path), 0, MOST)
    seen, followed = {"quick": b"", "slow": b""}, tails.Tails()

    async def follow(name: str, pause: float) -> None:
        async for piece in tails.pieces(tails.LogFile(path, 0), lambda: not done, lambda: True, followed):
            seen[name] += piece
            await trio.sleep(pause)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(followed.run)
        async with trio.open_nursery() as followers:
            followers.start_soon(follow, "quick", 0)
            followers.start_soon(follow, "slow", 40)
            for at in range(0, len(text), 500):
                log.write(text[at : at + 500])
                await trio.sleep(1)
            done.append(True)
        nursery.cancel_scope.cancel()
    assert seen["quick"] == text
    parts = CUT.split(seen["slow"])
    assert len(parts) > 1
    kept, missed = parts[::2], map(int, parts[1::2])
    assert sum(map(len, kept)) + sum(missed) == len(text)
    assert all(part in text for part in kept)


def watch(tmp_path: Path, command: list[str], look: Callable[[], None]) -> int:
    """The exit code that the watcher, as a process, writes for a command."""
    out, exit_file = tmp_path / "out", tmp_path / "exit"
    plan = {
        "exec": command,
        "stop": ["/bin/true"],
        "env": {"PATH": "/usr/bin:/bin"},
        "logs": [(str(out), 0), (str(tmp_path / "err"), 0)],
        "most": 1 << 20,
        "exit": str(exit_file),
        "pid": os.getpid(),
        "ticks": "another process's",
    }
    argv = [sys.executable, "-I", "-S", watcher.__file__, str(tmp_path)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE) as process:
        assert process.stdin is not None
        process.stdin.write(json.dumps(plan).encode())
        process.stdin.close()
        while process.poll() is None:
            look()
            time.sleep(0.005)
    return int(exit_file.read_text())


async def test_a_command_that_writes_without_end(tmp_path: Path) -> None:
    """At no moment does it take more than its bound; its last words are there, on both streams, and its exit code."""
    out, most = tmp_path / "out", 0

    def look() -> None:
        nonlocal most
        most = max(most, taken(out))

    script = "yes 0123456789 | head -c 100000000; echo last words; echo an error >&2; exit 3"
    assert watch(tmp_path, ["/bin/sh", "-c", script], look) == 3
    assert most <= (1 << 20) * 5 // 4 + 4096  # a file that is gone by now may have been counted with its successor
    first, left_out, last = CUT.split(await whole(out))
    assert first.startswith(b"0123456789\n")
    assert last.endswith(b"last words\n")
    assert len(first) + int(left_out) + len(last) == 100_000_000 + len(b"last words\n")
    assert await whole(tmp_path / "err") == b"an error\n"


async def test_a_watcher_without_its_whole_plan(tmp_path: Path) -> None:
    """Whoever began it is gone: nothing is run."""
    argv = [sys.executable, "-I", "-S", watcher.__file__, str(tmp_path)]
    done = subprocess.run(argv, input=b'{"exec": ["/bin/touch", ', capture_output=True, check=True)
    assert done.stdout == done.stderr == b""


def test_an_ended_ones_log_goes(tmp_path: Path) -> None:
    """With its record; not what was in the file before it, and nothing once another's has grown there."""
    path = tmp_path / "log"
    path.write_bytes(b"before")
    BoundedLog(str(path), 6, MOST).write(numbers(1000))
    size = path.stat().st_size
    output.remove(str(path), 6, size - 1)
    assert path.stat().st_size == size
    output.remove(str(path), 6, size)
    assert path.read_bytes() == b"before"
    assert list(tmp_path.iterdir()) == [path]

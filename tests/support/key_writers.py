"""Registers keys from many processes at once, or from one that is killed.

`python -m tests.support.key_writers KIND FOLDER`
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import cycle
from pathlib import Path

from hatchway.engine.base.permissions import FIVE
from hatchway.engine.keys.authorized_keys import AuthorizedKeys
from hatchway.engine.keys.key_lines import parse_file
from hatchway.engine.keys.keys import PublicKey, read_public_key

POOL = Path(__file__).parents[1] / "data/public_keys.txt"
KEPT = b'# by hand, no newline at the end \xff\r\nfrom="10.0.0.0/8" ssh-ed25519 AAAA foreign\n\nbroken'
ROUNDS = 50


def pool() -> list[PublicKey]:
    """Twenty public keys, without comments."""
    return [replace(read_public_key(line), comment="") for line in POOL.read_bytes().splitlines()]


def together(path: Path, keys: list[PublicKey]) -> None:
    """One process a key, all let go at once."""
    wait, go = os.pipe()
    children = [_fork(partial(_register_at, wait, path, key)) for key in keys]
    os.write(go, b"x" * len(children))
    assert [os.waitpid(child, 0)[1] for child in children] == [0] * len(children)


def _register_at(wait: int, path: Path, key: PublicKey) -> None:
    os.read(wait, 1)
    AuthorizedKeys(path).register(key)


def killed(path: Path, keys: list[PublicKey]) -> None:
    """A process that registers without pause, killed at a random moment; after it the file holds all it was told."""
    promised: dict[str, tuple[str, ...]] = {}
    for _ in range(ROUNDS):
        told, tell = os.pipe()
        child = _fork(partial(_register_on, tell, path, keys))
        os.close(tell)
        os.read(told, 1)  # it has begun
        time.sleep(random.uniform(0, 0.012))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        with os.fdopen(told, "rb") as file:
            acknowledged = file.read().decode().split()
        promised = _check(path, promised, keys, acknowledged)
    AuthorizedKeys(path).register(keys[0])  # no kill left anything that a next edit would not clear
    assert sorted(os.listdir(path.parent)) == ["authorized_keys", "authorized_keys.lock"]


def _register_on(tell: int, path: Path, keys: list[PublicKey]) -> None:
    os.write(tell, b" ")
    file = AuthorizedKeys(path)
    for key, name in zip(cycle(keys), cycle(FIVE[:3])):
        file.register(key, (name,))
        os.write(tell, f"{key.identity}={name} ".encode())


def _check(
    path: Path, promised: dict[str, tuple[str, ...]], keys: list[PublicKey], told: list[str]
) -> dict[str, tuple[str, ...]]:
    """What the file holds: all that was acknowledged, and at most one register more."""
    data = path.read_bytes()
    assert data == KEPT or data.startswith(KEPT + b"\n")  # killed before its first register, or after
    held = {line.entry.identity: line.entry.permissions for line in parse_file(data) if line.entry}
    assert [line.number for line in parse_file(data) if line.fault] == [1, 2, 4]
    for item in told:
        identity, name = item.split("=")
        promised[identity] = (name,)
    assert len([identity for identity in held if promised.get(identity) != held[identity]]) <= 1
    assert set(promised) <= set(held) <= {key.identity for key in keys}
    return held


def _fork(work: Callable[[], None]) -> int:
    child = os.fork()
    if child == 0:
        try:
            work()
        except BaseException:
            os._exit(1)
        os._exit(0)
    return child


if __name__ == "__main__":
    place = Path(sys.argv[2]) / "authorized_keys"
    {"together": together, "killed": killed}[sys.argv[1]](place, pool())

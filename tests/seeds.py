"""One seed, one run of the simulation: every draw and every order of tasks comes from it. Many runs, and planted bugs.

`python -m tests.seeds SEED [--plant NAME]` repeats one run and prints what happened in it, step by step.
`python -m tests.seeds 0-10000` runs them all.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import random
import secrets
import shutil
import tempfile
import traceback
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import cache, partial
from itertools import chain
from pathlib import Path
from typing import Any
from unittest.mock import patch

import structlog
import trio
from werkzeug.routing import Rule

from hatchway.api.testing.trio_inside import ordered_by
from hatchway.engine.base import files
from hatchway.engine.base.errors import SignatureRefused
from hatchway.engine.base.permissions import FIVE, MASTER
from hatchway.engine.fleet import key_watch
from hatchway.engine.journal import metrics
from hatchway.engine.journal.findings import BadLine
from hatchway.engine.keys import keys as trust_keys
from hatchway.engine.keys.authorized_keys import AuthorizedKeys
from hatchway.engine.runtime import actors
from hatchway.engine.sessions import orphans
from hatchway.engine.sessions.key_sign_in import KeySignIn
from hatchway.engine.sessions.sessions import Sessions
from tests.support.checked_journal import check_journal
from tests.support.fakes import key, run_in_virtual_time
from tests.support.simulation.ledger import Violation
from tests.support.simulation.world import SimulatedStore, World

CHUNK = 25
"""Seeds that a worker takes at once."""

_read_private_key = cache(trust_keys.read_private_key)
_build = Rule._compile_builder
_builders: dict[tuple[str, bool], Any] = {}


def _compile_builder(rule: Rule, append_unknown: bool = True) -> Any:
    """Werkzeug's maker of URLs, which we never ask for any: compiled once for each row of the table of endpoints."""
    key = rule.rule, append_unknown
    if key not in _builders:
        _builders[key] = _build(rule, append_unknown)
    return _builders[key]


@contextmanager
def drawn(seed: int) -> Iterator[None]:
    """Every draw of the engine comes from the seed."""
    dice = random.Random(~seed)

    def token(size: int = 32) -> str:
        return "".join(dice.choice("ABCDEFGHJKLMNPQRSTUVWXYZ0123456789") for _ in range(size * 4 // 3))

    with ExitStack() as stack:
        for name, draw in (
            ("token_bytes", dice.randbytes),
            ("token_urlsafe", token),
            ("token_hex", lambda size=32: dice.randbytes(size).hex()),
            ("choice", dice.choice),
            ("randbelow", dice.randrange),
        ):
            stack.enter_context(patch.object(secrets, name, draw))
        stack.enter_context(patch.object(uuid, "uuid4", lambda: uuid.UUID(int=dice.getrandbits(128))))
        yield


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """So does every order of trio's tasks."""
    with ExitStack() as stack:
        stack.enter_context(drawn(seed))
        # What a start does anew, though it comes out the same: two thirds of a run's time.
        stack.enter_context(patch.object(trust_keys, "read_private_key", _read_private_key))
        stack.enter_context(patch.object(Rule, "_compile_builder", _compile_builder))
        # Virtual time has no lag; to look at it was a third of all that the event loop did.
        stack.enter_context(patch.object(metrics, "LOOK_INTERVAL", float("inf")))
        # Nobody edits the keys here, and no program is asked for them: to look each second was three ticks in four.
        stack.enter_context(patch.object(key_watch, "WATCH_INTERVAL", float("inf")))
        stack.enter_context(patch.object(orphans, "CONFIRM_INTERVAL", float("inf")))
        stack.enter_context(ordered_by(random.Random(seed)))
        yield


@cache
def template() -> Path:
    """A folder of an engine's keys, to be copied: made once a process."""
    memory = "/dev/shm" if Path("/dev/shm").is_dir() else None
    home = Path(tempfile.mkdtemp(prefix="hatchway-simulation-", dir=memory)) / "home"
    files.make_private_dir(home)
    files.write_private(home / "private-key.pem", key("own").pem())
    files.write_private(home / "token-key.pem", trust_keys.token_key_pem(trust_keys.generate_token_key()))
    authorized = AuthorizedKeys(home / "authorized_keys")
    authorized.register(key("own").public, (MASTER,), own=True)
    for name in ("one", "two"):
        authorized.register(key(name).public, FIVE)
    return home


def clean_up() -> None:
    """Remove what `template` made."""
    if template.cache_info().currsize:
        shutil.rmtree(template().parent)
        template.cache_clear()


def run_seed(seed: int, plant: str | None = None) -> tuple[str | None, list[str]]:
    """The promise that was broken in this seed's run, if any, and what happened in it."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    home = template().with_name("run")
    shutil.copytree(template(), home)
    lines: list[str] = []

    async def main() -> None:
        world = World(seed, home)
        world.ledger.lines = lines
        with trio.fail_after(3600):
            await world.run()

    try:
        with seeded(seed), PLANTED[plant]() if plant else nullcontext():
            run_in_virtual_time(main)
        check_journal(home)
    except BaseExceptionGroup as group:
        return _told(group), lines
    except trio.TooSlowError:
        return "the run never came to its end", lines
    except BadLine as fault:
        return f"the journal says otherwise: {fault}", lines
    finally:
        shutil.rmtree(home)
        structlog.reset_defaults()
    return None, lines


def _told(group: BaseExceptionGroup[Any]) -> str:
    """The broken promise in a group of errors; any other error breaks one that needs no words."""
    broken: BaseException = group.subgroup(Violation) or group
    while isinstance(broken, BaseExceptionGroup):
        broken = broken.exceptions[0]
    if not isinstance(broken, Violation):
        return "".join(traceback.format_exception(broken))
    return str(broken)


# Many of them


def sweep(seeds: range, plant: str | None = None) -> list[tuple[int, str]]:
    """Every broken run of `seeds`, on all cores."""
    chunks = [seeds[at : at + CHUNK] for at in range(0, len(seeds), CHUNK)]
    with ProcessPoolExecutor(os.cpu_count(), multiprocessing.get_context("spawn")) as pool:
        return list(chain.from_iterable(pool.map(partial(_run_chunk, plant=plant), chunks)))


def first_broken(seeds: range, plant: str) -> int | None:
    """The first of `seeds` in whose run the planted bug is seen."""
    try:
        return next((seed for seed in seeds if run_seed(seed, plant)[0]), None)
    finally:
        clean_up()


def _run_chunk(seeds: range, plant: str | None) -> list[tuple[int, str]]:
    try:
        return [(seed, broken) for seed in seeds if (broken := run_seed(seed, plant)[0])]
    finally:
        clean_up()


def repeat(seed: int, plant: str | None = None) -> str:
    """The command that runs one seed again and tells its story."""
    return f"python -m tests.seeds {seed}" + (f" --plant {plant}" if plant else "")


# Bugs to be found


class _NoLocks:
    """Planted: events of one actor do not wait for each other."""

    def acquire_free(self, name: object) -> bool:
        return True

    async def acquire(self, name: object) -> None: ...

    def release(self, name: object) -> None: ...


@contextmanager
def _claim_not_atomic() -> Iterator[None]:
    with patch.object(actors, "ActorLocks", _NoLocks), patch.object(SimulatedStore, "blind", True):
        yield


@contextmanager
def _nonce_marked_before_commit() -> Iterator[None]:
    marked: set[bytes] = set()
    start = KeySignIn._start

    async def start_marked(self: KeySignIn, challenge: Any, *more: Any) -> Any:
        if challenge.digest in marked:
            raise SignatureRefused("used_nonce")
        marked.add(challenge.digest)
        return await start(self, challenge, *more)

    with patch.object(KeySignIn, "_start", start_marked):
        yield


@contextmanager
def _logout_acknowledged_before_commit() -> Iterator[None]:
    log_out = Sessions.logout

    async def forget(self: Sessions, *given: Any) -> None:
        try:
            await log_out(self, *given)
        except Exception as error:  # nobody waits for it
            del error

    async def acknowledge(self: Sessions, *given: Any) -> None:
        trio.lowlevel.spawn_system_task(partial(forget, self, *given))

    with patch.object(Sessions, "logout", acknowledge):
        yield


PLANTED: dict[str, Callable[[], AbstractContextManager[None]]] = {
    "claim": _claim_not_atomic,
    "nonce": _nonce_marked_before_commit,
    "logout": _logout_acknowledged_before_commit,
}


def main() -> None:
    """The command line of this module."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("seeds", nargs="+", help="a seed, or FIRST-END")
    parser.add_argument("--plant", choices=PLANTED)
    given = parser.parse_args()
    if len(given.seeds) == 1 and given.seeds[0].isdigit():
        broken, story = run_seed(int(given.seeds[0]), given.plant)
        clean_up()
        print(*story, broken or "every promise was kept", sep="\n")
        return
    ranges = [
        range(int(first), int(end or int(first) + 1)) for first, _, end in (s.partition("-") for s in given.seeds)
    ]
    found = list(chain.from_iterable(sweep(seeds, given.plant) for seeds in ranges))
    print(*(f"{why}: {repeat(seed, given.plant)}" for seed, why in found), f"{len(found)} broken", sep="\n")


if __name__ == "__main__":
    main()

"""A real engine process, killed and harried: nothing acknowledged is lost, and the next start needs no hand."""

from __future__ import annotations

import random
import time
from pathlib import Path
from typing import Any

import pytest

from hatchway.engine.keys.authorized_keys import AuthorizedKeys
from tests.support.fakes import effort, key
from tests.support.people_at_work import Load
from tests.support.processes import EngineProcess, running_engine
from tests.support.waits import until

pytestmark = pytest.mark.process

ROUNDS = int(20 * effort())


@pytest.mark.fuzz
def test_killed_under_load(home: Path) -> None:
    """kill -9 at any moment of sign-ins, logouts, pairings and registrations: what was answered holds afterwards."""
    for number in range(4):
        key(f"crash {number}")
    engine = EngineProcess(home)
    load = Load(engine)
    try:
        engine.start()
        for number in range(ROUNDS):
            load.start()
            time.sleep(random.uniform(0.05, 0.6))
            if number == ROUNDS - 1:  # on a busy machine nothing of one kind may have come through yet
                until(lambda: all((load.live, load.ended, load.registered)), what="each kind was answered")
            engine.kill()
            load.join()
            engine.start()
            load.check(whole=number == ROUNDS - 1)
    finally:
        load.join()
        engine.close()


def test_killed_in_its_first_start(home: Path) -> None:
    """A first start that is killed anywhere leaves a folder on which the next one starts, with one key of its own."""
    for moment in range(max(1, int(4 * effort()))):
        folder: Any = home.with_name(f"first-{moment}")
        engine = EngineProcess(folder, HATCHWAY_LOG_LEVEL="warning")
        try:
            engine.begin(fresh=True)
            time.sleep(random.uniform(0.02, 0.8))
            engine.kill()
            engine.begin(fresh=True)
            engine.wait_ready()
            entries = AuthorizedKeys(folder / "authorized_keys").entries()
            assert "MASTER" in {name for entry in entries for name in entry.permissions}
            assert engine.operator({"op": "status"})[0]["key"] in {entry.key.identity for entry in entries}
        finally:
            engine.close()


def test_operators_that_are_gone_before_their_answer(home: Path) -> None:
    """A command that asks nonsense and is gone before it is told so ends nothing but its own connection."""
    with running_engine(home) as engine:
        for said in (b'{"op":"x"}\n', b'{"op":"pair","lifetime":1}\n', b'{"op":"pair","lifetime":3600}\n{bad\n') * 10:
            with engine.operator_connection() as peer:
                peer.sendall(said)
        with engine.operator_connection() as peer:
            peer.sendall(b'{"op":"pair","lifetime":3600}\n{bad\n')
            assert b'"invalid_request"' in peer.makefile("rb").read()
        assert engine.operator({"op": "status"})[0]["codes"] == 0
        assert engine.process.poll() is None

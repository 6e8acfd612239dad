"""A real engine process, killed and harried: nothing acknowledged is lost, and the next start needs no hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.processes import running_engine

pytestmark = pytest.mark.process


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

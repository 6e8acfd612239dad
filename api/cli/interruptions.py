"""Signals that end a command in order, and stretches that end by them, or that none may interrupt."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def ended_like_by_ctrl_c() -> Iterator[None]:
    """Have SIGHUP and SIGTERM end the block as Ctrl-C does, so that everything is closed in order."""

    def end(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    before = {number: signal.signal(number, end) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def until_ctrl_c(follows: bool) -> Iterator[None]:
    """Leave the block at Ctrl-C, where the command follows something for ever: that is its end, and no failure."""
    try:
        yield
    except KeyboardInterrupt:
        if not follows:
            raise


@contextmanager
def undisturbed() -> Iterator[None]:
    """Ignore Ctrl-C in the block: a second one must not interrupt the cleaning up."""
    signals = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, signal.SIG_IGN) for number in signals}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

"""Keys that a program of the site knows: it is asked for a key that is not in authorized_keys.

It works as sshd's AuthorizedKeysCommand does (sshd_config(5)). Whatever goes wrong, the key is not authorized.
"""

from __future__ import annotations

import errno
import os
import re
import signal
import stat
import subprocess
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import structlog
import trio

from hatchway.engine.base import files
from hatchway.engine.base.clock import Clock
from hatchway.engine.base.errors import TooManyRequests
from hatchway.engine.base.permissions import MASTER
from hatchway.engine.keys.key_lines import KeyGrant, judged, known_lines

log = structlog.get_logger(__name__)

REMEMBERED = 60.0
"""Seconds for which an answer of the program is valid."""

ASKED_AGAIN_AFTER = 45.0
"""Seconds after which the program is asked again for the key of a live session, so that no use of the session waits."""

ANSWER_WITHIN = 5.0
"""Seconds in which the program must end."""

LARGEST = 65_536
"""Bytes that the program may print."""

AT_ONCE, WAITING = 4, 32
"""Programs that run at the same time, and sign-ins that may wait for one; one more is refused."""

MOST_REMEMBERED = 4096

SCARCE = (errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.ENOMEM)
"""What the system says where a program can't be started for want of files, processes or memory."""

_FINGERPRINT = re.compile(r"SHA256:[A-Za-z0-9+/]{43}")
_ENVIRONMENT = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8"}


class Answer(NamedTuple):
    """What the program said of a key, and when, in elapsed seconds. `grant` is None where nothing is granted."""

    at: float
    grant: KeyGrant | None


class KeyCommand:
    """The program that `argv` names, asked with a key's fingerprint as its last argument; none where that is empty."""

    def __init__(self, argv: Callable[[], tuple[str, ...]], clock: Clock) -> None:
        self._argv, self._clock = argv, clock
        self._answers: dict[str, Answer] = {}
        self._asking: dict[str, trio.Event] = {}
        self._programs = trio.Semaphore(AT_ONCE)

    def find(self, identity: str) -> KeyGrant | None:
        """What the program granted to the key within the last minute."""
        answer = self._fresh(identity)
        return None if answer is None else answer.grant

    def must_be_asked(self, identity: str) -> bool:
        """Whether there is a program that can be asked for this key, and has not been within the last minute."""
        return bool(self._argv()) and _FINGERPRINT.fullmatch(identity) is not None and self._fresh(identity) is None

    def good_for(self, identity: str) -> float:
        """Seconds for which the last answer is still valid."""
        answer = self._answers.get(identity)
        return 0.0 if answer is None else max(0.0, answer.at + REMEMBERED - self._clock.elapsed())

    def _fresh(self, identity: str) -> Answer | None:
        answer = self._answers.get(identity)
        return answer if answer is not None and self._clock.elapsed() - answer.at < REMEMBERED else None

    async def ask(self, identity: str) -> KeyGrant | None:
        """What the program grants to the key now. Those who ask for one key at once share the answer.

        Raises TooManyRequests where too many keys are asked for at once, or the host can't start the program.
        """
        if not self._argv() or _FINGERPRINT.fullmatch(identity) is None:
            return None
        while (asking := self._asking.get(identity)) is not None:
            await asking.wait()
            if (answer := self._fresh(identity)) is not None:
                return answer.grant  # else whoever asked went away before there was an answer
        if len(self._asking) >= WAITING + AT_ONCE:
            raise TooManyRequests("too many sign-ins wait for their key to be looked up", retry_after=1)
        self._asking[identity] = asking = trio.Event()
        try:
            async with self._programs:
                grant = _granted(await _run((*self._argv(), identity)), identity)
            self._remember(identity, grant)
        finally:
            del self._asking[identity]
            asking.set()
        return grant

    def _remember(self, identity: str, grant: KeyGrant | None) -> None:
        self._answers.pop(identity, None)
        if len(self._answers) >= MOST_REMEMBERED:
            del self._answers[next(iter(self._answers))]
        self._answers[identity] = Answer(self._clock.elapsed(), grant)


def _granted(output: bytes, identity: str) -> KeyGrant | None:
    """The line of that key, where it grants something; other people's keys are passed over."""
    for line in known_lines(output):
        if line.key is None or line.key.identity != identity:
            continue
        grant = judged(line).entry
        if grant is None or MASTER in grant.permissions:
            log.warning("key_command_line_refused", key=identity, why=line.fault or "MASTER is the engine's own key's")
            return None
        return grant
    return None


async def _run(argv: tuple[str, ...]) -> bytes:
    """What the program prints; nothing unless it ends well, in time, and within the size.

    Raises TooManyRequests where this host lacks what it takes to ask: the program has not said no.
    """
    output, why = b"", _unsafe(Path(argv[0]))
    if why is None:
        try:
            output, why = await _output(argv)
        except OSError as error:
            if error.errno in SCARCE:
                short = f"this host can't look the key up at the moment: {files.reason(error)}"
                raise TooManyRequests(short, retry_after=5) from error
            why = error.strerror or str(error)
    if why is not None:
        log.warning("key_command_failed", program=argv[0], why=why)
        return b""
    return output


def _unsafe(program: Path) -> str | None:
    """Why the program must not be trusted; None where it is root's or our own user's and no other user may write it."""
    if not program.is_absolute():
        return "its path is not absolute"
    try:
        status = program.stat()
    except OSError as error:
        return error.strerror
    if status.st_uid not in (0, os.geteuid()) or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return "others than root and the engine's user may write it"
    return None


async def _output(argv: tuple[str, ...]) -> tuple[bytes, str | None]:
    process = await trio.lowlevel.open_process(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=_ENVIRONMENT,
        cwd="/",
        start_new_session=True,
    )
    assert process.stdout is not None
    output = b""
    try:
        with trio.move_on_after(ANSWER_WITHIN) as within:
            while len(output) <= LARGEST and (piece := await process.stdout.receive_some(65_536)):
                output += piece
            if len(output) <= LARGEST:
                await process.wait()
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # whatever it has started goes too
        with trio.CancelScope(shield=True):
            await process.stdout.aclose()
            await process.wait()
    if within.cancelled_caught:
        return b"", f"it did not end within {ANSWER_WITHIN:.0f} s"
    if len(output) > LARGEST:
        return b"", f"it printed more than {LARGEST} bytes"
    if process.returncode:
        return b"", f"it ended with {process.returncode}"
    return output, None

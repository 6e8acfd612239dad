"""Runs the command under a container's process 1, which loses signals without a handler and gets all orphans.

So the command goes on in a child, where it runs as anywhere else. Process 1 passes signals on to the child, and reaps
orphans. The child's own children are not process 1's, so it takes no exit status that the command waits for.
"""

from __future__ import annotations

import os
import signal
import sys

PASSED_ON = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
_STOPS = (signal.SIGTERM, signal.SIGINT)
_WAITED_FOR = (*PASSED_ON, signal.SIGCHLD)
_OF_THE_KERNEL = 0x80
"""`si_code` of a signal from the kernel (sigaction(2)), as for a terminal's keys: the child has got it too."""


def hold_signals() -> None:
    """Block the signals that process 1 passes on, so that none is lost. Call it before anything slow is loaded. It does
    nothing in a process that is not process 1."""
    if os.getpid() == 1 and os.path.basename(sys.argv[0]) in ("hatchway", "-c", "-m"):
        signal.pthread_sigmask(signal.SIG_BLOCK, _WAITED_FOR)


def leave_first_process() -> None:
    """Return in a process that is not process 1: a child where need be, with whose exit code process 1 then ends."""
    if os.getpid() != 1:
        return
    signal.pthread_sigmask(signal.SIG_BLOCK, _WAITED_FOR)
    child = os.fork()
    if child:
        os._exit(_attend(child))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _WAITED_FOR)


def _attend(child: int) -> int:
    """Pass signals on and reap, until the child ends. Returns its exit code."""
    told: set[int] = set()
    while True:
        sent = signal.sigwaitinfo(_WAITED_FOR)
        if sent.si_signo != signal.SIGCHLD:
            told.add(sent.si_signo)
            if sent.si_code != _OF_THE_KERNEL:
                os.kill(child, sent.si_signo)
        elif (code := _reap(child)) is not None:
            return _shown(code, told)


def _reap(child: int) -> int | None:
    """Reap all processes that have ended. Returns the child's exit code, None while it runs."""
    code = None
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return code
        if not pid:
            return code
        if pid == child:
            code = os.waitstatus_to_exitcode(status)


def _shown(code: int, told: set[int]) -> int:
    """The exit code to end with. It is 0 where the child was ended by a signal that was passed on to it: it had no
    handler yet, and did as it was told."""
    if code >= 0:
        return code
    return 0 if -code in told and -code in _STOPS else 128 - code

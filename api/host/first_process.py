"""As process 1 of a container: the kernel drops every signal that it has no handler for, and gives it all orphans.

So the command goes on in a child, as it does anywhere else, and process 1 passes on what it is told and takes the ends
of whoever has no other parent. Nobody else's exit status is in its way: the child's own children are not process 1's.
"""

from __future__ import annotations

import os
import signal
import sys

PASSED_ON = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
_STOPS = (signal.SIGTERM, signal.SIGINT)
_WAITED_FOR = (*PASSED_ON, signal.SIGCHLD)
_OF_THE_KERNEL = 0x80
"""`si_code` of a terminal's signal, which has reached the child already (sigaction(2))."""


def hold_signals() -> None:
    """Before anything slow is loaded: from here on process 1 loses no signal. Nothing where the program is another."""
    if os.getpid() == 1 and os.path.basename(sys.argv[0]) in ("hatchway", "-c", "-m"):
        signal.pthread_sigmask(signal.SIG_BLOCK, _WAITED_FOR)


def leave_first_process() -> None:
    """Returns in a process that is not the first of its container; the first one ends with that one's exit code."""
    if os.getpid() != 1:
        return
    signal.pthread_sigmask(signal.SIG_BLOCK, _WAITED_FOR)
    child = os.fork()
    if child:
        os._exit(_attend(child))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _WAITED_FOR)


def _attend(child: int) -> int:
    """Pass signals on and reap, until the child ends; its exit code."""
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
    """Take the ends of all who have ended; the child's exit code, None while it runs."""
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
    """A child that was stopped before it had handlers of its own has done as it was told."""
    if code >= 0:
        return code
    return 0 if -code in told and -code in _STOPS else 128 - code

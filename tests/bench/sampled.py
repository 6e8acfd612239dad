"""An engine that notes what its main thread was doing at each millisecond of its CPU: `tests.bench.profile` starts it.

A timer on the thread's own CPU clock sends a signal; its handler looks at the stack. What runs in C counts for the
line that called it. SIGUSR1 begins, and a second one ends it.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
import time
from collections import Counter
from pathlib import Path
from types import FrameType

import hatchway
from hatchway.api.cli import main

INTERVAL = 1e-3
"""Seconds of CPU between two samples, where the kernel's own ticks are as short."""

OURS = f"{Path(hatchway.__file__).parent}{os.sep}"


class _Event(ctypes.Structure):
    """`struct sigevent` (timer_create(2))."""

    _fields_ = (
        ("value", ctypes.c_void_p),
        ("signo", ctypes.c_int),
        ("notify", ctypes.c_int),
        ("rest", ctypes.c_char * 48),
    )


class Sampler:
    """Counts samples by the innermost function of ours on the stack; those without one are the event loop's."""

    def __init__(self, told: Path) -> None:
        self._told, self._timer = told, ctypes.c_void_p()
        self._counts: Counter[str] = Counter()
        self._began: tuple[float, float] | None = None
        signal.signal(signal.SIGPROF, self._sample)
        signal.signal(signal.SIGUSR1, self._turn)
        self._libc = ctypes.CDLL(None, use_errno=True)
        event = _Event(None, signal.SIGPROF, 0, b"")
        if self._libc.timer_create(time.CLOCK_THREAD_CPUTIME_ID, ctypes.byref(event), ctypes.byref(self._timer)):
            raise OSError(ctypes.get_errno(), "no timer on the thread's CPU clock")

    def _sample(self, number: int, frame: FrameType | None) -> None:
        while frame is not None and not frame.f_code.co_filename.startswith(OURS):
            frame = frame.f_back
        code = None if frame is None else frame.f_code
        self._counts["" if code is None else f"{code.co_filename.removeprefix(OURS)}:{code.co_name}"] += 1

    def _turn(self, number: int, frame: FrameType | None) -> None:
        if self._began is None:
            self._began = time.thread_time(), time.process_time()
            self._every(INTERVAL)
            return
        self._every(0)
        main_thread, all_threads = time.thread_time() - self._began[0], time.process_time() - self._began[1]
        told = {"main": main_thread, "others": all_threads - main_thread, "samples": self._counts}
        whole = self._told.with_suffix(".new")
        whole.write_text(json.dumps(told))
        whole.rename(self._told)

    def _every(self, seconds: float) -> None:
        fraction = int(seconds * 1e9)
        times = (ctypes.c_long * 4)(0, fraction, 0, fraction)  # struct itimerspec
        self._libc.timer_settime(self._timer, 0, times, None)


if __name__ == "__main__":
    Sampler(Path(sys.argv.pop(1)))
    main()

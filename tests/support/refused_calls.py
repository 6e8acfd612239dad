"""Has the kernel refuse some system calls to a process and all that it starts, as a file system without them does."""

from __future__ import annotations

import ctypes
import errno
import platform
import struct
from collections.abc import Callable, Iterable

_NUMBERS = {
    "x86_64": {"flock": 73, "link": 86, "linkat": 265, "fcntl": 72},
    "aarch64": {"flock": 32, "linkat": 37, "fcntl": 25},
}
"""asm/unistd.h"""

_POSIX_LOCKS = (5, 6, 7)
"""F_GETLK, F_SETLK, F_SETLKW."""

FLOCK, LINKS, POSIX_LOCKS = ("flock",), ("link", "linkat"), ("fcntl",)

_LOAD, _EQUAL, _RETURN = 0x20, 0x15, 0x06
_CALL, _SECOND_ARGUMENT = 0, 24
"""Where struct seccomp_data has them."""
_ALLOW, _ERROR = 0x7FFF0000, 0x00050000
_NO_NEW_PRIVS, _SECCOMP, _FILTER = 38, 22, 2

_libc = ctypes.CDLL(None, use_errno=True)


def refusing(calls: Iterable[str], error: int = errno.EPERM) -> Callable[[], None]:
    """To be called in the child (seccomp(2)): from then on each of `calls` fails with `error`, nothing else does.

    Of fcntl only what asks for a POSIX lock is refused.
    """
    numbers = _NUMBERS[platform.machine()]
    program = b"".join(_rule(name, numbers[name], error) for name in calls if name in numbers) + _step(_RETURN, _ALLOW)
    steps = ctypes.create_string_buffer(program, len(program))
    held = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(steps)))

    def refuse() -> None:
        _libc.prctl(_NO_NEW_PRIVS, 1, 0, 0, 0)
        if _libc.prctl(_SECCOMP, _FILTER, ctypes.byref(held)) != 0 or not steps:
            raise OSError(ctypes.get_errno(), "seccomp")

    return refuse


def _rule(name: str, number: int, error: int) -> bytes:
    refusal = _step(_RETURN, _ERROR | error)
    if name == "fcntl":
        wanted = b"".join(_step(_EQUAL, command, 0, 1) + refusal for command in _POSIX_LOCKS)
        refusal = _step(_LOAD, _SECOND_ARGUMENT) + wanted
    return _step(_LOAD, _CALL) + _step(_EQUAL, number, 0, len(refusal) // 8) + refusal


def _step(code: int, value: int, then: int = 0, otherwise: int = 0) -> bytes:
    """One struct sock_filter; the jumps count steps."""
    return struct.pack("HBBI", code, then, otherwise, value)

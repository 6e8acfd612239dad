"""Whether a container has bound what was checked. Standard library only, from Python 3.9 on: a job's node runs it too.

The runtime binds a source by its path, some time after the path was checked: a user who may write above the source can
put a link there meanwhile. So once a container has started, and before its command runs, what each destination holds is
compared with the source as it is when no link is followed. To bind by a descriptor instead is not possible: the runtime
mounts in namespaces of its own, where an ordinary user's descriptors are neither visible nor bindable.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable

Bind = tuple[str, str, bool]
"""Source, destination, and whether it may be written."""

CHANGED = "the source of a volume is no longer what it was when it was checked"
UNSEEN = "what the volumes are bound to can't be seen on this host"
"""Reasons for people, which name no path of the host."""

MOST_LINKS = 40


def moved(binds: Iterable[Bind]) -> str:
    """Why these must not be bound: empty where each source is there and behind no link."""
    for source, _, _ in binds:
        try:
            os.close(_open_source(source))
        except OSError:
            return CHANGED
    return ""


def differs(pid: int, binds: Iterable[Bind]) -> str:
    """Why the container of that process must not go on: empty where it has bound each source as was asked."""
    binds = list(binds)
    if not binds:
        return ""
    try:
        root = os.open(f"/proc/{pid}/root", os.O_PATH | os.O_DIRECTORY)
    except OSError as error:
        # A container of a setuid installation is invisible to an ordinary user: what can't be compared doesn't run.
        return UNSEEN if isinstance(error, PermissionError) else CHANGED
    try:
        return "" if all(_same(root, bind) for bind in binds) else CHANGED
    finally:
        os.close(root)


def _same(root: int, bind: Bind) -> bool:
    source, destination, writable = bind
    try:
        wanted, _ = _look(lambda: _open_source(source))
        bound, flags = _look(lambda: _open_inside(root, destination))
    except OSError:
        return False
    # Apptainer only warns where it can't make a bind read-only, so that is checked too.
    kept = writable or bool(flags & os.ST_RDONLY)
    return kept and os.path.samestat(wanted, bound)


def _look(opening: Callable[[], int]) -> tuple[os.stat_result, int]:
    """What `opening` gives a descriptor of, and the flags of the mount that holds it. Raises OSError."""
    fd = opening()
    try:
        return os.fstat(fd), os.fstatvfs(fd).f_flag
    finally:
        os.close(fd)


def _open_source(path: str) -> int:
    """A descriptor of the path. Raises OSError where it does not exist, or a link is on the way."""
    fd = os.open(path, os.O_PATH)
    if os.readlink(f"/proc/self/fd/{fd}") == path:
        return fd
    os.close(fd)
    raise OSError("a link leads elsewhere")


def _open_inside(root: int, path: str) -> int:
    """A descriptor of the path as a process sees it whose root is `root`: no link leads out of it. Raises OSError."""
    fds, left, links = [os.dup(root)], path.split("/")[::-1], 0
    try:
        while left:
            step = left.pop()
            if step == "..":
                if len(fds) > 1:
                    os.close(fds.pop())
            elif step not in ("", "."):
                fds.append(os.open(step, os.O_PATH | os.O_NOFOLLOW, dir_fd=fds[-1]))
                if stat.S_ISLNK(os.fstat(fds[-1]).st_mode):
                    links += 1
                    left += _target(fds, links).split("/")[::-1]
        return os.dup(fds[-1])
    finally:
        for fd in fds:
            os.close(fd)


def _target(fds: list[int], links: int) -> str:
    """Where the link leads that is the last of `fds`, which is removed. For an absolute path only the root is left."""
    if links > MOST_LINKS:
        raise OSError("a loop of links")
    target = os.readlink("", dir_fd=fds[-1])
    for _ in range(len(fds) - 1 if target.startswith("/") else 1):
        os.close(fds.pop())
    return target

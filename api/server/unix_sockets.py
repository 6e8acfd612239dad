"""Unix sockets in the engine's folder: named whatever the path's length, and for its own user alone (unix(7))."""

from __future__ import annotations

import os
import socket
import struct
from pathlib import Path

import trio

from hatchway.engine.base.errors import FileRefused
from hatchway.engine.base.files import ELSEWHERE

PATH_MAX = 107
"""Bytes that a Unix socket's path may have (sun_path)."""


def socket_address(path: Path, folder: int) -> str:
    """The path by which the kernel reaches a socket: one over 107 bytes goes through the folder's descriptor."""
    return str(path) if len(os.fsencode(path)) <= PATH_MAX else f"/proc/self/fd/{folder}/{path.name}"


def can_be_forwarded_to(path: Path) -> bool:
    """Whether `ssh -L` takes the path: not a long one, and none with a character that its argument gives a meaning."""
    return len(os.fsencode(path)) <= PATH_MAX and not set(str(path)) & set(":[]\\")


def listen_private(path: Path, backlog: int = 16) -> trio.socket.SocketType:
    """As `bind_private`, for trio."""
    return trio.socket.from_stdlib_socket(bind_private(path, backlog))


def bind_private(path: Path, backlog: int) -> socket.socket:
    """A Unix socket at `path` that listens, for this user alone. Raises FileRefused where there can't be one."""
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        # The umask keeps others from connecting before a mode could be set. The folder is 0700 besides.
        os.umask(0o177)
        try:
            listener.bind(socket_address(path, folder))
        except OSError as error:
            listener.close()
            raise FileRefused(
                f"{path} can't be made: {error.strerror}; where its file system has no sockets, {ELSEWHERE}",
                cause="no_sockets",
            ) from None
        finally:
            os.umask(0o077)
        listener.listen(backlog)
    finally:
        os.close(folder)
    return listener


def may_operate(peer: trio.socket.SocketType | socket.socket) -> bool:
    """Whether the process at the other end runs as the engine's own user, or as root."""
    _, uid, _ = struct.unpack("3i", peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    return uid in (0, os.geteuid())

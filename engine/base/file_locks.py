"""Locks between processes, by files. A lock ends with the block that takes it, or with the process."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from hatchway.engine.base import files
from hatchway.engine.base.errors import FileRefused


class LockHeld(FileRefused):
    """Another process holds the lock."""


@contextmanager
def locked(path: Path, *, wait: bool = True, says: str | None = None) -> Iterator[None]:
    """Holds the lock file `path` for the block, across processes. It ends with the process.

    `says` is written into the file where there is room, for whoever would know of the holder; it stays there. Without
    `wait` a lock that another process has raises `LockHeld`. The file stays: if it were removed, two processes
    could each lock a file of that name.
    """
    fd = _open_lock(path)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        os.close(fd)
        raise LockHeld(f"{path} is locked by another process", cause="locked") from None
    except OSError as error:
        os.close(fd)
        raise no_locks(path, error) from None
    try:
        if says is not None:
            with suppress(OSError):
                os.ftruncate(fd, 0)
                os.pwrite(fd, f"{says}\n".encode(errors="surrogateescape"), 0)
        yield
    finally:
        os.close(fd)


def no_locks(path: Path, error: OSError) -> FileRefused:
    """What to raise where a lock that nobody holds can't be had (Lustre without flock, NFS without a lock daemon)."""
    return FileRefused(
        f"{path} can't be locked: {files.reason(error)}; its file system has no locks that work: {files.ELSEWHERE}",
        cause="no_locks",
    )


def try_folder(folder: Path, size: int) -> None:
    """Makes a private file of `size` bytes in `folder` as a database has its files, locked and synced, and removes it.

    Raises FileRefused where there are no such locks, OSError where the file system takes no file or no bytes.
    """
    path = folder / f".{os.urandom(8).hex()}{files.LEFTOVER}"
    try:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, files.FILE_MODE)
        with os.fdopen(fd, "wb") as file:
            try:
                fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                raise no_locks(folder, error) from None
            file.write(bytes(size))
            file.flush()
            os.fsync(fd)
    finally:
        path.unlink(missing_ok=True)


def _open_lock(path: Path) -> int:
    try:
        with suppress(FileExistsError):
            files.write_new(path, b"")
        files.check_private(path)
        return os.open(path, os.O_RDWR | os.O_NOFOLLOW)
    except OSError as error:
        raise FileRefused(f"{path} can't be locked: {files.reason(error)}", cause="unwritable") from None

"""The only writer of private files: made with their mode, written whole, read only while private (section 2.4).

Python opens nothing that a program it starts inherits (PEP 446).
"""

from __future__ import annotations

import os
import pwd
import re
import shlex
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from hatchway.engine.base.errors import FileRefused

FILE_MODE, FOLDER_MODE = 0o600, 0o700
_OTHERS = 0o077
LEFTOVER = ".new"
_RANDOM_BYTES = 8

ELSEWHERE = (
    "set HATCHWAY_HOME, or the setting that names this folder, to a folder on a file system that has them, such as a"
    " local disk"
)
"""The way out of a file system that lacks what an engine's folder needs."""


def make_private_dir(path: Path) -> None:
    """Makes `path`, and any parent it lacks, with mode 0700; one that is there is checked instead."""
    for folder in [*reversed(path.parents), path]:
        if not os.path.exists(folder):  # Path.exists raises on a name that is too long
            _make(folder)
    check_private_dir(path)


def _make(folder: Path) -> None:
    try:
        folder.mkdir(FOLDER_MODE)
        with suppress(PermissionError):  # FAT has one mode for all, which the check looks at
            folder.chmod(FOLDER_MODE)  # mkdir's mode is cut by the umask
    except FileExistsError:
        pass  # another process has just made it, or it is a link to nothing: the check says which
    except OSError as error:
        raise FileRefused(
            f"{folder} can't be made: {reason(error)}; HATCHWAY_HOME may name another folder", cause="unwritable"
        ) from None


def check_private_dir(path: Path) -> None:
    """Raises `FileRefused` unless `path` is a folder of our own that nobody else may enter."""
    _check(path, path.lstat(), stat.S_ISDIR, "folder", FOLDER_MODE)


def check_private(path: Path) -> None:
    """Raises `FileRefused` unless `path` is a plain file of our own that nobody else may read."""
    check_status(path, path.lstat())


def check_status(path: Path, status: os.stat_result) -> None:
    """`check_private` for a `status` that is already at hand."""
    _check(path, status, stat.S_ISREG, "plain file", FILE_MODE)


def _check(path: Path, status: os.stat_result, is_kind: Callable[[int], bool], kind: str, mode: int) -> None:
    name = shlex.quote(str(path))
    if stat.S_ISLNK(status.st_mode):
        # What a folder's link leads to is somebody's home on another disk: it is to be named, not to be cut off.
        leads = shlex.quote(os.path.realpath(path))
        mend = (
            f"rm {name}" if is_kind is stat.S_ISREG else f"export HATCHWAY_HOME={leads}, or what else names this folder"
        )
        raise FileRefused(f"{path} is a symbolic link, which is not followed; mend it with: {mend}", cause="symlink")
    if not is_kind(status.st_mode):
        raise FileRefused(f"{path} is not a {kind}; mend it with: mv {name} {name}.old", cause="kind")
    if status.st_uid != os.geteuid():
        raise FileRefused(f"{path} belongs to another user; {_way_in(status, name)}", cause="owner")
    if status.st_mode & _OTHERS:
        # A folder that HATCHWAY_HOME names may be anybody's, such as /tmp, which nobody could use any more.
        alone = "" if is_kind is stat.S_ISREG else "unless other programs use it too: then name another folder; "
        raise FileRefused(f"{path} is open to other users; {alone}mend it with: chmod {mode:o} {name}", cause="mode")


def _way_in(status: os.stat_result, name: str) -> str:
    """What to do about a file of another user's. Root that took it would take it from the engine that runs there."""
    if os.geteuid() != 0:
        return f"name a folder of your own by HATCHWAY_HOME, or have root mend it with: chown {os.geteuid()} {name}"
    try:
        become = f"runuser -u {pwd.getpwuid(status.st_uid).pw_name}"
    except KeyError:  # a container's user needs no name
        if not stat.S_ISDIR(status.st_mode):
            return f"mend it with: chown {os.geteuid()} {name}"
        become = f"setpriv --reuid={status.st_uid} --regid={status.st_gid} --clear-groups"
    return f"run the command as that user: {become} -- hatchway ..."


def check_unshared(path: Path) -> None:
    """Raises `FileRefused` where others than its owner may read or write `path`, as OpenSSH does with private keys.

    A file of another user's may be open to a group: that is how secrets are handed to a service. Raises OSError.
    """
    status = path.stat()
    ours = status.st_uid == os.geteuid()
    if status.st_mode & (_OTHERS if ours else 0o027):
        name, mend = shlex.quote(str(path)), "chmod 600" if ours else "chmod g-w,o-rwx"
        raise FileRefused(
            f"{path} is a private key and open to other users (mode {stat.S_IMODE(status.st_mode):04o}); "
            f"mend it with: {mend} {name}",
            cause="mode",
        )


def read_private(path: Path) -> bytes:
    """The whole of a private file. Raises FileNotFoundError, or `FileRefused` if it can't be read or isn't private."""
    try:
        fd = open_to_read(path, os.O_NOFOLLOW)
    except FileRefused:
        with suppress(OSError):
            check_private(path)  # for a symbolic link this says more than "too many levels" does
        raise
    with os.fdopen(fd, "rb") as file:
        check_status(path, os.fstat(fd))
        return _read(path, file)


def read_small(path: Path, limit: int = 65536) -> bytes:
    """A file of anybody's, at most `limit` bytes. Raises FileNotFoundError, or `FileRefused` if it is no such file."""
    with os.fdopen(open_to_read(path), "rb") as file:
        data = _read(path, file, limit + 1)
    if len(data) > limit:
        raise FileRefused(f"{path} is larger than {limit // 1024} KiB", cause="size")
    return data


def _read(path: Path, file: BinaryIO, most: int = -1) -> bytes:
    try:
        return file.read(most)
    except OSError as error:  # a network folder's server is away
        raise unreadable(path, error) from None


def unreadable(path: Path, error: OSError | ValueError) -> FileRefused:
    """The refusal of a file that can't be read, for this reason."""
    return FileRefused(f"{path} can't be read: {reason(error)}", cause="unreadable")


def open_to_read(path: Path, flags: int = 0) -> int:
    """A descriptor of a plain file. A pipe is not waited for, a device not read.

    Raises FileNotFoundError, or `FileRefused` if it is no such file.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | flags)
    except FileNotFoundError:
        raise
    except (OSError, ValueError) as error:
        raise unreadable(path, error) from None
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise FileRefused(f"{path} is not a plain file", cause="kind")
    return fd


def write_private(path: Path, data: bytes, *, overwrite: bool = True) -> None:
    """Writes `data` whole: whoever opens `path`, even after a crash, finds the old content or the new.

    Without `overwrite` an existing file is left alone and FileExistsError raised. Raises `FileRefused` where
    something other than a private file stands in the way, or the disk takes no more.
    """
    try:
        if overwrite:
            with suppress(FileNotFoundError):
                check_private(path)
        _put(path, data, overwrite)
    except FileExistsError:
        raise
    except OSError as error:
        raise FileRefused(f"{path} can't be written: {reason(error)}", cause="unwritable") from None


def _put(path: Path, data: bytes, overwrite: bool) -> None:
    temporary = path.with_name(f".{path.name}.{os.urandom(_RANDOM_BYTES).hex()}{LEFTOVER}")
    try:
        write_new(temporary, data)
        if overwrite:
            temporary.rename(path)
        else:
            _give_name(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    _sync_folder(path.parent)


def _give_name(temporary: Path, path: Path) -> None:
    """Has the whole file `temporary` at `path`, where nothing is yet. Raises FileExistsError, OSError."""
    try:
        path.hardlink_to(temporary)
    except FileExistsError:
        raise
    except OSError:
        # FAT, exFAT, and many file systems of networks and FUSE have no links. There the name is taken first, by a file
        # that is empty until the rename. Where links were not what was lacking, taking the name fails as well.
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, FILE_MODE))
        try:
            temporary.rename(path)
        except OSError:
            path.unlink()
            raise


def move_private(old: Path, new: Path) -> None:
    """Gives the private file `old` the name `new`, for good, and in the place of what had it. Raises `FileRefused`."""
    try:
        old.rename(new)
        _sync_folder(new.parent)
    except OSError as error:
        raise FileRefused(f"{new} can't be written: {reason(error)}", cause="unwritable") from None


def reason(error: OSError | ValueError) -> str:
    """What the operating system says of an error, without its number and path."""
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


def write_new(path: Path, data: bytes) -> None:
    """Writes a file of mode 0600 that was not there, to the disk. Nothing is left of one that can't be written.

    Raises FileExistsError; FileRefused where the file system has no modes; OSError.
    """
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, FILE_MODE)
    try:
        with os.fdopen(fd, "wb") as file:
            _close_to_others(fd, path)
            file.write(data)
            file.flush()
            os.fsync(fd)
    except BaseException:
        path.unlink()
        raise


def _close_to_others(fd: int, path: Path) -> None:
    """Raises `FileRefused` where that can't be: FAT and many a network's file system have one mode for all files."""
    with suppress(PermissionError):
        os.fchmod(fd, FILE_MODE)  # open's mode is cut by the umask
    if os.fstat(fd).st_mode & _OTHERS:
        raise FileRefused(
            f"{path.parent} lies on a file system whose files other users may read, and modes can't be set:"
            f" {ELSEWHERE}",
            cause="no_modes",
        )


def open_append(path: Path) -> int:
    """A descriptor that adds to the private file `path`, made where there is none. Raises `FileRefused`, OSError."""
    with suppress(FileExistsError):
        write_new(path, b"")
    check_private(path)
    fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_NONBLOCK | os.O_NOFOLLOW)
    try:
        check_status(path, os.fstat(fd))
    except FileRefused:
        os.close(fd)
        raise
    return fd


def _sync_folder(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def clear_leftovers(path: Path) -> None:
    """Removes what writers of `path` left when they were killed. Call it under the lock that all of them take."""
    ours = re.compile(rf"\.{re.escape(path.name)}\.[0-9a-f]{{{2 * _RANDOM_BYTES}}}{re.escape(LEFTOVER)}")
    for name in os.listdir(path.parent):
        if ours.fullmatch(name):
            path.with_name(name).unlink(missing_ok=True)

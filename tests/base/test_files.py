"""Private files: their modes, what is refused, and that nobody ever sees half of one (section 2.4; cases D34, D36)."""

from __future__ import annotations

import os
import pwd
import resource
import stat
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from hatchway.engine.base import file_locks, files
from hatchway.engine.base.errors import FileRefused


@contextmanager
def umask(mask: int) -> Iterator[None]:
    """The process's umask for a while."""
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A private folder."""
    files.make_private_dir(tmp_path / "home")
    return tmp_path / "home"


def mode(path: Path) -> int:
    """Permission bits."""
    return stat.S_IMODE(path.lstat().st_mode)


def foreign(folder: Path) -> Path:
    """A file that another user owns: root's where we are somebody else."""
    if os.geteuid():
        return Path("/etc/passwd")
    path = folder / "foreign"
    path.touch(0o600)
    os.chown(path, 12345, -1)
    return path


@pytest.mark.parametrize("mask", [0o000, 0o022, 0o777], ids=oct)
def test_modes_do_not_depend_on_the_umask(tmp_path: Path, mask: int) -> None:
    """Files end with 0600 and folders with 0700, whatever the umask takes or leaves."""
    with umask(mask):
        files.make_private_dir(tmp_path / "a" / "b")
        files.write_private(tmp_path / "a" / "b" / "new", b"x")
        files.write_private(tmp_path / "a" / "b" / "once", b"x", overwrite=False)
        with file_locks.locked(tmp_path / "a" / "b" / "lock"):
            pass
    assert [mode(tmp_path / "a"), mode(tmp_path / "a" / "b")] == [0o700, 0o700]
    assert {mode(path) for path in (tmp_path / "a" / "b").iterdir()} == {0o600}


def test_a_file_is_written_whole_and_nothing_is_left_beside_it(folder: Path) -> None:
    """New content replaces old, and the temporary file is gone."""
    held = descriptors()
    files.write_private(folder / "file", b"old")
    files.write_private(folder / "file", b"new")
    assert files.read_private(folder / "file") == b"new"
    assert descriptors() == held
    assert os.listdir(folder) == ["file"]


def test_what_must_not_be_overwritten_is_not(folder: Path) -> None:
    """Without `overwrite` whatever stands there stays: a file, a folder, a link, a dangling link."""
    (folder / "file").write_bytes(b"old")
    (folder / "folder").mkdir()
    (folder / "link").symlink_to(folder / "file")
    (folder / "dangling").symlink_to(folder / "nowhere")
    for name in ("file", "folder", "link", "dangling"):
        with pytest.raises(FileExistsError):
            files.write_private(folder / name, b"new", overwrite=False)
    assert (folder / "file").read_bytes() == b"old"
    assert sorted(os.listdir(folder)) == ["dangling", "file", "folder", "link"]


def descriptors() -> list[str]:
    """What this process has open."""
    return sorted(os.listdir("/proc/self/fd"))


def plant(folder: Path, kind: str) -> Path:
    """Something at a private file's place that must not be there."""
    path, target = folder / "file", folder / "target"
    target.write_bytes(b"target")
    target.chmod(0o600)
    if kind == "symlink":
        path.symlink_to(target)
    elif kind == "folder":
        path.mkdir(0o700)
    elif kind == "pipe":
        os.mkfifo(path, 0o600)
    elif kind == "owner":
        return foreign(folder)
    else:
        path.write_bytes(b"secret")
        path.chmod(int(kind, 8))
    return path


MENDING = {"symlink": "rm", "folder": "mv", "pipe": "mv", "owner": "chown"}


@pytest.mark.parametrize("kind", ["symlink", "folder", "pipe", "owner", "640", "604", "620", "610"])
def test_a_file_that_is_not_private_is_refused_both_ways(folder: Path, kind: str) -> None:
    """Reading, writing, adding and locking refuse it, touch and keep nothing, and name a command that mends it."""
    path = plant(folder, kind)
    before = sorted(os.listdir(folder))
    held = descriptors()
    for refused in (files.read_private, lambda path: files.write_private(path, b"x"), files.open_append, lock_once):
        with pytest.raises(FileRefused, match=f"mend it with: {MENDING.get(kind, 'chmod 600')} ") as why:
            refused(path)
        assert str(path) in why.value.detail
    assert descriptors() == held
    assert sorted(os.listdir(folder)) == before
    assert (folder / "target").read_bytes() == b"target"


@pytest.mark.parametrize("than_theirs", [-1, 1])
def test_only_our_own_file_is_ours(folder: Path, monkeypatch: pytest.MonkeyPatch, than_theirs: int) -> None:
    """Not one of a user with a higher number, and not one of root's where we are somebody else."""
    files.write_private(folder / "file", b"x")
    monkeypatch.setattr(os, "geteuid", lambda: (folder / "file").stat().st_uid + than_theirs)
    with pytest.raises(FileRefused, match="belongs to another user"):
        files.read_private(folder / "file")


def test_root_leaves_a_users_file_to_him(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is told to be that user for the command: the engine whose file it is could not use one of root's."""
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    theirs = os.stat_result((0o100600, 0, 0, 1, pwd.getpwnam("nobody").pw_uid, 0, 0, 0, 0, 0))
    with pytest.raises(FileRefused, match="runuser -u nobody -- hatchway"):
        files.check_status(folder / "file", theirs)


def test_a_folder_of_a_user_without_a_name_is_left_to_it(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A container's engine: root is told how to be that user, and nobody else what only root may do."""
    theirs = os.stat_result((0o040700, 0, 0, 1, 54321, 54322, 0, 0, 0, 0))
    monkeypatch.setattr(Path, "lstat", lambda path: theirs)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    with pytest.raises(FileRefused, match="setpriv --reuid=54321 --regid=54322 --clear-groups -- hatchway"):
        files.check_private_dir(folder)
    monkeypatch.setattr(os, "geteuid", lambda: 1234)
    with pytest.raises(FileRefused, match="name a folder of your own by HATCHWAY_HOME, or have root"):
        files.check_private_dir(folder)


def test_a_folder_that_others_use_is_not_to_be_closed(tmp_path: Path) -> None:
    """HATCHWAY_HOME=/tmp: whoever does as is said closes no folder of other programs."""
    tmp_path.chmod(0o1777)
    with pytest.raises(FileRefused, match="unless other programs use it too: then name another folder; mend it with"):
        files.check_private_dir(tmp_path)


def lock_once(path: Path) -> None:
    """Take and leave the lock."""
    with file_locks.locked(path):
        pass


@pytest.mark.parametrize("kind", ["symlink", "640", "pipe"])
@pytest.mark.parametrize("use", [files.open_append, files.read_private, lock_once])
def test_what_comes_between_the_look_and_the_use_is_no_way_in(
    folder: Path, monkeypatch: pytest.MonkeyPatch, kind: str, use: Callable[[Path], object]
) -> None:
    """A look by name protects nobody: no link is followed, no pipe waited for, what was opened is looked at again."""
    path = plant(folder, kind)
    monkeypatch.setattr(files, "check_private", lambda path: None)
    held = descriptors()
    if use is lock_once and kind != "symlink":
        use(path)  # a lock file holds nothing that could be read
    else:
        with pytest.raises((FileRefused, OSError)):
            use(path)
    assert descriptors() == held
    assert (folder / "target").read_bytes() == b"target"


def test_a_log_is_added_to(folder: Path) -> None:
    """It is made where it isn't there, 0600 whatever the umask; what is written goes to its end."""
    with umask(0):
        for line in (b"one\n", b"two\n"):
            fd = files.open_append(folder / "log")
            os.write(fd, line)
            os.close(fd)
    assert (folder / "log").read_bytes() == b"one\ntwo\n"
    assert mode(folder / "log") == 0o600


def test_a_crash_of_the_host_leaves_the_old_file_or_the_new(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The content is on the disk, whole, before it has its name, and the name before the writer goes on."""
    path, synced, fsync = folder / "file", [], os.fsync

    def noted(fd: int) -> None:
        status = os.fstat(fd)
        what = "folder" if stat.S_ISDIR(status.st_mode) else status.st_size
        synced.append((what, path.read_bytes() if path.exists() else None))
        fsync(fd)

    monkeypatch.setattr(os, "fsync", noted)
    files.write_private(path, b"old", overwrite=False)
    files.write_private(path, b"newer")
    assert synced == [(3, None), ("folder", b"old"), (5, b"old"), ("folder", b"newer")]


@pytest.mark.parametrize("kind", ["symlink", "640"])
def test_the_command_in_the_refusal_mends_it(folder: Path, kind: str) -> None:
    """After what the message says, the file is written."""
    path = plant(folder, kind).rename(folder / "it's here")
    with pytest.raises(FileRefused) as why:
        files.write_private(path, b"x")
    subprocess.run(["sh", "-c", why.value.detail.split("mend it with: ")[1]], check=True)
    files.write_private(path, b"x")
    assert files.read_private(path) == b"x"


@pytest.mark.parametrize("wide", [0o750, 0o701, 0o720], ids=oct)
def test_an_open_folder_is_refused(tmp_path: Path, wide: int) -> None:
    """A folder that others may enter or write is named with the command that closes it."""
    (tmp_path / "home").mkdir()
    (tmp_path / "home").chmod(wide)
    with pytest.raises(FileRefused, match="chmod 700"):
        files.make_private_dir(tmp_path / "home")


def test_a_linked_folder_is_refused(tmp_path: Path) -> None:
    """The folder is never a symbolic link, not even a dangling one, nor a file."""
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    (tmp_path / "file").touch(0o600)
    for name in ("link", "file"):
        with pytest.raises(FileRefused):
            files.make_private_dir(tmp_path / name)
    assert not (tmp_path / "nowhere").exists()


def test_a_linked_folder_is_told_where_it_leads(tmp_path: Path) -> None:
    """Nobody is advised to cut off a home that lies on another disk: HATCHWAY_HOME names it. A link for a file goes."""
    (tmp_path / "the disk").mkdir(0o700)
    (tmp_path / "link").symlink_to(tmp_path / "the disk")
    for refused in (files.make_private_dir, files.check_private_dir):
        with pytest.raises(FileRefused) as told:
            refused(tmp_path / "link")
        assert f"export HATCHWAY_HOME='{tmp_path / 'the disk'}'" in told.value.detail
        assert "rm " not in told.value.detail
    with pytest.raises(FileRefused, match="mend it with: rm "):
        files.check_private(tmp_path / "link")


def test_a_key_file_of_anybody_is_read_up_to_its_limit(folder: Path) -> None:
    """A public key may be anybody's; a device, a pipe or a large file is refused at once and not waited for."""
    (folder / "small").write_bytes(b"x")
    (folder / "fits").write_bytes(b"x" * 65536)
    (folder / "large").write_bytes(b"x" * 65537)
    os.mkfifo(folder / "pipe")
    assert files.read_small(folder / "small") == b"x"
    assert len(files.read_small(folder / "fits")) == 65536
    with pytest.raises(FileRefused, match="larger than 64 KiB"):
        files.read_small(folder / "large")
    assert len(files.read_small(folder / "large", 65537)) == 65537
    for path in (folder / "large", folder / "pipe", folder, Path("/dev/zero")):
        with pytest.raises(FileRefused):
            files.read_small(path)


def test_a_disk_that_takes_no_more_is_a_refusal(folder: Path) -> None:
    """What can't be written or made is said in words, and nothing half written stays."""
    (folder / "file").write_bytes(b"")
    for parent in ("gone", "file"):
        with pytest.raises(FileRefused, match="can't be written"):
            files.write_private(folder / parent / "x", b"x")
        with pytest.raises(FileRefused, match="can't be locked"):
            lock_once(folder / parent / "x")
    with pytest.raises(FileRefused, match="can't be read"):
        files.read_private(folder / "file" / "x")
    with pytest.raises(FileRefused, match="can't be made"):
        files.make_private_dir(folder / ("x" * 300))
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limit[1]))
    try:
        with pytest.raises(FileRefused, match="can't be written: File too large"):
            files.write_private(folder / "big", b"x" * 2000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    assert os.listdir(folder) == ["file"]


def test_a_missing_file_is_missing(folder: Path) -> None:
    """Absence is not a refusal: first starts depend on telling them apart."""
    for read in (files.read_private, files.read_small):
        with pytest.raises(FileNotFoundError):
            read(folder / "nothing")


def test_leftovers_of_killed_writers_are_cleared(folder: Path) -> None:
    """Only what writers of that very file left is removed."""
    others = [
        ".file.mine.new",
        ".file.new.txt",
        ".file.old.0123456789abcdef.new",
        ".other.0123456789abcdef.new",
        "file",
    ]
    for name in (".file.0123456789abcdef.new", *others):
        (folder / name).touch(0o600)
    files.clear_leftovers(folder / "file")
    assert sorted(os.listdir(folder)) == others


def test_a_secret_of_another_user_may_be_open_to_a_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """E11: services are handed their keys so (root:service, 0640); to write it, or for all to read, is refused."""
    path = tmp_path / "key.pem"
    path.touch()
    monkeypatch.setattr(os, "geteuid", lambda: path.stat().st_uid + 1)
    for mode in (0o600, 0o440, 0o640):
        path.chmod(mode)
        files.check_unshared(path)
    for mode in (0o660, 0o644, 0o602):
        path.chmod(mode)
        with pytest.raises(FileRefused, match=r"chmod g-w,o-rwx .*key.pem$"):
            files.check_unshared(path)

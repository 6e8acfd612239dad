"""File systems that lack what others have, as the kernel tells it: locks, links, sockets. What can go on does; what
can't is told with its path and the way out, and nothing is left half done."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
from collections.abc import Iterable
from pathlib import Path

import pytest

from hatchway.api.server.unix_sockets import listen_private
from hatchway.engine.base import files
from hatchway.engine.base.errors import FileRefused
from hatchway.engine.base.permissions import MASTER
from hatchway.engine.keys.authorized_keys import AuthorizedKeys
from hatchway.engine.keys.keys import read_private_key, read_public_key
from tests.support.fakes import ROOT, key
from tests.support.processes import HATCHWAY, EngineProcess, prepare
from tests.support.refused_calls import FLOCK, LINKS, POSIX_LOCKS, refusing

pytestmark = pytest.mark.process

START = ("engine", "start", "--port", "0")


def run(home: Path, *arguments: str, lacks: Iterable[str], error: int) -> subprocess.CompletedProcess[str]:
    """A command where the kernel refuses some calls."""
    return subprocess.run(
        [*HATCHWAY, *arguments],
        cwd=home.parent,
        env=os.environ | {"HATCHWAY_HOME": str(home), "PYTHONPATH": str(ROOT / ".packages")},
        text=True,
        capture_output=True,
        timeout=60,
        check=False,
        preexec_fn=refusing(lacks, error),
    )


def refused(home: Path, *arguments: str, lacks: Iterable[str], error: int) -> str:
    """The one line that a command which fails says."""
    done = run(home, *arguments, lacks=lacks, error=error)
    assert done.returncode == 1, done.stdout + done.stderr
    told = [line for line in done.stderr.splitlines() if not line.startswith("{")]
    assert len(told) == 1, done.stderr
    return told[0]


@pytest.mark.parametrize("error", [errno.ENOSYS, errno.ENOLCK])
def test_no_lock_can_be_had(home: Path, error: int) -> None:
    """Every command that locks says which file, what the system said, that the file system has no locks, and that
    HATCHWAY_HOME leads out; it changes nothing. Those that only read go on."""
    prepare(home)
    (home.parent / "two.pub").write_bytes(key("two").public.pem())
    before = (home / "authorized_keys").read_bytes()
    locking = {
        START: "engine.lock",
        ("config", "set", "max_instances", "8"): "config.lock",
        ("key", "register", "two.pub"): "authorized_keys.lock",
        ("key", "rotate-engine"): "rotation.lock",
    }
    for arguments, lock in locking.items():
        said = refused(home, *arguments, lacks=FLOCK, error=error)
        assert said.startswith(f"{home / lock} can't be locked: {os.strerror(error)}; its file system has no locks")
        assert "HATCHWAY_HOME" in said
    assert (home / "authorized_keys").read_bytes() == before
    assert not (home / "config.toml").exists()
    assert run(home, "key", "list", lacks=FLOCK, error=error).returncode == 0


@pytest.mark.parametrize("error", [errno.ENOLCK, errno.EIO])
def test_no_posix_lock_can_be_had(home: Path, error: int) -> None:
    """What SQLite can't lock (NFS without a lock daemon) is no damage: the folder, the reason and the way out are told,
    and the database with its sessions stays where it is."""
    engine = EngineProcess(home)
    engine.start()
    engine.terminate()
    before = (home / "engine.db").read_bytes()
    said = refused(home, *START, lacks=POSIX_LOCKS, error=error)
    assert said.startswith(f"{home} can't be locked: {os.strerror(error)}")
    assert "HATCHWAY_HOME" in said
    assert "move it away" not in said
    assert (home / "engine.db").read_bytes() == before


@pytest.mark.parametrize("error", [errno.EPERM, errno.ENOSYS])
def test_no_link_can_be_made(home: Path, error: int) -> None:
    """Keys are made, whole and private, and an engine starts: exFAT and many a network's file system have no links."""
    engine = EngineProcess(home)
    home.parent.mkdir(exist_ok=True)
    try:
        engine.start(preexec=refusing(LINKS, error))
        (entry,) = [
            entry for entry in AuthorizedKeys(home / "authorized_keys").entries() if MASTER in entry.permissions
        ]
        own = read_private_key(files.read_private(home / "private-key.pem"))
        assert (entry.identity, entry.permissions) == (own.identity, (MASTER,))
        engine.terminate()
    finally:
        engine.close()
    assert run(home, "key", "generate", "alice", lacks=LINKS, error=error).returncode == 0
    made = home.parent / "alice.pem"
    assert stat.S_IMODE(made.stat().st_mode) == 0o600
    before = made.read_bytes()
    assert read_private_key(before).public == read_public_key((home.parent / "alice.pub").read_bytes())
    assert "is there already" in refused(home, "key", "generate", "alice", lacks=LINKS, error=error)
    assert made.read_bytes() == before
    assert not [name for name in os.listdir(home.parent) if name.endswith(".new")]


def test_without_links_a_name_is_given_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is there already is never written over, with links and without."""

    def no_link(*arguments: object) -> None:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "link", no_link)
    files.make_private_dir(tmp_path / "home")
    path = tmp_path / "home" / "file"
    files.write_private(path, b"first", overwrite=False)
    with pytest.raises(FileExistsError):
        files.write_private(path, b"second", overwrite=False)
    assert path.read_bytes() == b"first"
    assert os.listdir(path.parent) == ["file"]


def test_no_socket_can_be_made() -> None:
    """FAT has no sockets either: an engine on it says so, and which setting leads out."""
    with pytest.raises(FileRefused, match=r"/proc/sys/operator\.sock can't be made: .*HATCHWAY_HOME"):
        listen_private(Path("/proc/sys/operator.sock"))


def test_a_file_system_that_keeps_no_modes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where others may read whatever is written and no mode can change that, nothing is."""
    files.make_private_dir(tmp_path / "home")
    make = os.open

    def open_for_all(path: str, flags: int, mode: int = 0o777) -> int:
        fd = make(path, flags, mode)
        change(fd, 0o755)
        return fd

    def deny(fd: int, mode: int) -> None:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    change = os.fchmod
    monkeypatch.setattr(os, "open", open_for_all)
    monkeypatch.setattr(os, "fchmod", deny)
    with pytest.raises(FileRefused, match="other users may read"):
        files.write_private(tmp_path / "home" / "key.pem", b"secret")
    monkeypatch.undo()
    assert os.listdir(tmp_path / "home") == []


def test_starts_that_fail_authorize_no_key_that_nobody_has(home: Path) -> None:
    """A start that can't go on leaves at most the key that the next one goes on with: every line of MASTER is of it,
    and once it is started that key is the engine's own."""
    for _ in range(3):
        files.make_private_dir(home)
        (home / "authorized_keys").mkdir(exist_ok=True)
        assert "authorized_keys" in refused(home, *START, lacks=(), error=0)
    (home / "authorized_keys").rmdir()
    (home / "token-key.pem").mkdir()
    for _ in range(3):
        assert "token-key.pem" in refused(home, *START, lacks=(), error=0)
    (entry,) = AuthorizedKeys(home / "authorized_keys").entries()
    assert entry.identity == read_private_key(files.read_private(home / "private-key.pem")).identity
    assert not [name for name in os.listdir(home) if name.startswith("private-key-next")]


@pytest.mark.mount
def test_rotations_that_fail_authorize_no_key_that_nobody_has(home: Path) -> None:
    """Of a new key that can't be taken up there is one line at most, however often it is tried, and the key is on the
    disk; the next rotation that succeeds takes it, and the old one's line goes."""
    prepare(home)
    subprocess.run(["chattr", "+i", str(home / "private-key.pem")], check=True)
    try:
        for _ in range(3):
            assert "private-key.pem can't be written" in refused(home, "key", "rotate-engine", lacks=(), error=0)
    finally:
        subprocess.run(["chattr", "-i", str(home / "private-key.pem")], check=True)
    made = read_private_key(files.read_private(home / "private-key-next.pem")).identity
    assert _masters(home) == [key("own").public.identity, made]
    assert run(home, "key", "rotate-engine", lacks=(), error=0).returncode == 0
    assert _masters(home) == [made]
    assert read_private_key(files.read_private(home / "private-key.pem")).identity == made


def _masters(home: Path) -> list[str]:
    return [
        entry.identity for entry in AuthorizedKeys(home / "authorized_keys").entries() if MASTER in entry.permissions
    ]

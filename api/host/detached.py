"""Starts an engine that outlives the process and the login which started it."""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from hatchway.engine.base.errors import EngineUnavailable
from hatchway.engine.base.file_locks import LockHeld, locked
from hatchway.engine.base.files import make_private_dir

LOG = "log/engine.log"
"""The file, in the engine's folder, that a detached engine's log goes to."""

START_WAIT = 60.0
"""Seconds that an engine has to come up; the first start makes a key."""

LEAST_ROOM = 1024 * 1024
"""Bytes without which a file system is taken to be full, where the engine could not even say so."""

TOLD_LINES = 3
"""Lines of the log that are shown where the engine does not come up."""

_PROGRAM = (sys.executable, "-c", "from hatchway.api.cli import main; main()", "engine", "start")
_UNIT_WAIT = 10.0

UNIT_LOOKS = 0.5
"""Seconds between two questions to systemd whether the engine has ended."""


class DetachedEngine(Protocol):
    """An engine that was started and may not answer yet."""

    def has_ended(self) -> bool:
        """Whether it is gone again."""


class InOwnSession:
    """A process of ours that outlives us."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process

    def has_ended(self) -> bool:
        """As `DetachedEngine` says."""
        return self._process.poll() is not None


class UserService:
    """A unit of the user's own systemd."""

    def __init__(self, unit: str) -> None:
        self._unit = unit
        self._looked = time.monotonic()
        self._ended = False

    def has_ended(self) -> bool:
        """As `DetachedEngine` says; systemd is asked twice a second at most. Where it does not answer, as with a busy
        bus, that says nothing."""
        if not self._ended and time.monotonic() - self._looked >= UNIT_LOOKS:
            done = _run(["systemctl", "--user", "is-active", self._unit])
            self._ended = done is not None and done.stdout.strip() in ("inactive", "failed")
            self._looked = time.monotonic()
        return self._ended


def start_detached(home: Path, flags: tuple[str, ...], runs: Callable[[Path], bool]) -> None:
    """Start an engine on `home` and wait until it answers (`runs`). Raises EngineUnavailable with its last words.

    Where the user's services linger, systemd minds it, and it outlives the user's last login whatever the host does
    to processes then; elsewhere it has a session of its own.
    """
    is_new = not home.exists()
    make_private_dir(home)
    make_private_dir(home / "log")
    log = home / LOG
    begins = log.stat().st_size if log.exists() else 0
    started: DetachedEngine = _by_systemd(home, flags, log) or _in_own_session(home, flags, log)
    until = time.monotonic() + START_WAIT
    while time.monotonic() < until and not started.has_ended():
        if runs(home):
            return
        time.sleep(0.02)
    if not started.has_ended():
        raise EngineUnavailable(f"the engine does not answer after {START_WAIT:.0f} s, and may do so yet: see {log}")
    why = _last_words(log, begins)
    if is_new:
        _remove(home)
    raise EngineUnavailable(f"the engine did not start: {why}")


def _remove(home: Path) -> None:
    """A folder that was made for an engine which never ran holds nothing that anybody knows of.

    It is moved out of the way under its lock, and removed once the lock's file is closed: NFS and FUSE keep a file that
    is open, under another name, and so its folder.
    """
    moved = home.with_name(f"{home.name}.{secrets.token_hex(4)}")
    with suppress(LockHeld, OSError):
        with locked(home / "engine.lock", wait=False):
            home.rename(moved)
        shutil.rmtree(moved)


def _environment(home: Path) -> dict[str, str]:
    """The variables that the engine needs. Those of the SSH connection mean nothing once it has ended."""
    kept = {name: text for name, text in os.environ.items() if not name.startswith("SSH_")}
    return kept | {"HATCHWAY_HOME": str(home)}


def _open_log(log: Path) -> int:
    return os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)


def _in_own_session(home: Path, flags: tuple[str, ...], log: Path) -> InOwnSession:
    descriptor = _open_log(log)
    try:
        return InOwnSession(
            subprocess.Popen(
                [*_PROGRAM, *flags],
                stdin=subprocess.DEVNULL,
                stdout=descriptor,
                stderr=descriptor,
                cwd=home,
                env=_environment(home),
                start_new_session=True,
            )
        )
    finally:
        os.close(descriptor)


def _by_systemd(home: Path, flags: tuple[str, ...], log: Path) -> UserService | None:
    """Start the engine by systemd. None where that was not done: without systemd or lingering, or if it refuses."""
    if shutil.which("systemd-run") is None or not lingers(os.environ):
        return None
    unit = f"hatchway-{secrets.token_hex(4)}.service"
    os.close(_open_log(log))
    kept = [f"--setenv={name}={text}" for name, text in _environment(home).items() if _may_be_kept(name, text)]
    output = [f"--property=Standard{stream}=append:{log}" for stream in ("Output", "Error")]
    how = ["--user", "--quiet", "--collect", f"--unit={unit}", f"--working-directory={home}"]
    done = _run(["systemd-run", *how, *output, *kept, "--", *_PROGRAM, *flags])
    return UserService(unit) if done is not None and done.returncode == 0 else None


def lingers(environ: Mapping[str, str]) -> bool:
    """Whether this user's services go on after the last logout (loginctl(1), enable-linger)."""
    if "XDG_RUNTIME_DIR" not in environ or shutil.which("loginctl") is None:
        return False
    told = _run(["loginctl", "show-user", str(os.getuid()), "--property=Linger", "--value"])
    return told is not None and told.stdout.strip() == "yes"


def _may_be_kept(name: str, text: str) -> bool:
    """Whether a variable is one that the engine or what it runs may need."""
    needed = ("PATH", "HOME", "LANG", "LD_LIBRARY_PATH", "PYTHONPATH", "XDG_RUNTIME_DIR", "TMPDIR")
    return (name in needed or name.startswith(("HATCHWAY_", "LC_"))) and "\n" not in text


def _run(command: list[str]) -> subprocess.CompletedProcess[str] | None:
    """A program of systemd's, run to its end; None where it can't be, or does not end."""
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=_UNIT_WAIT, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None


def _last_words(log: Path, begins: int) -> str:
    try:
        with log.open("rb") as written:
            written.seek(begins)
            lines = written.read().decode(errors="replace").strip().splitlines()
    except OSError as error:
        return f"{log}: {error.strerror}"
    if lines:
        sentences = [line for line in lines if not line.startswith("{")]  # the others are records of the log, as JSON
        return " / ".join(list(dict.fromkeys(sentences or lines))[-TOLD_LINES:])  # starts at once write alike
    if shutil.disk_usage(log.parent).free < LEAST_ROOM:
        return f"no room is left for {log}: make some on its file system, or name another folder by HATCHWAY_HOME"
    return f"{log} says nothing"

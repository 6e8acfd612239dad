"""`ssh://[USER@]HOST[:PORT]` as an engine's address: commands within a minute share one connection and one forward.

The connection is a background ssh that ends by itself, a minute after its last use (ControlPersist). Its folder is this
user's alone, by the host's name; a lock in it has the first of several commands dial, and the others wait.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from hatchway.api.client.ssh.attached import attach
from hatchway.api.client.ssh.connection import Multiplexed, SshConnection, SshTarget, folder_for_sockets, users_own
from hatchway.api.client.ssh.faults import SshFault, fault_of
from hatchway.api.client.ssh.probe import issuer_at
from hatchway.engine.base.errors import EngineUnavailable

SHARED_FOR = 60
"""Seconds that the connection stays after its last use."""

SOCKET_NAME = "localhost:80"
"""What is dialled over an engine's Unix socket: `http://localhost/`."""


class Behind(NamedTuple):
    """An engine behind SSH: the Unix socket that leads to it, and the Host that it answers to there."""

    socket: Path
    dialled: str


@contextmanager
def engine_behind(target: SshTarget, command: str | None) -> Iterator[Behind]:
    """The engine at the other end, reachable until left. Raises SshFault, EngineUnavailable."""
    if users_own(target) is not None:
        own = SshConnection(target)
        try:
            own.connect()
            yield _reach(own, command)[0]
        finally:
            own.close()
    else:
        yield _shared(target, command)


def _shared(target: SshTarget, command: str | None) -> Behind:
    folder = _folder(target)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        connection = SharedConnection(target, folder)
        if (known := connection.known()) is not None:
            return known
        connection.dial()
        try:
            behind, identity = _reach(connection, command)
        finally:
            connection.end_sessions()
        connection.keep(behind, identity)
        return behind


def _reach(connection: Multiplexed, command: str | None) -> tuple[Behind, str]:
    """Forward from a socket in the connection's folder to the engine; also the engine's name."""
    host, near = connection.host.target, connection.folder / "near"
    try:
        attached = attach(connection, command, "")
    except EngineUnavailable as refused:
        raise EngineUnavailable(f"{refused.detail}; or from here: hatchway open {host}") from None
    status = attached.ask("status")
    ways = [(status.get("socket_way") or status.get("socket"), SOCKET_NAME)]
    if not status.get("fingerprint"):
        ways += [(listening, listening) for listening in status.get("listening", ())[:1]]
    for far, dialled in ways:
        if far is None:
            continue
        near.unlink(missing_ok=True)
        connection.forward(near, far)
        if issuer_at(near, dialled, None) == status["identity"]:
            return Behind(near, dialled), status["identity"]
    raise SshFault(
        f"no forward to the engine on {host} leads there: it needs http.sock (there: hatchway config set listen both,"
        " then start it again), and the host's sshd must allow AllowStreamLocalForwarding or AllowTcpForwarding"
    )


class SharedConnection(Multiplexed):
    """One for all commands of this user to a host; it outlives each of them."""

    def known(self) -> Behind | None:
        """What an earlier command reached, where that still leads there."""
        try:
            told = json.loads((self.folder / "known").read_text())
            behind = Behind(self.folder / "near", str(told["dialled"]))
        except (OSError, ValueError, KeyError, TypeError):
            return None
        # The first of the two restarts the minute, and waits for nothing.
        if not self._is_there() or issuer_at(behind.socket, behind.dialled, None) != told["identity"]:
            return None
        return behind

    def keep(self, behind: Behind, identity: str) -> None:
        """For the commands that follow."""
        (self.folder / "known").write_text(json.dumps({"dialled": behind.dialled, "identity": identity}))

    def dial(self) -> None:
        """Connect, unless the connection is there: whatever it led to, it leads on. Raises SshFault."""
        if self._is_there():
            return
        for name in ("control", "near", "known"):
            (self.folder / name).unlink(missing_ok=True)
        options = ["-o", f"ControlPersist={SHARED_FOR}", *self._own_options()]
        said = self.folder / "said"
        with said.open("wb") as errors:
            process = subprocess.Popen(
                [*self.host.command, *options, "-f", "-M", "-N", "-S", str(self._control), "--", self.host.target],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=errors,
            )
            code = process.wait()
        if code or not self._wait_there():
            raise fault_of(self.host.target, said.read_text(errors="replace"))

    def _wait_there(self) -> bool:
        for _ in range(100):
            if self._control.exists():
                return True
            time.sleep(0.02)
        return False


def _folder(target: SshTarget) -> Path:
    """The host's, in one of this user's own. Raises SshFault where somebody else has made that."""
    own = Path(folder_for_sockets()) / f"hatchway-{os.getuid()}"
    own.mkdir(mode=0o700, exist_ok=True)
    found = os.lstat(own)
    if found.st_uid != os.getuid() or found.st_mode & 0o077 or own.is_symlink():
        raise SshFault(f"{own} is open to other users, or another's: remove it, or name a folder by XDG_RUNTIME_DIR")
    name = hashlib.sha256(json.dumps(target).encode()).hexdigest()[:8]
    folder = own / name
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder


def target_of(url: str, ssh: str) -> SshTarget:
    """Whom an ssh:// address names."""
    place = url.removeprefix("ssh://").rstrip("/")
    host, colon, port = place.rpartition(":")
    if colon and port.isdigit() and not host.endswith(":"):
        return SshTarget(host.replace("[", "").replace("]", ""), ("-p", port), ssh)
    return SshTarget(place.replace("[", "").replace("]", ""), (), ssh)

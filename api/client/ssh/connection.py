"""One connection to a host by the system's ssh, with commands and forwards over it."""

from __future__ import annotations

import os
import secrets
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from hatchway.api.client.ssh.faults import SshFault, fault_of
from hatchway.api.client.ssh.guard import END, Guard
from hatchway.engine.base.text import printable

QUICK = 15.0
"""Seconds for a call of ssh that uses an existing connection: a check, a forward, an end."""

ENDING = 3.0
"""Seconds that a connection has to end by itself."""

LONGEST_FOLDER = 50
"""Bytes of the private folder's parent at most: ssh adds about thirty, and some systems allow 104 for a socket's
path."""

SAID = 16_384
"""Bytes of ssh's messages that are kept for an error's reason."""

_OWN = (
    ("IgnoreUnknown", "ForkAfterAuthentication,SessionType,StdinNull"),
    ("RemoteCommand", "none"),
    ("RequestTTY", "no"),
    ("ForkAfterAuthentication", "no"),
    ("StdinNull", "no"),
    ("ControlPersist", "no"),
    ("ClearAllForwardings", "yes"),
    ("ServerAliveInterval", "5"),
    ("ServerAliveCountMax", "3"),
    ("ConnectTimeout", "30"),
)
"""Options against parts of the user's configuration that don't fit a connection without a terminal. Options on the
command line come before these, and take precedence."""


_BECOME_SSH = 'trap "" INT; echo "kill $$" >"$0" || exit; exec "$@"'
"""Starts ssh with Ctrl-C ignored, as ssh then leaves it: the process that opened the connection handles Ctrl-C, and
ends ssh in order. ssh must stay in the terminal's foreground process group, since it may ask for a passphrase there."""


class SshTarget(NamedTuple):
    """The host to connect to; `ssh` is the command, split as a shell does, and `options` are the user's further
    options."""

    target: str
    options: tuple[str, ...] = ()
    ssh: str = "ssh"

    @property
    def command(self) -> list[str]:
        """The command line of ssh, with the user's options."""
        return [*shlex.split(self.ssh), *self.options]


def over(host: SshTarget, control: Path, *words: str) -> list[str]:
    """ssh over a connection that is there, and over no other: without it, nothing is dialled."""
    program = shlex.split(host.ssh)[0]
    return [program, "-F", "none", "-o", "ProxyCommand=false", "-S", str(control), *words, "--", host.target]


class Multiplexed:
    """What can be done over a connection that is there: commands and forwards. Not for several threads at once."""

    def __init__(self, host: SshTarget, folder: Path) -> None:
        """`folder` is private, and holds the control socket unless the connection is the user's own."""
        self.host, self.folder = host, folder
        self._control = folder / "control"
        self._sessions: list[SshSession] = []

    def run(self, command: str) -> SshSession:
        """Run a command on the host, its input and output one socket. Raises nothing: `SshSession.fault` says what
        failed."""
        ours, theirs = socket.socketpair()
        with theirs:
            process = subprocess.Popen(
                [*over(self.host, self._control, "-T"), command],
                stdin=theirs.fileno(),
                stdout=theirs.fileno(),
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        session = SshSession(self.host, process, ours)
        self._sessions.append(session)
        return session

    def forward(self, near: Path, far: str) -> None:
        """Forward the Unix socket `near` to `far` on the host, a path or host:port. Raises SshFault."""
        spec = f"{near}:{far}"
        done = _quick(over(self.host, self._control, "-O", "forward", "-L", spec))
        if done.returncode:
            raise fault_of(self.host.target, done.stderr)

    def _is_there(self) -> bool:
        """Whether the connection stands, as its own process says."""
        return self._control.exists() and _quick(over(self.host, self._control, "-O", "check")).returncode == 0

    def _own_options(self) -> list[str]:
        if shutil.which(shlex.split(self.host.ssh)[0]) is None:
            raise SshFault(f"there is no {self.host.ssh}: install OpenSSH's client, or name it by the setting `ssh`")
        return [word for name, value in _OWN for word in ("-o", f"{name}={value}")]

    def end_sessions(self) -> None:
        """Nothing that was run goes on."""
        for session in self._sessions:
            session.close()
        self._sessions.clear()


def users_own(host: SshTarget) -> Path | None:
    """The control socket of a connection that the user has to this host already. Raises SshFault."""
    try:
        asked = [*host.command, "-G", "--", host.target]
        told = subprocess.run(asked, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise SshFault(f"there is no {host.ssh}: install OpenSSH's client, or name it by the setting `ssh`") from None
    if told.returncode:
        raise fault_of(host.target, told.stderr)
    named = told.stdout.partition("\n")[0].removeprefix("host ")
    if told.stdout.startswith("host ") and named.lower() not in host.target.lower():
        raise SshFault(f"behind -- only options of ssh may stand, and {printable(named)} is none: see `ssh -G`")
    paths = [line.partition(" ")[2] for line in told.stdout.splitlines() if line.startswith("controlpath ")]
    if not paths or paths[0] == "none" or not Path(paths[0]).exists():
        return None
    control = Path(paths[0])
    return control if _quick(over(host, control, "-O", "check")).returncode == 0 else None


def _wait_for(process: subprocess.Popen[bytes]) -> None:
    with suppress(subprocess.TimeoutExpired):
        process.wait(ENDING)
    if process.poll() is None:
        process.kill()  # it was stopped, or its network holds it
        process.wait()


class SshConnection(Multiplexed):
    """A connection of one process, from `connect` to `close`; or one that its user has already."""

    def __init__(self, host: SshTarget) -> None:
        super().__init__(host, Path(folder_for_sockets()) / f"hatchway-{secrets.token_hex(6)}")
        self._guard = Guard(self.folder)
        self.folder.mkdir(mode=0o700)
        self._master: subprocess.Popen[bytes] | None = None
        self._said = bytearray()
        self._forwards: list[str] = []

    def connect(self) -> None:
        """Connect. ssh may ask for a passphrase or a second factor at the terminal. Raises SshFault."""
        if (theirs := users_own(self.host)) is not None:
            self._control = theirs
            return
        options = self._own_options()
        command = [*self.host.command, *options, "-M", "-N", "-S", str(self._control), "--", self.host.target]
        self._master = subprocess.Popen(
            ["/bin/sh", "-c", _BECOME_SSH, str(self.folder / END), *command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        listening = threading.Thread(target=self._listen, args=(self._master,), daemon=True)
        listening.start()
        while not self._control.exists():
            if self._master.poll() is not None:
                listening.join(1)
                raise fault_of(self.host.target, self._said.decode(errors="replace"))
            time.sleep(0.005)

    def _listen(self, master: subprocess.Popen[bytes]) -> None:
        """Show ssh's messages, such as banners and hints of a second factor, and keep the last of them."""
        assert master.stderr is not None
        with master.stderr as lines:
            for line in lines:
                self._said += line
                del self._said[:-SAID]
                if not self._control.exists():
                    print(printable(line.decode(errors="replace").rstrip()), file=sys.stderr, flush=True)

    def forward(self, near: Path, far: str) -> None:
        if self._master is None:
            (self.folder / END).write_text(f"{shlex.join(self._cancelling(f'{near}:{far}'))}\n")
        super().forward(near, far)
        self._forwards.append(f"{near}:{far}")

    def unforward(self) -> None:
        """End every forward."""
        for spec in self._forwards:
            _quick(self._cancelling(spec))
            Path(spec.partition(":")[0]).unlink(missing_ok=True)
        self._forwards.clear()

    def _cancelling(self, spec: str) -> list[str]:
        return over(self.host, self._control, "-O", "cancel", "-L", spec)

    def close(self) -> None:
        """End the connection and remove its folder. A connection of the user's own stays."""
        if self._master is None:
            if self._control.exists():
                self.unforward()
        elif self._master.poll() is None:
            self._master.terminate()
        self.end_sessions()
        if self._master is not None:
            _wait_for(self._master)
        shutil.rmtree(self.folder, ignore_errors=True)
        self._guard.dismiss()


class SshSession:
    """A command that runs on the host. `socket` is its input and output."""

    def __init__(self, host: SshTarget, process: subprocess.Popen[bytes], ours: socket.socket) -> None:
        self.socket, self._host, self._process = ours, host, process
        self._said: bytes | None = None

    def fault(self) -> SshFault:
        """Why the command ended, once it has: by its own messages, or ssh's."""
        return fault_of(self._host.target, self._all_said())

    def was_lost(self) -> bool:
        """Whether the connection ended, and not the command. ssh exits with 255 then (ssh(1))."""
        self._all_said()
        return self._process.returncode == 255 or self._process.returncode < 0

    def words(self) -> str:
        """The last line that it, or ssh, said on standard error."""
        lines = [line.strip() for line in self._all_said().splitlines() if line.strip()]
        return lines[-1] if lines else "the connection was lost"

    def _all_said(self) -> str:
        self.socket.close()
        if self._said is None:
            try:
                self._said = self._process.communicate(timeout=ENDING)[1]
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._said = self._process.communicate()[1]
        return self._said.decode(errors="replace")

    def end(self) -> int:
        """Close the command's input and wait for its end. Returns its exit code."""
        with suppress(OSError):
            self.socket.shutdown(socket.SHUT_WR)
        while self.socket.recv(65536):
            pass
        self.socket.close()
        return self._process.wait()

    def close(self) -> None:
        """End it, whatever it does; nothing happens where it has ended."""
        self.socket.close()
        if self._process.poll() is None:
            self._process.terminate()
        _wait_for(self._process)
        if self._process.stderr is not None:
            self._process.stderr.close()


def _quick(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=QUICK, check=False
        )
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(command, 255, "", "the connection does not answer: timed out")


def folder_for_sockets() -> str:
    """A folder of this user or of everybody, short enough for the paths of sockets in it."""
    for named in (os.environ.get("XDG_RUNTIME_DIR"), tempfile.gettempdir()):
        if named and len(os.fsencode(named)) <= LONGEST_FOLDER and os.access(named, os.W_OK | os.X_OK):
            return named
    return "/tmp"  # noqa: S108 - a folder of our own is made in it, for us alone

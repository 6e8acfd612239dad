"""A real sshd of the tests' own, on a high port of loopback, as whoever runs the tests; with keys, homes and shells.

`SetEnv HOME` gives each host a home of its own, and a forced command stands for another login shell.
"""

from __future__ import annotations

import getpass
import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.support.fakes import ROOT
from tests.support.ports import free_port
from tests.support.processes import HATCHWAY
from tests.support.waits import until

SSHD = shutil.which("sshd", path="/usr/sbin:" + os.environ.get("PATH", "")) or "/usr/sbin/sshd"


class SshHost:
    """A host: `home` is its user's, `port` its sshd's. `alias` is what the client's configuration calls it."""

    def __init__(self, folder: Path, alias: str = "lab", *, home: str = "home") -> None:
        self.folder, self.alias = folder / alias, alias
        self.folder.mkdir(parents=True)
        self.home = self.folder / home
        self.home.mkdir()
        self.port = free_port()
        self.address = "127.0.0.1"
        self.settings: list[str] = []
        self.environ: dict[str, str] = {}
        self.environ_of_client: dict[str, str] = {}
        self.client_settings: list[str] = []
        self._process: subprocess.Popen[bytes] | None = None
        keygen(self.folder / "host_key")
        self.user_key = folder / "user_key"
        if not self.user_key.exists():
            keygen(self.user_key)

    def shell(self, program: str) -> None:
        """The user's login shell is another than this machine says."""
        self.environ["SHELL"] = program
        self.settings.append(f'ForceCommand exec {program} -c "$SSH_ORIGINAL_COMMAND"')

    def install_command(self, folder: Path | None = None, program: Sequence[str] = HATCHWAY) -> Path:
        """A command `hatchway` in this folder, which is put first into the PATH of a login shell."""
        place = (folder or self.home / "bin") / "hatchway"
        place.parent.mkdir(parents=True, exist_ok=True)
        words = " ".join(f"'{word}'" for word in program)
        place.write_text(f'#!/bin/sh\ncd {ROOT}\nexec {words} "$@"\n')
        place.chmod(0o755)
        if folder is None:
            with (self.home / ".profile").open("a") as profile:
                profile.write('export PATH="$HOME/bin:$PATH"\n')
        return place

    def start(self) -> SshHost:
        """Runs, once this returns."""
        if os.geteuid() == 0:
            Path("/run/sshd").mkdir(exist_ok=True)
        config = self.folder / "sshd_config"
        words = " ".join(f'"{name}={text}"' for name, text in {"HOME": str(self.home), **self.environ}.items())
        config.write_text(
            "\n".join(
                [
                    f"Port {self.port}",
                    f"ListenAddress {self.address}",
                    f"HostKey {self.folder}/host_key",
                    f"PidFile {self.folder}/sshd.pid",
                    *self.settings,  # of two lines with one name the first counts
                    f"AuthorizedKeysFile {self.user_key}.pub",
                    "StrictModes no",
                    "UsePAM no",
                    "PermitRootLogin yes",
                    "PasswordAuthentication no",
                    "KbdInteractiveAuthentication no",
                    f"SetEnv {words}",
                ]
            )
            + "\n"
        )
        log = (self.folder / "sshd.log").open("ab")
        self._process = subprocess.Popen(
            [SSHD, "-D", "-e", "-f", str(config)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=sshd_environment(),
        )
        log.close()
        until(self._answers, what="sshd")
        return self

    def _answers(self) -> bool:
        try:
            with socket.create_connection((self.address, self.port), 1) as peer:
                return peer.recv(4) == b"SSH-"
        except OSError:
            return False

    def stop(self) -> None:
        """It and every connection of it."""
        for child in self.children():
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def children(self) -> list[int]:
        """The processes of its connections."""
        if self._process is None:
            return []
        return descendants(self._process.pid)

    def connections(self) -> list[int]:
        """The processes of sshd's that each have a connection."""
        assert self._process is not None
        return children_of(self._process.pid)

    command = HATCHWAY
    root = ROOT

    @contextmanager
    def operator(self) -> Iterator[socket.socket]:
        """An open connection to its engine's operator socket."""
        folder = os.open(self.home / ".hatchway", os.O_RDONLY)
        try:
            with socket.socket(socket.AF_UNIX) as peer:
                peer.connect(f"/proc/self/fd/{folder}/operator.sock")
                peer.settimeout(60)
                yield peer
        finally:
            os.close(folder)

    def config(self) -> str:
        """What the client's configuration says of it."""
        host_key = (self.folder / "host_key.pub").read_text().split()[:2]
        known = self.folder / "known_hosts"
        if not known.exists():
            name = f"[{self.address}]:{self.port}"
            known.write_text(f"{name} {' '.join(host_key)}\n")
        lines = [
            f"Host {self.alias}",
            *self.client_settings,
            f"HostName {self.address}",
            f"Port {self.port}",
            f"User {getpass.getuser()}",
            f"IdentityFile {self.user_key}",
            "IdentitiesOnly yes",
            f"UserKnownHostsFile {known}",
        ]
        return "\n  ".join(lines) + "\n"

    def engine(self, *arguments: str, code: int | None = 0) -> str:
        """A command of the engine's, on the host, without SSH."""
        environ = {**sshd_environment(), "HOME": str(self.home), **self.environ}
        done = subprocess.run(
            [*HATCHWAY, *arguments], cwd=ROOT, env=environ, capture_output=True, text=True, check=False, timeout=60
        )
        assert code is None or done.returncode == code, done.stdout + done.stderr
        return done.stdout


def sshd_environment() -> dict[str, str]:
    """Nothing of the tests' own environment but where programs are."""
    return {"PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", "LANG": "C.UTF-8"}


def keygen(path: Path, passphrase: str = "") -> None:
    """A new Ed25519 key at `path`."""
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", passphrase, "-f", str(path)], check=True)


def parents() -> dict[int, list[int]]:
    """The children of every process."""
    found: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with suppress(OSError):
                fields = Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()
                found.setdefault(int(fields[1]), []).append(int(entry))
    return found


def children_of(pid: int) -> list[int]:
    """The processes that one has begun itself."""
    return parents().get(pid, [])


def descendants(pid: int) -> list[int]:
    """Every process below one."""
    known, found, left = parents(), list[int](), [pid]
    while left:
        below = known.get(left.pop(), [])
        found += below
        left += below
    return found


def command_line(pid: int) -> bytes:
    """A process's arguments; nothing where it has gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def command_lines(text: str) -> list[int]:
    """The processes that have this text among their arguments."""
    return [
        int(entry) for entry in os.listdir("/proc") if entry.isdigit() and text.encode() in command_line(int(entry))
    ]


@contextmanager
def ssh_hosts(*hosts: SshHost) -> Iterator[Path]:
    """The hosts run, and the client's configuration knows them: its path. At the end nothing runs on them."""
    try:
        for host in hosts:
            host.start()
        config = hosts[0].folder.parent / "ssh_config"
        config.write_text("\n".join(host.config() for host in hosts))
        yield config
    finally:
        for host in hosts:
            host.engine("engine", "stop", code=None)
            host.stop()

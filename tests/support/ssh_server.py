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
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx

from hatchway import Client
from hatchway.api.client.operator import ask, operator_line
from hatchway.api.client.unix_paths import short_path
from tests.support.fakes import ROOT
from tests.support.ports import free_port
from tests.support.processes import HATCHWAY
from tests.support.waits import until

SSHD = shutil.which("sshd", path="/usr/sbin:" + os.environ.get("PATH", "")) or "/usr/sbin/sshd"


class SshHost:
    """A host: `home` is its user's, `port` its sshd's. `alias` is what the client's configuration calls it."""

    def __init__(self, folder: Path, alias: str = "lab", *, home: str | Path = "home") -> None:
        """`home` may be that of another host: then both are ways to the same one."""
        self.folder, self.alias = folder / alias, alias
        self.folder.mkdir(parents=True)
        self.home = self.folder / home
        self.home.mkdir(exist_ok=True)
        self.port = free_port()
        self.address = "127.0.0.1"
        self.settings: list[str] = []
        self.environ: dict[str, str] = {}
        self.environ_of_client: dict[str, str] = {}
        self.client_settings: list[str] = []
        self.user = getpass.getuser()
        self._seen: list[str] = []
        self._process: subprocess.Popen[bytes] | None = None
        keygen(self.folder / "host_key")
        self.user_key = folder / "user_key"
        if not self.user_key.exists():
            keygen(self.user_key)

    def sees(self, *commands: str) -> None:
        """It has a mount namespace of its own, in which these commands mount something first (mount_namespaces(7))."""
        self._seen += commands

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
        command = self.program(config)
        if self._seen:
            command = ["unshare", "--mount", "sh", "-ec", "\n".join([*self._seen, 'exec "$@"']), "sh", *command]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=sshd_environment(),
        )
        log.close()
        try:
            until(self._answers, what="sshd")
        except AssertionError as late:
            raise AssertionError(f"{late}; it wrote: {self.wrote()}") from None
        return self

    def wrote(self) -> str:
        """The end of what its sshd wrote."""
        return (self.folder / "sshd.log").read_text()[-2000:]

    def program(self, config: Path) -> list[str]:
        """What runs its sshd, as long as the host is there."""
        return [SSHD, "-D", "-e", "-f", str(config)]

    def _answers(self) -> bool:
        try:
            with socket.create_connection((self.address, self.port), 1) as peer:
                return peer.recv(4) == b"SSH-"
        except OSError:
            return False

    def stop(self) -> None:
        """It and every connection of it."""
        kill(self.children())
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def children(self) -> list[int]:
        """The processes of its connections."""
        if self._process is None:
            return []
        return descendants(self._process.pid)

    def end_engines(self) -> None:
        """kill -9 of whatever its user runs, detached or not."""
        own = f"\0HOME={self.home}\0".encode()
        kill(pid for pid in all_processes() if own in b"\0" + environment_of(pid))

    def connections(self) -> list[int]:
        """The processes of sshd's that each have a connection."""
        assert self._process is not None
        return children_of(self._process.pid)

    command = HATCHWAY
    root = ROOT

    @contextmanager
    def operator(self) -> Iterator[socket.socket]:
        """An open connection to its engine's operator socket."""
        with operator_line(self.home / ".hatchway") as line:
            line.socket.settimeout(60)
            yield line.socket

    def asked(self, op: str) -> dict[str, Any]:
        """What its engine answers to a request on the operator socket."""
        return ask(self.home / ".hatchway", op)

    def signed_in(self) -> str:
        """The token of a new session, by the engine's own key and `http.sock`."""
        home = self.home / ".hatchway"
        key = (home / "private-key.pem").read_bytes()
        with Client("http://localhost", key=key, socket=home / "http.sock", home=home) as client:
            return client.sign_in().token

    async def inspected(self, token: str) -> int:
        """What the engine answers to that token."""
        with short_path(self.home / ".hatchway/http.sock") as path:
            way = httpx.AsyncHTTPTransport(uds=path)
            async with httpx.AsyncClient(transport=way, timeout=60, trust_env=False) as client:
                headers = {"Authorization": f"Bearer {token}"}
                return (await client.get("http://localhost/api/auth/inspect/", headers=headers)).status_code

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
            f"User {self.user}",
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
    return [pid for pid in all_processes() if text.encode() in command_line(pid)]


def kill(pids: Iterable[int]) -> None:
    """kill -9, where they are still there."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def all_processes() -> list[int]:
    """Of this machine, as of now."""
    return [int(entry) for entry in os.listdir("/proc") if entry.isdigit()]


def environment_of(pid: int) -> bytes:
    """The variables that a process was given; nothing where it has gone."""
    try:
        return Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return b""


def is_gone(pid: int) -> bool:
    """Whether a process is gone, or a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


@contextmanager
def reachable(*hosts: SshHost) -> Iterator[Path]:
    """Their sshd's run, and the client's configuration knows them: its path."""
    try:
        for host in hosts:
            host.start()
        config = hosts[0].folder.parent / "ssh_config"
        config.write_text("\n".join(host.config() for host in hosts))
        yield config
    finally:
        for host in hosts:
            host.stop()


@contextmanager
def ssh_hosts(*hosts: SshHost) -> Iterator[Path]:
    """The hosts run, and the client's configuration knows them: its path. At the end nothing runs on them."""
    try:
        with reachable(*hosts) as config:
            yield config
    finally:
        for host in hosts:
            host.end_engines()

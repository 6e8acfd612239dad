"""A real engine process on a free port of loopback: started and ready, killed, stopped, started again on its folder."""

from __future__ import annotations

import json
import os
import resource
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx

from hatchway.engine.base.files import make_private_dir, write_private
from hatchway.engine.base.permissions import FIVE, MASTER
from hatchway.engine.keys.authorized_keys import AuthorizedKeys
from hatchway.engine.keys.keys import PrivateKey
from tests.support.checked_journal import check_journal
from tests.support.command import HATCHWAY as HATCHWAY
from tests.support.command import completed
from tests.support.fakes import ROOT, key, signed
from tests.support.forked import ForkedCommand, RunningCommand, can_fork

START_SECONDS = 60.0
"""How long a start may take on a busy machine."""


def prepare(home: Path) -> None:
    """An engine's folder with keys made once for all tests: `own` is the engine's, `one` may sign in with the five."""
    make_private_dir(home)
    if not (home / "private-key.pem").exists():
        keys = AuthorizedKeys(home / "authorized_keys")
        write_private(home / "private-key.pem", key("own").pem())
        keys.register(key("own").public, (MASTER,), "engine", own=True)
        keys.register(key().public, FIVE, "one")


def begin_engine(
    environ: dict[str, str], log_path: Path, port: int, preexec: Callable[[], None] | None = None, forked: bool = True
) -> RunningCommand:
    """`hatchway engine start`: forked, unless something is asked that only an interpreter of its own does."""
    arguments = ("engine", "start", "--port", str(port))
    with log_path.open("ab") as log, open(os.devnull, "rb") as nothing:
        if forked and preexec is None and can_fork(environ):
            return ForkedCommand(arguments, environ, ROOT, (nothing.fileno(), log.fileno(), log.fileno()))
        return subprocess.Popen(
            [*HATCHWAY, *arguments],
            env=environ,
            cwd=ROOT,
            stdin=nothing,
            stdout=log,
            stderr=log,
            preexec_fn=preexec,
        )


class EngineProcess:
    """`hatchway engine start` on one folder. `url` has no slash at its end."""

    forked = True

    def __init__(self, home: Path, **environ: str) -> None:
        self.home = home
        kept = {name: text for name, text in os.environ.items() if not name.startswith(("HATCHWAY_", "SSH_"))}
        # Tests sign in by one key more often than its owner does.
        many = {"HATCHWAY_LIMITS_SESSIONS_PER_IDENTITY": "1000000"}
        self.environ = kept | many | {"HATCHWAY_HOME": str(home), "TERM": "dumb"} | environ
        self.log_path = home.parent / f"{home.name}.log"
        self.url = ""
        self.port = 0
        self._process: RunningCommand | None = None

    @property
    def process(self) -> RunningCommand:
        assert self._process is not None, "not started"
        return self._process

    def start(self, port: int = 0, preexec: Callable[[], None] | None = None) -> EngineProcess:
        """Starts and waits until it answers; `preexec` runs in the child first, to set its limits."""
        self.begin(port, preexec)
        self.wait_ready()
        return self

    def begin(self, port: int = 0, preexec: Callable[[], None] | None = None, *, fresh: bool = False) -> None:
        """Starts, and waits for nothing. With `fresh` the folder is left to the engine's own first start."""
        if fresh:
            self.home.parent.mkdir(exist_ok=True)
        else:
            prepare(self.home)
        self._process = begin_engine(self.environ, self.log_path, port, preexec, self.forked)

    def wait_ready(self) -> None:
        """Until it answers; a test fails where it does not."""
        until = time.monotonic() + START_SECONDS
        while time.monotonic() < until and self.process.poll() is None:
            if self._ready():
                return
            time.sleep(0.02)
        self.kill()
        raise AssertionError(self.log())

    def _ready(self) -> bool:
        try:
            status = self.operator({"op": "status"})[-1]
            self.url, self.port = status["url"].rstrip("/"), int(status["url"].rstrip("/").rpartition(":")[2])
            return status["pid"] == self.process.pid and answers(self.url)
        except (OSError, httpx.TransportError, KeyError, IndexError):
            return False

    def operator(self, request: dict[str, Any]) -> list[dict[str, Any]]:
        """One request over the operator socket, and every line of its answer."""
        with self.operator_connection() as peer, peer.makefile("rb") as lines:
            peer.sendall(json.dumps(request).encode() + b"\n")
            peer.settimeout(60)
            return [json.loads(line) for line in lines]

    def operator_connection(self) -> socket.socket:
        """An open connection to the operator socket. A long path goes through its open folder, as unix(7) wants."""
        folder = os.open(self.home, os.O_RDONLY)
        peer = socket.socket(socket.AF_UNIX)
        try:
            peer.connect(f"/proc/self/fd/{folder}/operator.sock")
        except OSError:
            peer.close()
            raise
        finally:
            os.close(folder)
        return peer

    def command(self, *arguments: str, code: int = 0) -> str:
        """What a command prints on this folder; its exit code must be `code`."""
        done = completed(self.environ, *arguments)
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout

    def kill(self) -> None:
        """kill -9: nothing of it runs on."""
        self.process.kill()
        self.process.wait()

    def terminate(self, seconds: float = 20) -> float:
        """SIGTERM; returns the seconds until it had ended, which must be by itself and with exit code 0."""
        before = time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(seconds) == 0, self.log()
        return time.monotonic() - before

    def close(self) -> None:
        """The end of the test: whatever still runs does not, what it has written down is true, and no task of it has
        failed: one that did has begun anew, unseen by a test that looks elsewhere."""
        if self._process is not None:
            if self._process.poll() is None:
                self.kill()
            assert "task_failed" not in self.log(), self.log()
        check_journal(self.home)

    def log(self) -> str:
        """Everything it has written to standard output and standard error."""
        return self.log_path.read_text(errors="replace")

    def memory(self) -> int:
        """Bytes it holds resident now."""
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * resource.getpagesize()


class ExecutedEngine(EngineProcess):
    """An engine in an interpreter of its own, as users start it: for what it takes and shows from there."""

    forked = False


@contextmanager
def executed_engine(home: Path, **environ: str) -> Iterator[EngineProcess]:
    """A ready one, gone at the end."""
    engine = ExecutedEngine(home, **environ)
    try:
        yield engine.start()
    finally:
        engine.close()


@contextmanager
def running_engine(home: Path, port: int = 0, /, **environ: str) -> Iterator[EngineProcess]:
    """A ready engine process on `home`, gone at the end. A port that is wanted again later is a `free_port`."""
    engine = EngineProcess(home, **environ)
    try:
        yield engine.start(port)
    finally:
        engine.close()


@contextmanager
def tls_engine(home: Path) -> Iterator[EngineProcess]:
    """One with a self-made certificate, gone at the end."""
    engine = EngineProcess(home, HATCHWAY_TLS="auto")
    try:
        yield engine.start()
    finally:
        engine.close()


def answers(url: str) -> bool:
    """Whether the engine at this address is ready, whatever its certificate. Raises TransportError where nothing
    listens."""
    # A client that is to know certificates reads all authorities first, a tenth of what an engine takes to start.
    return httpx.get(f"{url}/readyz", verify=False).status_code == 200


def wait_answering(engine: RunningCommand, url: str, log: Path) -> None:
    """Until an engine that a test has started itself is ready; its log tells why it is not."""
    until = time.monotonic() + START_SECONDS
    while time.monotonic() < until and engine.poll() is None:
        with suppress(httpx.TransportError):
            if answers(url.rstrip("/")):
                return
        time.sleep(0.05)
    raise AssertionError(log.read_text())


def sign_in(client: httpx.Client, private: PrivateKey | None = None, **more: Any) -> dict[str, Any]:
    """A session by key over HTTP; `client` has the engine's url as its base."""
    nonce = client.get("/api/auth/challenge/").json()["nonce"]
    answer = client.post("/api/auth/verify/", json=signed(nonce, private or key()) | more)
    assert answer.status_code == 200, answer.text
    session: dict[str, Any] = answer.json()
    return session


def bearer(token: str) -> dict[str, str]:
    """The header that a token travels in."""
    return {"authorization": f"Bearer {token}"}


def inspect(client: httpx.Client, token: str) -> int:
    """The status of the token: 200, or 401."""
    return client.get("/api/auth/inspect/", headers=bearer(token)).status_code

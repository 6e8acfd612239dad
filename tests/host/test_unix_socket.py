"""The setting `listen`: an engine without a port, which answers HTTP to its own user on `http.sock`."""

from __future__ import annotations

import json
import os
import socket
import stat
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
import trio

from hatchway.api.client import AsyncClient, Client
from tests.support.fakes import key
from tests.support.processes import EngineProcess
from tests.support.waits import until

pytestmark = pytest.mark.process


class SocketEngine(EngineProcess):
    """One that is asked by its Unix socket whether it is ready."""

    def _ready(self) -> bool:
        try:
            status = self.operator({"op": "status"})[-1]
            return bool(status["pid"] == self.process.pid and self.get("/readyz").status_code == 200)
        except (OSError, httpx.TransportError, KeyError, IndexError):
            return False

    @property
    def socket(self) -> Path:
        return self.home / "http.sock"

    def get(self, path: str, host: str = "localhost") -> httpx.Response:
        """What the Unix socket answers to that Host."""
        with httpx.Client(transport=httpx.HTTPTransport(uds=str(self.socket))) as client:
            return client.get(f"http://localhost{path}", headers={"Host": host})


def listening_ports(pid: int) -> list[str]:
    """The TCP sockets that a process listens on."""
    inodes = {os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd")}
    rows = [row.split() for name in ("tcp", "tcp6") for row in Path(f"/proc/{pid}/net/{name}").read_text().splitlines()]
    return [row[1] for row in rows if row[3] == "0A" and f"socket:[{row[9]}]" in inodes]


@pytest.mark.parametrize("workers", ["1", "2"])
def test_an_engine_without_a_port(home: Path, workers: str) -> None:
    """It listens on no port; `http.sock` is 0600, goes with the engine, and commands and clients of the host use it."""
    engine = SocketEngine(home, HATCHWAY_LISTEN="unix", HATCHWAY_WORKERS=workers)
    try:
        engine.start()
        assert listening_ports(engine.process.pid) == []
        assert stat.S_IMODE(engine.socket.stat().st_mode) == 0o600
        told = json.loads(engine.command("engine", "status", "--json"))
        assert (told["url"], told["listening"], told["socket"]) == (None, [], str(engine.socket))
        assert "http://localhost answered" in engine.command("engine", "ping")
        assert "MASTER" in engine.command("session", "list")
        with Client("http://localhost", key=key().pem(), socket=engine.socket) as client:
            client.sign_in()
            assert client.inspect().method == "key"
        trio.run(asked_by_key, engine.socket)
        engine.terminate()
        assert not engine.socket.exists()
        engine.command("engine", "ping", code=1)
    finally:
        engine.close()


async def asked_by_key(path: Path) -> None:
    """The async client does the same."""
    async with AsyncClient("http://localhost", key=key().pem(), socket=path) as client:
        await client.sign_in()
        assert (await client.inspect()).method == "key"


@pytest.mark.parametrize("workers", ["1", "2"])
def test_added_addresses_count_in_every_process(home: Path, workers: str) -> None:
    """By the commands, for Unix socket and port alike, in workers too; a killed holder holds nothing."""
    engine = SocketEngine(home, HATCHWAY_LISTEN="both", HATCHWAY_WORKERS=workers)
    near = "127.0.0.1:53117"
    try:
        engine.start()
        port = json.loads(engine.command("engine", "status", "--json"))["url"].rstrip("/").rpartition(":")[2]

        def statuses() -> set[int]:
            by_port = {
                httpx.get(f"http://127.0.0.1:{port}/healthz", headers={"Host": near}).status_code for _ in range(8)
            }
            return by_port | {engine.get("/healthz", near).status_code for _ in range(8)}

        assert statuses() == {421}
        assert "counts for 8h" in engine.command("engine", "address", "add", near, "--for", "8h")
        assert statuses() == {200}
        assert near in engine.command("engine", "address", "list")
        engine.command("engine", "address", "remove", near)
        assert statuses() == {421}
        with engine.operator_connection() as peer:
            peer.sendall(json.dumps({"op": "hold_address", "address": near}).encode() + b"\n")
            assert json.loads(peer.makefile("rb").readline())["ok"]
            assert statuses() == {200}
        until(lambda: statuses() == {421}, what="the address to go with its holder")
    finally:
        engine.close()


def test_a_killed_engine_leaves_a_socket_that_the_next_one_takes(home: Path) -> None:
    """What is left in the folder keeps nobody from starting."""
    engine = SocketEngine(home, HATCHWAY_LISTEN="unix")
    try:
        engine.start()
        engine.kill()
        assert engine.socket.exists()
        engine.start()
    finally:
        engine.close()


def test_a_path_of_any_length(tmp_path: Path) -> None:
    """A folder whose path is longer than a socket's may be."""
    home = tmp_path / ("long" * 20) / ("longer" * 10) / "hatchway"
    home.parent.mkdir(parents=True)
    engine = EngineProcess(home, HATCHWAY_LISTEN="both")
    try:
        engine.start()
        assert "answered" in engine.command("engine", "ping")
    finally:
        engine.close()


def test_a_path_of_any_bytes(tmp_path: Path) -> None:
    """A folder whose path is not UTF-8: the commands find the engine, and systemd hears of it."""
    engine = SocketEngine(tmp_path / os.fsdecode(b"h-\xff"), HATCHWAY_LISTEN="unix", NOTIFY_SOCKET=str(tmp_path / "n"))
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
            manager.bind(str(tmp_path / "n"))
            engine.start()
            assert f"Serving {tmp_path}/h-?/http.sock".encode() in manager.recv(4096)
        assert json.loads(engine.command("engine", "status", "--json"))["socket"] == str(engine.socket)
        assert "answered" in engine.command("engine", "ping")
        assert engine.command("engine", "stop") == "stopped\n"
    finally:
        engine.close()


def test_the_socket_answers_plain_http_where_the_port_has_tls(home: Path) -> None:
    """No network lies between; the host's own commands go by the socket."""
    engine = SocketEngine(home, HATCHWAY_LISTEN="both", HATCHWAY_TLS="auto")
    try:
        engine.start()
        assert engine.get("/healthz").status_code == 200
        assert "https://127.0.0.1" in engine.command("engine", "ping")
    finally:
        engine.close()


PROBE = """
import os, socket, sys
os.chdir(sys.argv[1])  # as root: as if every parent were open
os.setgroups([]); os.setgid(65534); os.setuid(65534)
try:
    with socket.socket(socket.AF_UNIX) as peer:
        peer.connect("http.sock")
        peer.sendall(b"GET /healthz HTTP/1.1\\r\\nHost: localhost\\r\\n\\r\\n")
        print(peer.recv(100) or "closed")
except OSError as error:
    print(type(error).__name__)
"""


def asked_by_nobody(folder: Path) -> str:
    """What another user's request to the socket in this folder comes to."""
    ran = subprocess.run([sys.executable, "-c", PROBE, folder], capture_output=True, text=True, check=True)
    return ran.stdout.strip()


def test_another_user_can_not_connect(tmp_path: Path) -> None:
    """Not by the path; and where folder and socket were opened to all, the peer's user is looked at."""
    home = tmp_path / "hatchway"
    engine = SocketEngine(home, HATCHWAY_LISTEN="unix")
    try:
        engine.start()
        if os.geteuid() == 0:  # root can stand in for anybody; who isn't can't be anybody else
            assert asked_by_nobody(home) == "PermissionError"
            home.chmod(0o755)
            engine.socket.chmod(0o666)
            assert asked_by_nobody(home) in ("closed", "ConnectionResetError", "BrokenPipeError")
        with socket.socket(socket.AF_UNIX) as own:
            own.connect(str(engine.socket))
            own.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert own.recv(100).startswith(b"HTTP/1.1 200")
    finally:
        engine.close()

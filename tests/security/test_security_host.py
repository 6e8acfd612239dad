"""The process and its host: size and slowness by raw socket, other users, other addresses, modes of files."""

from __future__ import annotations

import os
import signal
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

import httpx
import pytest

from tests.support.fakes import ROOT
from tests.support.hostile_requests import exchange, parse, request
from tests.support.processes import HATCHWAY, EngineProcess, prepare, running_engine, sign_in
from tests.support.real_pairings import PAIR, Console, logged, operator_at
from tests.support.timing import kept

pytestmark = pytest.mark.process

SLOW = {"HEADER_SECONDS": "1", "BODY_SECONDS": "1", "IDLE_SECONDS": "2", "WRITE_SECONDS": "1"}
MIB = 1024 * 1024


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EngineProcess]:
    """Whose deadlines are short, so that the tests are."""
    home = tmp_path_factory.mktemp("host") / "home"
    with running_engine(home, **{f"HATCHWAY_LIMITS_{name}": value for name, value in SLOW.items()}) as running:
        yield running


def held(engine: EngineProcess, data: bytes) -> tuple[float, int]:
    """Seconds until the engine ends a connection that says this and no more, and the status it gave, if any."""
    with socket.create_connection(("127.0.0.1", engine.port), timeout=20) as peer:
        before = time.monotonic()
        peer.sendall(data)
        received = b""
        with suppress(ConnectionResetError):
            while chunk := peer.recv(65536):
                received += chunk
        return time.monotonic() - before, parse(received).status


@pytest.mark.parametrize(
    ("data", "seconds", "status"),
    [
        (b"", 2, 0),
        (b"GET / HT", 1, 408),
        (b"GET / HTTP/1.1\r\nHost: 127.0.0.1:PORT\r\nX: ", 1, 408),
        (b"POST /api/auth/verify/ HTTP/1.1\r\nHost: 127.0.0.1:PORT\r\nContent-Length: 9\r\n\r\n{", 1, 408),
    ],
    ids=["nothing", "half a line", "half a head", "half a body"],
)
def test_who_is_slow(engine: EngineProcess, data: bytes, seconds: float, status: int) -> None:
    """D29, N6: closed at its own deadline (here a second or two; ten, fifteen and sixty as delivered), with 408."""
    took, told = held(engine, data.replace(b"PORT", b"%d" % engine.port))
    assert seconds - 0.2 < took < seconds + 8  # as delivered it would be at least that much later
    assert told == status


def sign_in_time(client: httpx.Client) -> float:
    before = time.monotonic()
    sign_in(client)
    return time.monotonic() - before


def test_slow_ones_hold_up_nobody(engine: EngineProcess) -> None:
    """D29: with 200 of each kind hanging, a sign-in takes less than two seconds."""
    starts = [
        b"",
        b"GET / HT",
        f"POST {PAIR} HTTP/1.1\r\nHost: 127.0.0.1:{engine.port}\r\nContent-Length: 9\r\n\r\n".encode(),
    ]
    peers = [socket.create_connection(("127.0.0.1", engine.port)) for _ in range(200) for _ in starts]
    try:
        for number, peer in enumerate(peers):
            with suppress(OSError):
                peer.sendall(starts[number % 3])
        with httpx.Client(base_url=engine.url) as client:
            kept(2, partial(sign_in_time, client))
    finally:
        for peer in peers:
            peer.close()


def test_64_mib_are_cut_early(engine: EngineProcess) -> None:
    """D8: told or chunked, a body over the limit is refused while it comes, and no memory goes into it."""
    exchange(engine.port, request("GET", "/", port=engine.port))
    before = engine.memory()
    head = f"POST {PAIR} HTTP/1.1\r\nHost: 127.0.0.1:{engine.port}\r\nContent-Type: application/json\r\n"
    for framing in (f"Content-Length: {64 * MIB}\r\n\r\n", "Transfer-Encoding: chunked\r\n\r\n" + f"{64 * MIB:x}\r\n"):
        began = time.monotonic()
        answer = exchange(engine.port, (head + framing).encode() + bytes(64 * MIB))
        assert time.monotonic() - began < 15
        assert answer.status in (0, 413)  # a reset can overtake the answer while bytes are still on their way
    assert engine.memory() - before < 5 * MIB
    assert exchange(engine.port, (head + f"Content-Length: {64 * MIB}\r\n\r\n").encode()).status == 413


def test_a_header_block_of_a_megabyte(engine: EngineProcess) -> None:
    """D8: 20 KiB and a megabyte of headers, in one line or in many, are 431 or the connection's end; nothing grows."""
    before = engine.memory()
    for block in (b"X: " + b"a" * 20_480, b"X: " + b"a" * MIB, b"\r\n".join(b"X%d: a" % n for n in range(100_000))):
        head = b"GET / HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n" % engine.port
        assert exchange(engine.port, head + block + b"\r\n\r\n").status in (0, 431)
    assert engine.memory() - before < 5 * MIB


def test_a_claim_that_is_cut_off(engine: EngineProcess) -> None:
    """D29, F3: a reset instead of an end is a hang-up too; the terminal is told at once."""

    def told() -> float:
        with operator_at(engine) as operator:
            console = Console(engine, operator.code)
            operator.wait("claimed")
            console.reset()
            began = time.monotonic()
            operator.wait("left")
            return time.monotonic() - began

    kept(2, told)


def test_another_user_gets_nowhere(engine: EngineProcess) -> None:
    """D35, F1: no file, socket or command of the engine's folder is another Unix user's, even past its parents."""
    assert engine.home.stat().st_mode & 0o077 == 0, "nobody else gets through the folder itself"
    with operator_at(engine) as operator:
        if os.geteuid() == 0:  # root can stand in for anybody; who isn't can't be anybody else
            for path in ("operator.sock", "private-key.pem", "authorized_keys", "engine.db"):
                assert _as_nobody(engine.home, path) == "PermissionError"
        assert claim_is_unharmed(engine, operator.code)


PROBE = """
import os, socket, sys
os.chdir(sys.argv[1])  # as root: as if every parent were open
os.setgroups([]); os.setgid(65534); os.setuid(65534)
try:
    if sys.argv[2].endswith(".sock"):
        socket.socket(socket.AF_UNIX).connect(sys.argv[2])
    else:
        open(sys.argv[2], "rb")
except OSError as error:
    print(type(error).__name__)
"""


def _as_nobody(folder: Path, name: str) -> str:
    """What `nobody` meets on a file of the folder."""
    ran = subprocess.run([sys.executable, "-c", PROBE, folder, name], capture_output=True, text=True, check=True)
    return ran.stdout.strip()


def claim_is_unharmed(engine: EngineProcess, code: str) -> bool:
    """Whether a code can still be claimed."""
    console = Console(engine, code)
    console.close()
    return console.status == 200


def test_it_listens_on_loopback_alone(tmp_path: Path, engine: EngineProcess) -> None:
    """D37, N1: by default nobody on the network reaches it; another address wants TLS or the word, and says so."""
    table = Path(f"/proc/{engine.process.pid}/net/tcp").read_text().splitlines()[1:]
    ours = [
        row.split()[1] for row in table if row.split()[1].endswith(f":{engine.port:04X}") and row.split()[3] == "0A"
    ]
    assert ours == [f"0100007F:{engine.port:04X}"]
    prepare(tmp_path / "home")
    environ = engine.environ | {"HATCHWAY_HOME": str(tmp_path / "home")}
    words = [*HATCHWAY, "engine", "start", "--port", "0", "--host", "0.0.0.0"]
    ran = subprocess.run(words, env=environ, cwd=ROOT, capture_output=True, text=True, timeout=30, check=False)
    assert ran.returncode in (1, 2)
    assert "--insecure-http" in ran.stderr


@pytest.mark.parametrize("name", ["private-key.pem", "authorized_keys", "token-key.pem", "engine.db", "."])
def test_a_folder_others_may_read_starts_nothing(tmp_path: Path, name: str) -> None:
    """D34, F1: a wider mode on any of them stops the start, with the command that mends it."""
    home = tmp_path / "home"
    with running_engine(home) as engine:
        engine.terminate()
    path = home / name
    path.chmod(path.stat().st_mode | 0o040)
    ran = subprocess.run(
        [*HATCHWAY, "engine", "start", "--port", "0"],
        env=engine.environ,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
        cwd=ROOT,
    )
    assert ran.returncode == 1
    assert "chmod" in ran.stderr
    assert "Traceback" not in ran.stderr


def _no_umask() -> None:
    os.umask(0)


def test_everything_is_private_under_any_umask(tmp_path: Path) -> None:
    """D34: first start with umask 000: the folder 0700, every file and the socket 0600, the database's own too."""
    home = tmp_path / "home"
    engine = EngineProcess(home)
    try:
        engine.start(preexec=_no_umask)
        with httpx.Client(base_url=engine.url) as client:
            sign_in(client)
        modes = {path.relative_to(home): path.stat().st_mode & 0o777 for path in [home, *home.rglob("*")]}
        assert {str(path) for path in modes} >= {"engine.db", "engine.db-wal", "operator.sock", "log/events.jsonl"}
        for path, mode in modes.items():
            assert mode == (0o700 if (home / path).is_dir() else 0o600), path
    finally:
        engine.close()


def test_a_flood_of_challenges(engine: EngineProcess) -> None:
    """D7, C3: twenty thousand for as many identities, pipelined: they leave nothing behind, and sign-ins go on."""
    exchange(engine.port, request("GET", "/", port=engine.port))
    before, took = engine.memory(), list[float]()
    with httpx.Client(base_url=engine.url) as client:
        for batch in range(40):
            data = b"".join(
                request("GET", f"/api/auth/challenge/?identity=SHA256:{batch}x{n}", port=engine.port, close=n == 499)
                for n in range(500)
            )
            with socket.create_connection(("127.0.0.1", engine.port), timeout=20) as peer:
                peer.sendall(data[: len(data) // 2])
                if batch % 10 == 0:
                    took.append(sign_in_time(client))
                peer.sendall(data[len(data) // 2 :])
                received = b"".join(iter(lambda peer=peer: peer.recv(1 << 20), b""))  # type: ignore[misc]
            assert received.count(b"HTTP/1.1 200 ") == 500
        sign_in(client)
    assert statistics.median(took) < 2
    assert engine.memory() - before < 20 * MIB


@pytest.mark.parametrize("harm", ["open to others", "a folder", "a pipe"])
def test_a_file_that_turns_bad_is_told_to_the_operator_alone(tmp_path: Path, harm: str) -> None:
    """F1: authorized_keys gone bad while the engine runs is a 503 without a path, at once; mended, all is as before."""
    with running_engine(tmp_path / "home") as engine, httpx.Client(base_url=engine.url) as client:
        client.headers["Authorization"] = f"Bearer {sign_in(client)['token']}"
        path = engine.home / "authorized_keys"
        kept = path.read_bytes()
        if harm == "open to others":
            path.chmod(0o644)
        else:
            path.unlink()
            path.mkdir() if harm == "a folder" else os.mkfifo(path, 0o600)
        answer = client.get("/api/auth/inspect/")
        assert (answer.status_code, answer.json()["code"]) == (503, "file_refused")
        assert str(tmp_path) not in answer.text
        assert logged(engine, str(path))
        if harm != "open to others":
            path.rmdir() if harm == "a folder" else path.unlink()
            path.write_bytes(kept)
        path.chmod(0o600)
        assert client.get("/api/auth/inspect/").status_code == 200
        assert "Traceback" not in engine.log()


@pytest.mark.parametrize(
    "text", ["[[[", "port = " + "9" * 6000, "port = " + "[" * 3000, "limits = 3", "log.level = 'loud'"]
)
def test_settings_that_are_none_change_nothing(tmp_path: Path, text: str) -> None:
    """A reload by signal or socket of a config.toml that can't be read is refused in words, and the engine runs on."""
    with running_engine(tmp_path / "home") as engine:
        (engine.home / "config.toml").write_text(text)
        (engine.home / "config.toml").chmod(0o600)
        assert engine.operator({"op": "reload"})[-1]["error"]["code"] == "setting_refused"
        engine.process.send_signal(signal.SIGHUP)
        assert logged(engine, "reload_refused")
        assert httpx.get(f"{engine.url}/readyz").status_code == 200
        assert "Traceback" not in engine.log()


def test_a_reload_is_all_or_nothing(tmp_path: Path) -> None:
    """A damaged key file stops a reload before its settings count, and no token dies of it."""
    with running_engine(tmp_path / "home") as engine, httpx.Client(base_url=engine.url) as client:
        client.headers["Authorization"] = f"Bearer {sign_in(client)['token']}"
        engine.command("config", "set", "limits.failed_verifies", "1")
        path = engine.home / "token-key.pem"
        kept = path.read_bytes()
        path.write_bytes(b"junk")
        assert engine.operator({"op": "reload"})[-1]["error"]["code"] == "key_refused"
        bad = {"nonce": "a", "signature": "AAAA"}
        assert [client.post("/api/auth/verify/", json=bad).status_code for _ in range(3)] == [401] * 3
        assert client.get("/api/auth/inspect/").status_code == 200
        path.write_bytes(kept)
        assert engine.operator({"op": "reload"})[-1]["ok"] is True
        assert client.post("/api/auth/verify/", json=bad).status_code == 429

"""Sign-ins and inspections of this tree beside an earlier commit's: `python -m tests.bench.before COMMIT`.

Both engines run at once, durable, and are asked by turns by one client, each answer awaited. What counts is the CPU
time of all threads of each: a machine that others use too changes it little, and both alike.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import Any

from hatchway.engine.base.permissions import FIVE
from hatchway.engine.keys.authorized_keys import AuthorizedKeys
from hatchway.engine.keys.keys import PrivateKey, generate_key
from tests.bench.endpoints import ask, challenge, solved_by
from tests.bench.load import Reply, parse, request
from tests.bench.noise import noise
from tests.bench.results import at
from tests.bench.servers import CLIENT_CORE, SERVER_CORE, Server, pin, wait_open
from tests.bench.streams import hold, yes_to_token
from tests.support.fakes import ROOT, signed
from tests.support.fakes import key as key_of
from tests.support.key_data import line_of
from tests.support.ports import free_port
from tests.support.processes import prepare

MOST = 1.03
"""How much more than the earlier commit's a request may cost."""

WARM = 60
"""Sign-ins before anything counts; as many live sessions are no identity's limit."""

HELD = 400
"""Event streams that are held at once, to see what one takes."""

KINDS = {"": {}, " through Quart": {"HATCHWAY_LANE": "false"}, " at a worker": {"HATCHWAY_WORKERS": "2"}}
"""What is in the name of a figure, and how the engine is told to run."""


class Asked:
    """One tree's engine, and a connection to it."""

    def __init__(self, server: Server, home: Path, key: PrivateKey) -> None:
        self.server, self._home, self._key = server, home, key
        self._socket = socket.create_connection(("127.0.0.1", server.port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.took: dict[str, list[float]] = {}
        self._ends = [self.sign_in() for _ in range(WARM)]
        self._log_out()
        self._token = self.sign_in()

    def sign_in(self) -> str:
        """Challenge and verify; the token's header."""
        nonce = json.loads(self._ask("GET", challenge(self._key)).body)["nonce"]
        body = signed(nonce, self._key, "RS256")
        return f"Bearer {json.loads(self._ask('POST', '/api/auth/verify/', body).body)['token']}"

    def inspect(self, token: str) -> None:
        """One inspection."""
        self._ask("GET", "/api/auth/inspect/", token=token)

    def close(self) -> None:
        """Hang up."""
        self._socket.close()

    def turn(self, times: int) -> None:
        """So many of each, one after another. A session's first inspection is what a worker has to ask the engine."""
        self._count("sign-in", times, lambda: self._ends.append(self.sign_in()))
        fresh = iter(list(self._ends))
        self._count("first inspect", times, lambda: self.inspect(next(fresh)))
        self._count("inspect", times * 5, lambda: self.inspect(self._token))
        self._count("pairing", max(times // 4, 1), lambda: yes_to_token(self.server, self._home, []))
        self._log_out()

    def _count(self, name: str, times: int, ask: Callable[[], object]) -> None:
        before = cpu(self.server)
        for _ in range(times):
            ask()
        self.took.setdefault(name, []).append((cpu(self.server) - before) / times)

    def _log_out(self) -> None:
        for token in self._ends:
            self._ask("POST", "/api/auth/logout/", token=token)
        self._ends = []

    def _ask(self, method: str, path: str, body: Any = None, token: str | None = None) -> Reply:
        self._socket.sendall(request(method, path, self.server.port, body, token))
        data = b""
        while (reply := parse(data)) is None:
            data += self._socket.recv(65536)
        if reply.status >= 300:
            raise RuntimeError(f"{method} {path}: {reply.status} {reply.body!r}")
        return reply


def held_stream(server: Server) -> float:
    """Bytes that one event stream takes while it is held."""
    token = f"Bearer {ask(server, 'POST', '/api/auth/verify/', solved_by(server, key_of('own')))['token']}"
    before, held = server.memory(), hold(server, token, HELD)
    time.sleep(0.5)
    took = (server.memory() - before) / HELD
    for sock in held:
        sock.close()
    return took


def cpu(server: Server) -> float:
    """CPU seconds of all its processes, to the microsecond; a pause lets them come to rest first."""
    time.sleep(0.03)
    # clock_getcpuclockid(3): the clock of another process, with what threads used that have ended.
    return sum(time.clock_gettime(~pid << 3 | 2) for pid in server.family())


@contextmanager
def earlier(commit: str) -> Iterator[Path]:
    """That commit's tree in a folder of its own, until left."""
    folder = Path(tempfile.mkdtemp())
    try:
        archive = subprocess.run(["git", "archive", commit], cwd=ROOT, capture_output=True, check=True).stdout
        subprocess.run(["tar", "-x", "-C", folder], input=archive, check=True)
        packages = folder / ".packages" / "hatchway"
        for name in ("api", "engine", "statecharts") if packages.is_dir() else ():
            (packages / name).symlink_to(folder / name)  # what an editable install has
        yield folder
    finally:
        shutil.rmtree(folder)


@contextmanager
def engine_of(tree: Path, home: Path, key: PrivateKey, others: int = 0, **environ: str) -> Iterator[Server]:
    """An engine of a tree, by this interpreter and its libraries, until left. It authorizes `others` keys too."""
    prepare(home)
    authorized = AuthorizedKeys(home / "authorized_keys")
    authorized.register(key.public, FIVE, "bench")
    lines = "".join(f"{line_of(number)}\n" for number in range(others))
    authorized.edit(lambda data: (data + lines.encode(), None))
    packaged, port = (tree / ".packages").is_dir(), free_port()  # before that folder, packages stood at the root
    program = f"from {'hatchway.' if packaged else ''}api.cli import main; main()"
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HATCHWAY_")}
    process = subprocess.Popen(
        [sys.executable, "-c", program, "engine", "start", "--port", str(port)],
        cwd=tree,
        env=kept | environ | {"HATCHWAY_HOME": str(home), "PYTHONPATH": str(tree / ".packages" if packaged else tree)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        preexec_fn=lambda: pin(SERVER_CORE),
    )
    try:
        wait_open(process, port)
        yield Server(process, port)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(20)


def beside(tree: Path, rounds: int, times: int, keys: int = 0, **environ: str) -> dict[str, list[float]]:
    """The CPU time of this tree's engine over that of another tree's, round by round."""
    key = generate_key(3072)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        both = []
        for name, root in {"before": tree, "now": ROOT}.items():
            server = stack.enter_context(engine_of(root, folder / name, key, keys, **environ))
            both.append(Asked(server, folder / name, key))
            stack.callback(both[-1].close)
        for number in range(rounds):
            for asked in both if number % 2 else reversed(both):
                asked.turn(times)
    return _ratios(*(asked.took for asked in both))


def starts(tree: Path, rounds: int) -> dict[str, list[float]]:
    """The same of an engine's start, of its memory then, and of what a held event stream takes."""
    key = generate_key(3072)
    both: list[dict[str, list[float]]] = [{}, {}]
    for number in range(rounds):
        for took, root in [(both[0], tree), (both[1], ROOT)][:: 1 if number % 2 else -1]:
            with tempfile.TemporaryDirectory() as folder, engine_of(root, Path(folder) / "home", key) as server:
                took.setdefault("start", []).append(cpu(server))
                took.setdefault("memory, idle", []).append(server.memory())
                took.setdefault("memory of a held stream", []).append(held_stream(server))
    return _ratios(*both)


def _ratios(before: dict[str, list[float]], now: dict[str, list[float]]) -> dict[str, list[float]]:
    return {name: [mine / other for mine, other in zip(now[name], before[name], strict=True)] for name in now}


def main() -> int:
    """Exit code 1 where something costs more than `--most` times what it did, as far as the rounds tell."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.before", description=__doc__)
    parser.add_argument("commit", help="what git calls it: HEAD~1, a tag, a hash")
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument(
        "--times", type=int, default=40, help="sign-ins a round; there are five times as many inspections"
    )
    parser.add_argument("--keys", type=int, default=0, help="other keys that both engines authorize")
    parser.add_argument("--most", type=float, default=MOST, help="times what it cost that a thing may cost")
    parser.add_argument(
        "--whole", action="store_true", help="through Quart and workers too, and starts, memory, held streams"
    )
    asked = parser.parse_args()
    pin(CLIENT_CORE)
    over, found = False, dict[str, list[float]]()
    with earlier(asked.commit) as tree:
        for kind, environ in KINDS.items() if asked.whole else [("", {})]:
            of_kind = beside(tree, asked.rounds, asked.times, asked.keys, **environ)
            found |= {f"{name}{kind}": ratios for name, ratios in of_kind.items()}
        if asked.whole:
            found |= starts(tree, max(asked.rounds // 8, 4))
    for name, ratios in found.items():
        low, high = at(0.25, ratios), at(0.75, ratios)
        over |= low > asked.most
        print(f"{name}: {median(ratios):.3f} times what it cost (half of the rounds: {low:.3f} to {high:.3f})")
    print(f"noise of this machine: work took {noise()['waited']:.0%} longer than its CPU time")
    return 1 if over else 0


if __name__ == "__main__":
    sys.exit(main())

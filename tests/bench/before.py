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
from tests.bench.endpoints import challenge
from tests.bench.load import Reply, parse, request
from tests.bench.noise import noise
from tests.bench.results import at
from tests.bench.servers import CLIENT_CORE, SERVER_CORE, Server, pin, wait_open
from tests.support.fakes import ROOT, signed
from tests.support.key_data import line_of
from tests.support.ports import free_port
from tests.support.processes import prepare

MOST = 1.03
"""How much more than the earlier commit's a request may cost."""

WARM = 60
"""Sign-ins before anything counts; as many live sessions are no identity's limit."""


class Asked:
    """One tree's engine, and a connection to it."""

    def __init__(self, server: Server, key: PrivateKey) -> None:
        self.server, self._key = server, key
        self._socket = socket.create_connection(("127.0.0.1", server.port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.took: dict[str, list[float]] = {"sign-in": [], "inspect": []}
        self._ends = [self.sign_in() for _ in range(WARM)]
        self._log_out()
        self._token = self.sign_in()

    def sign_in(self) -> str:
        """Challenge and verify; the token's header."""
        nonce = json.loads(self._ask("GET", challenge(self._key)).body)["nonce"]
        body = signed(nonce, self._key, "RS256")
        return f"Bearer {json.loads(self._ask('POST', '/api/auth/verify/', body).body)['token']}"

    def close(self) -> None:
        """Hang up."""
        self._socket.close()

    def turn(self, times: int) -> None:
        """So many of each, one after another."""
        self._count("sign-in", times, lambda: self._ends.append(self.sign_in()))
        self._count("inspect", times * 5, lambda: self._ask("GET", "/api/auth/inspect/", token=self._token))
        self._log_out()

    def _count(self, name: str, times: int, ask: Callable[[], object]) -> None:
        before = self._cpu()
        for _ in range(times):
            ask()
        self.took[name].append((self._cpu() - before) / times)

    def _log_out(self) -> None:
        for token in self._ends:
            self._ask("POST", "/api/auth/logout/", token=token)
        self._ends = []

    def _cpu(self) -> float:
        """CPU seconds of all threads, to the microsecond; a pause lets them come to rest first."""
        time.sleep(0.03)
        tasks = Path(f"/proc/{self.server.process.pid}/task").iterdir()
        return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9

    def _ask(self, method: str, path: str, body: Any = None, token: str | None = None) -> Reply:
        self._socket.sendall(request(method, path, self.server.port, body, token))
        data = b""
        while (reply := parse(data)) is None:
            data += self._socket.recv(65536)
        if reply.status >= 300:
            raise RuntimeError(f"{method} {path}: {reply.status} {reply.body!r}")
        return reply


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
def engine_of(tree: Path, home: Path, key: PrivateKey, others: int) -> Iterator[Server]:
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
        env=kept | {"HATCHWAY_HOME": str(home), "PYTHONPATH": str(tree / ".packages" if packaged else tree)},
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


def beside(tree: Path, rounds: int, times: int, keys: int = 0) -> dict[str, list[float]]:
    """The CPU time of this tree's engine over that of another tree's, round by round."""
    key = generate_key(3072)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        trees = {"before": tree, "now": ROOT}
        both = []
        for name, root in trees.items():
            both.append(Asked(stack.enter_context(engine_of(root, folder / name, key, keys)), key))
            stack.callback(both[-1].close)
        for number in range(rounds):
            for asked in both if number % 2 else reversed(both):
                asked.turn(times)
    before, now = (asked.took for asked in both)
    return {name: [mine / other for mine, other in zip(now[name], before[name], strict=True)] for name in now}


def main() -> int:
    """Exit code 1 where something costs more than MOST times what it did, as far as the rounds tell."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.before", description=__doc__)
    parser.add_argument("commit", help="what git calls it: HEAD~1, a tag, a hash")
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument(
        "--times", type=int, default=40, help="sign-ins a round; there are five times as many inspections"
    )
    parser.add_argument("--keys", type=int, default=0, help="other keys that both engines authorize")
    asked = parser.parse_args()
    pin(CLIENT_CORE)
    over = False
    with earlier(asked.commit) as tree:
        found = beside(tree, asked.rounds, asked.times, asked.keys)
    for name, ratios in found.items():
        low, high = at(0.25, ratios), at(0.75, ratios)
        over |= low > MOST
        print(f"{name}: {median(ratios):.3f} times what it cost (half of the rounds: {low:.3f} to {high:.3f})")
    print(f"noise of this machine: work took {noise()['waited']:.0%} longer than its CPU time")
    return 1 if over else 0


if __name__ == "__main__":
    sys.exit(main())

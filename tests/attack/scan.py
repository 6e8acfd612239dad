"""An engine with many keys, one client that inspects, one that signs in each second; alone, then beside attacks."""

from __future__ import annotations

import gc
import itertools
import json
import math
import os
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import httpx
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from tests.bench.servers import CLIENT_CORE, SERVER_CORE
from tests.support.fakes import ROOT, key, signed
from tests.support.processes import EngineProcess, bearer, prepare, sign_in

KEYS = 400
SOCKETS = 12_000
"""Open files that the attackers need."""

MIB = 1024 * 1024


class Figures(NamedTuple):
    """What the two clients met: milliseconds at the 99th percentile, answers that failed, and the engine's memory."""

    inspect: float
    sign_in: float
    answers: int
    failed: int
    memory: int


class Scan(NamedTuple):
    """Without attacks and beside them; and how many records of before could not be read afterwards."""

    idle: Figures
    attacked: Figures
    lost: int

    def broken(self) -> list[str]:
        """The promises that did not hold, in words."""
        idle, attacked = self.idle, self.attacked
        more = (attacked.memory - idle.memory) / MIB
        found = {
            f"inspect took {attacked.inspect:.1f} ms, and {idle.inspect:.1f} without": attacked.inspect
            > 3 * idle.inspect,
            f"a sign-in took {attacked.sign_in:.1f} ms, and {idle.sign_in:.1f} without": attacked.sign_in
            > 3 * idle.sign_in,
            f"{more:.0f} MiB more": more > 40,
            f"{attacked.failed} answers were none": attacked.failed > 0,
            f"{self.lost} records of before were lost": self.lost > 0,
        }
        return [words for words, broken in found.items() if broken]


@contextmanager
def engine_with_keys(home: Path) -> Iterator[EngineProcess]:
    """An engine over TLS on the first core, whose `authorized_keys` holds 400 keys of one size."""
    prepare(home)
    with (home / "authorized_keys").open("a") as file:
        file.writelines(f'permissions="SHELL:READ" {line} user{n}\n' for n, line in enumerate(many_keys(KEYS)))
    engine = EngineProcess(home, HATCHWAY_TLS="auto")
    try:
        yield engine.start(preexec=lambda: os.sched_setaffinity(0, {SERVER_CORE}))
    finally:
        engine.close()


def many_keys(count: int) -> Iterator[str]:
    """Public keys in OpenSSH's form, of few primes: making each of its own would take minutes."""
    primes: list[int] = []
    while len(primes) * (len(primes) - 1) // 2 < count + 50:
        made = rsa.generate_private_key(65537, 2048).private_numbers()
        primes += [made.p, made.q]
    moduli = (p * q for p, q in itertools.combinations(primes, 2) if (p * q).bit_length() == 2048)
    for modulus in itertools.islice(moduli, count):
        public = rsa.RSAPublicNumbers(65537, modulus).public_key()
        yield public.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()


def measure(engine: EngineProcess, token: str, seconds: float) -> Figures:
    """What two clients meet for so long."""
    over = threading.Event()
    took: dict[str, list[float]] = {"inspect": [], "sign_in": []}
    failed: list[str] = []
    memory = [engine.memory()]

    def repeat(name: str, rest: float) -> None:
        with httpx.Client(base_url=engine.url, verify=False, timeout=30) as client:
            while not over.is_set():
                began = time.perf_counter()
                try:
                    if name == "inspect":
                        assert client.get("/api/auth/inspect/", headers=bearer(token)).status_code == 200
                    else:
                        named_sign_in(client)
                except (httpx.TransportError, AssertionError, KeyError) as error:
                    failed.append(f"{name}: {error}")
                took[name].append(time.perf_counter() - began)
                over.wait(rest)

    threads = [threading.Thread(target=repeat, args=row) for row in (("inspect", 0.005), ("sign_in", 1.0))]
    for thread in threads:
        thread.start()
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        time.sleep(0.25)
        memory.append(engine.memory())
    over.set()
    for thread in threads:
        thread.join()
    answers = len(took["inspect"]) + len(took["sign_in"])
    return Figures(p99(took["inspect"]), p99(took["sign_in"]), answers, len(failed), max(memory))


def named_sign_in(client: httpx.Client) -> None:
    """A sign-in as our own clients do it: the challenge is for the key that will sign."""
    nonce = client.get("/api/auth/challenge/", params={"identity": key().identity}).json()["nonce"]
    assert client.post("/api/auth/verify/", json=signed(nonce, key())).status_code == 200


def p99(seconds: list[float]) -> float:
    """The 99th percentile, in milliseconds."""
    return sorted(seconds)[math.ceil(0.99 * len(seconds)) - 1] * 1000


@contextmanager
def attacked(engine: EngineProcess, token: str, names: list[str]) -> Iterator[None]:
    """The attacks of these names, from a process of their own on the clients' core."""
    port, host = engine.url.rpartition(":")[2], engine.url.partition("://")[2]

    def prepare_child() -> None:
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(SOCKETS, hard), hard))
        os.sched_setaffinity(0, {CLIENT_CORE})

    process = subprocess.Popen(
        [sys.executable, "-m", "tests.attack.attacks", port, host, token, *names], cwd=ROOT, preexec_fn=prepare_child
    )
    try:
        yield
        assert process.poll() is None, "the attackers have ended by themselves"
    finally:
        process.kill()
        process.wait()


def records(home: Path) -> set[int]:
    """The numbers of all records that can be read."""
    found = set()
    for path in sorted((home / "log").glob("events*.jsonl")):
        for line in path.read_text().splitlines():
            with suppress(ValueError):
                found.add(int(json.loads(line)["seq"]))
    return found


def scan(home: Path, names: list[str], seconds: float) -> Scan:
    """The engine alone for so many seconds, then for as many beside the attacks."""
    os.sched_setaffinity(0, {CLIENT_CORE})
    gc.freeze()  # looking through all that was imported takes 50 ms, which would count as the engine's
    with engine_with_keys(home) as engine:
        with httpx.Client(base_url=engine.url, verify=False) as client:
            token = sign_in(client, key())["token"]
            for path in ("/", "/openapi.json"):  # an engine in use: what the first answers load and make is no attack's
                client.get(path).raise_for_status()
        measure(engine, token, 1.0)  # a first look at everything
        idle = measure(engine, token, seconds)  # as long: the worst of sixty sign-ins is worse than that of ten
        before = records(home)
        with attacked(engine, token, names):
            beside = measure(engine, token, seconds)
        return Scan(idle, beside, len(before - records(home)))

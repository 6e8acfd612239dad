"""Where a sign-in's time goes: `python -m tests.bench.profile` signs in for a while and samples the engine meanwhile.

Shares of the CPU time of a durable engine, all its threads together. `--keep` saves them for the handbook's table,
which `python -m tests.readme` draws.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from tests.bench.endpoints import challenge
from tests.bench.load import Flow, flows, request
from tests.bench.noise import noise
from tests.bench.servers import CLIENT_CORE, pin, serving
from tests.support.fakes import ROOT, key, signed
from tests.support.ports import free_port
from tests.support.processes import prepare
from tests.support.waits import until

KEPT = Path(__file__).parent / "profile.json"
"""The shares that the handbook tells."""

CONNECTIONS, WARM = 8, 3.0
"""Clients that sign in at once, and seconds for which they do before anything counts."""

OTHERS = "the threads that write to the disk"

LOOP = "the event loop"

PARTS = {
    "bytes read and written, and the requests in them": ("api/server/",),
    "the request screened, its endpoint found, the response made": ("api/http/",),
    "the challenge, made and checked": ("engine/access/challenges.py", "engine/base/base64url.py"),
    "RSA, the signature verified": ("engine/keys/keys.py:verify",),
    "whose key it is, and what it may do": ("engine/keys/", "engine/sessions/key_", "engine/access/signers.py"),
    "the token signed (Ed25519)": ("engine/access/tokens.py",),
    "the chart's step, its actor and its delay": ("statecharts/", "engine/runtime/runtime.py", "engine/runtime/act"),
    "the session, its limits and its origin": ("engine/sessions/", "engine/access/"),
    "the store": ("engine/store/",),
    "records: journal, log, measurements": ("engine/journal/", "engine/runtime/records.py"),
}
"""What a sign-in consists of, and the places of the product that belong to it: the first that one begins with."""


class Profile(NamedTuple):
    """Shares of the CPU time by part, CPU microseconds of a sign-in, and the number of samples."""

    shares: Mapping[str, float]
    microseconds: float
    samples: int


def table(shares: Mapping[str, float]) -> str:
    """The largest share first."""
    ordered = sorted(shares.items(), key=lambda part: -part[1])
    return "\n".join(
        ["| part of a sign-in | share |", "|---|---|", *(f"| {part} | {one:.0%} |" for part, one in ordered)]
    )


def kept() -> str:
    """The table of what was kept; words where nothing is yet."""
    return table(json.loads(KEPT.read_text())) if KEPT.exists() else "(Nothing was kept yet.)"


def part_of(place: str) -> str:
    """The part that a function belongs to, by its file and name; what runs between the requests is the loop's."""
    for part, places in PARTS.items():
        if place.startswith(places):
            return part
    return LOOP


def shares(told: Mapping[str, Any]) -> dict[str, float]:
    """Of what `tests.bench.sampled` tells: samples are of the main thread, and what other threads took is known."""
    whole, count = told["main"] + told["others"], sum(told["samples"].values())
    found = dict.fromkeys([*PARTS, LOOP], 0.0)
    for place, samples in told["samples"].items():
        found[part_of(place)] += samples / count * told["main"] / whole
    return {**found, OTHERS: told["others"] / whole}


def sign_in(port: int) -> Flow:
    """Challenge and verify, by a key of 3072 bits."""
    asked = yield request("GET", challenge(key()), port)
    body = signed(json.loads(asked.body)["nonce"], key(), "RS256")
    assert (yield request("POST", "/api/auth/verify/", port, body)).status == 200


def measured(seconds: float, warm: float = WARM) -> Profile:
    """Sign in for so long at an engine of its own."""
    with tempfile.TemporaryDirectory() as folder:
        home, told, port = Path(folder) / "home", Path(folder) / "told", free_port()
        prepare(home)
        engine = [sys.executable, "-m", "tests.bench.sampled", str(told), "engine", "start", "--port", str(port)]
        with serving(engine, port, HATCHWAY_HOME=str(home)) as server:
            flows(server, lambda: sign_in(port), CONNECTIONS, warm)
            os.kill(server.process.pid, signal.SIGUSR1)
            load = flows(server, lambda: sign_in(port), CONNECTIONS, seconds)
            os.kill(server.process.pid, signal.SIGUSR1)
            until(told.exists, what="the samples")
        sampled = json.loads(told.read_text())
    return Profile(shares(sampled), 1e6 / load.per_cpu, sum(sampled["samples"].values()))


def main() -> None:
    """Measure, and tell."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.profile", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="for which is signed in")
    parser.add_argument("--keep", action="store_true", help=f"save the shares as {KEPT.relative_to(ROOT)}")
    asked = parser.parse_args()
    pin(CLIENT_CORE)
    profile = measured(asked.seconds)
    print(table(profile.shares))
    print(f"\n{profile.microseconds:.0f} us of CPU a sign-in, {profile.samples} samples: a share of 10 % is good to")
    print(f"{2 * (0.1 * 0.9 / profile.samples) ** 0.5:.1%}; work took {noise()['waited']:.0%} longer than its CPU time")
    if asked.keep:
        KEPT.write_text(json.dumps({part: round(share, 3) for part, share in profile.shares.items()}, indent=1) + "\n")


if __name__ == "__main__":
    main()

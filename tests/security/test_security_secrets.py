"""No secret is told: everything run once at debug level, then every place searched where one could have been left."""

from __future__ import annotations

import json
import re
from base64 import urlsafe_b64decode
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest

from tests.support.command import completed
from tests.support.fakes import key, signed
from tests.support.hostile_requests import exchange, request
from tests.support.processes import EngineProcess, executed_engine
from tests.support.real_pairings import PAIR, Console, logged, operator_at

pytestmark = pytest.mark.process

INSPECT = "/api/auth/inspect/"
HOLD_A_SECRET = {"private-key.pem", "token-key.pem", "token-key-old.pem", "connection-token", "mine.pem"}
"""Files of the engine's folder whose very purpose it is."""


class Run(NamedTuple):
    """What was done: the engine, the secrets that passed, and all that anybody was answered or shown."""

    engine: EngineProcess
    secrets: dict[str, str]
    shown: dict[str, str]


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    home = tmp_path_factory.mktemp("secrets") / "home"
    with executed_engine(home, HATCHWAY_LOG_LEVEL="debug") as engine:
        run = Run(engine, {}, {})
        with httpx.Client(base_url=engine.url) as client:
            _sign_in(client, run)
            _misuse(client, run)
        _pair(run)
        _command(run)
        with httpx.Client(base_url=engine.url) as client:
            _read_back(client, run)
        engine.operator({"op": "reload"})
        assert logged(engine, "engine.reload")
        for path in (home / "private-key.pem", home / "token-key.pem"):
            lines = path.read_text().splitlines()[1:-1]
            for number, line in enumerate(lines[len(lines) // 3 :]):  # an RSA key begins with its public half
                run.secrets[f"{path.name} line {number}"] = line
        yield run


def _sign_in(client: httpx.Client, run: Run) -> None:
    """A sign-in, a renewal, a replay, a wrong key; then all is ended."""
    nonce = client.get("/api/auth/challenge/").json()["nonce"]
    body = signed(nonce, key())
    wrong = signed(nonce, key("stranger"))
    run.shown["wrong signature"] = client.post("/api/auth/verify/", json=wrong).text
    session = client.post("/api/auth/verify/", json=body).json()
    run.shown["replay"] = client.post("/api/auth/verify/", json=body).text
    token = {"Authorization": f"Bearer {session['token']}"}
    renewed = client.post("/api/auth/renew/", headers=token).json()["token"]
    run.shown["inspect"] = client.get(INSPECT, headers=token).text
    client.post("/api/auth/logout/", headers={"Authorization": f"Bearer {renewed}"})
    run.shown["ended"] = client.get(INSPECT, headers=token).text
    run.secrets.update({"nonce": nonce, "signature": body["signature"], "wrong signature": wrong["signature"]})
    run.secrets.update({"token": session["token"], "renewed": renewed})


def _misuse(client: httpx.Client, run: Run) -> None:
    """The token where it must not be, and in forms that make an engine stumble."""
    token, port = run.secrets["token"], run.engine.port
    odd = {
        "control byte": request("GET", INSPECT, f"Authorization: Bearer {token}\x01", port=port),
        "no ASCII": request("GET", INSPECT, f"Authorization: Bearer {token}\xff", port=port),
        "twice": request("GET", INSPECT, *[f"Authorization: Bearer {token}"] * 2, port=port),
        "query": request("GET", f"{INSPECT}?token={token}", port=port),
        "path": request("GET", f"/{token}", port=port),
        "session's path": request("DELETE", f"/api/auth/sessions/{token}/", port=port),
        "method": request(f"X{token[:40]}", INSPECT, port=port),
        "trace": request("TRACE", INSPECT, f"Authorization: Bearer {token}", port=port),
        "foreign host": request("GET", INSPECT, f"Authorization: Bearer {token}", port=port, host=f"{token[:60]}.evil"),
        "field": request(
            "POST", PAIR, "Content-Type: application/json", port=port, body=json.dumps({"code": [token]}).encode()
        ),
        "broken body": request("POST", PAIR, "Content-Type: application/json", port=port, body=token.encode()),
        "unknown algorithm": request(
            "POST",
            "/api/auth/verify/",
            "Content-Type: application/json",
            port=port,
            body=json.dumps({"nonce": run.secrets["nonce"], "signature": token, "algorithm": token}).encode(),
        ),
    }
    for name, data in odd.items():
        answer = exchange(port, data)
        run.shown[name] = repr((answer.headers, answer.body))


def _pair(run: Run) -> None:
    """One pairing of each end, and a code that is tried once it is used."""
    for word in ("y", "n"):
        with operator_at(run.engine) as operator:
            console = Console(run.engine, operator.code)
            operator.wait("claimed")
            operator.answer(word)
            last = console.items()[-1]
            Console(run.engine, operator.code).close()
            run.secrets[f"code {word}"] = operator.code
            run.shown[f"desk {word}"] = json.dumps(operator.told[1:])
        if word == "y":
            run.secrets["paired token"] = last["token"]


def _command(run: Run) -> None:
    """The command signs in, and tells what it tells; the terminal's own part of a pairing is the code's one place."""
    engine = run.engine
    (engine.home / "mine.pem").write_bytes(key("own").pem())
    (engine.home / "mine.pem").chmod(0o600)
    for words in (
        "login",
        "engine ping",
        "engine status --json",
        "session list",
        "session list --json",
        "key list",
        "key list --json",
        "config list",
        "config get connection-token",
        "license info",
        "engine ping --json",
    ):
        ran = completed(engine.environ, *words.split())
        run.shown[f"hatchway {words}"] = ran.stdout + ran.stderr
    stored = (engine.home / "connection-token").read_text()
    found = re.search(r"eyJ[\w-]+\.[\w-]+\.[\w-]+", stored)
    assert found, "the command stored no token"
    run.secrets["stored token"] = found[0]


def _read_back(client: httpx.Client, run: Run) -> None:
    """What an operator may read of it all: sessions, metrics, health, events, charts, keys."""
    master = {"Authorization": f"Bearer {run.secrets['stored token']}"}
    for path in ("/metrics", "/healthz", "/readyz", "/api/auth/sessions/", "/api/charts/session/", "/openapi.json"):
        run.shown[path] = client.get(path, headers=master).text
    with client.stream("GET", "/api/events/", headers=master | {"Last-Event-ID": "0"}) as events:
        read = ""
        for line in events.iter_lines():
            read += line + "\n"
            if "approve" in read or len(read) > 20_000:
                break
        run.shown["/api/events/"] = read


def pieces(secret: str) -> list[bytes]:
    """A secret in the forms it could be found in: itself, and each long part of a token or nonce with its bytes."""
    parts = [secret.encode()]
    for part in secret.split(".")[
        2:
    ]:  # a token's header is everybody's, its payload is no secret; a nonce's host neither
        if len(part) >= 40:
            parts += [part.encode(), urlsafe_b64decode(part + "=" * (-len(part) % 4))]
    return parts


def found_in(run: Run, text: bytes) -> list[str]:
    """Which secrets are in it."""
    return [name for name, secret in run.secrets.items() if any(piece in text for piece in pieces(secret))]


def test_the_scenario_holds_what_is_searched_for(done: Run) -> None:
    """A search that finds nothing must have had something to find, and the log must be at its most talkative."""
    kinds = {name.split(" line")[0] for name in done.secrets}
    assert {"nonce", "signature", "token", "renewed", "code y", "paired token", "stored token"} <= kinds
    assert {"private-key.pem", "token-key.pem"} <= kinds
    assert found_in(done, done.secrets["token"].encode()) == ["token"]
    assert "session.start" in done.engine.log()


def test_no_secret_in_any_answer(done: Run) -> None:
    """D33, finding 6: no refusal, list, metric, event or command's output has one in it."""
    for name, text in done.shown.items():
        assert found_in(done, text.encode("utf-8", "surrogateescape")) == [], (name, text)
        assert "Traceback" not in text


def test_no_secret_in_the_log(done: Run) -> None:
    """D33, G2: nothing on standard output or standard error, at debug level."""
    assert found_in(done, done.engine.log().encode()) == []
    assert "Traceback" not in done.engine.log()


def test_no_secret_in_any_file(done: Run) -> None:
    """D33: database, journal, settings, locks: only key files and the command's token hold what they are for."""
    searched = [path for path in done.engine.home.rglob("*") if path.is_file()]
    assert {"engine.db", "events.jsonl", "authorized_keys"} <= {path.name for path in searched}
    for path in searched:
        found = found_in(done, path.read_bytes())
        assert found == [] or path.name in HOLD_A_SECRET, (path, found)


def test_no_secret_in_a_process_list(done: Run) -> None:
    """D33, P13: not in the engine's arguments, and none in its environment."""
    for name in ("cmdline", "environ"):
        assert found_in(done, Path(f"/proc/{done.engine.process.pid}/{name}").read_bytes()) == []


def test_every_step_is_told_all_the_same(done: Run) -> None:
    """G3: sign-ins, failures, claims, decisions and ends are in the journal, in order, with whom and from where."""
    lines = [json.loads(line) for line in (done.engine.home / "log" / "events.jsonl").read_text().splitlines()]
    told = {(line["chart"], line["event"]) for line in lines}
    steps = {("session", "start"), ("session", "renew"), ("session", "logout"), ("pairing", "issue")}
    assert steps | {("pairing", "claim"), ("pairing", "approve"), ("pairing", "reject")} <= told
    sequence: list[Any] = [line["seq"] for line in lines]
    assert sequence == sorted(set(sequence))


def test_the_stored_token_goes_when_it_is_unset(done: Run) -> None:
    """D33: `config unset connection-token` leaves nothing of it behind."""
    assert done.secrets["stored token"] in (done.engine.home / "connection-token").read_text()
    done.engine.command("config", "unset", "connection-token")
    for path in done.engine.home.rglob("*"):
        assert not path.is_file() or "stored token" not in found_in(done, path.read_bytes()), path

"""Worker processes before one engine: what is promised of it holds through them, and they live and end as it does."""

from __future__ import annotations

import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
import trio

from hatchway.api.http.app import make_app
from hatchway.api.workers.pool import WorkerPool
from hatchway.engine.base.permissions import FIVE
from hatchway.engine.keys.authorized_keys import AuthorizedKeys
from hatchway.engine.keys.keys import PrivateKey
from hatchway.engine.sessions import versions
from tests.pairings import test_pairing_processes as pairing
from tests.support.fakes import ROOT, effort, key, signed, virtual_engine
from tests.support.people_at_work import GONE, Load
from tests.support.processes import EngineProcess, bearer, sign_in
from tests.support.scraped_metrics import parsed
from tests.support.timing import Share
from tests.support.waits import PATIENCE, until
from tests.support.worker_connections import Line, engine_with_workers, two_workers, workers_of

pytestmark = pytest.mark.process

ROUNDS = int(200 * effort())


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EngineProcess]:
    """One engine with two workers for all tests that leave it as it was."""
    with engine_with_workers(tmp_path_factory.mktemp("workers") / "hatchway") as running:
        yield running


# The same tests as without workers, on this module's engine.
test_approve_and_reject = pairing.test_approve_and_reject
test_the_command_ends = pairing.test_the_command_ends
test_the_console_hangs_up = pairing.test_the_console_hangs_up


def signed_in(line: Line, private: PrivateKey | None = None) -> str:
    """A new session's token, through this connection's worker."""
    nonce = line.ask("GET", "/api/auth/challenge/")[1]["nonce"]
    status, session = line.ask("POST", "/api/auth/verify/", signed(nonce, private or key()))
    assert status == 200, session
    token: str = session["token"]
    return token


@pytest.mark.fuzz
def test_a_logout_at_one_worker_is_known_at_the_other(engine: EngineProcess) -> None:
    """Both workers have answered for the token; the next call after the logout's answer is refused at either."""
    with two_workers(engine) as (here, there):
        for number in range(ROUNDS):
            one, other = (here, there) if number % 2 else (there, here)
            token = signed_in(one)
            assert [line.inspect(token) for line in (one, other, one, other)] == [200] * 4
            assert one.ask("POST", "/api/auth/logout/", token=token)[0] == 204
            assert other.inspect(token) == 401
            assert one.inspect(token) == 401


def test_both_workers_answer_as_one_engine(engine: EngineProcess) -> None:
    """The first answer about a token, one that a worker gives again, and the app's own way are the same bytes."""
    with two_workers(engine) as (here, there), httpx.Client(base_url=engine.url) as parsed_request:
        token = signed_in(here)
        answers = [line.ask("GET", "/api/auth/inspect", token=token) for line in (here, here, there, there)]
        answers.append((200, parsed_request.get("/api/auth/inspect/", headers=bearer(token)).json()))
        assert all(answer == answers[0] for answer in answers)
        assert answers[0][1]["permissions"] == list(FIVE)


def test_a_nonce_works_once_whichever_worker_is_asked(engine: EngineProcess) -> None:
    """One signed challenge sent to two workers at once signs in once; also when it came from a third."""
    with two_workers(engine) as (here, there):
        for _ in range(20):
            body = signed(here.ask("GET", "/api/auth/challenge/")[1]["nonce"], key())
            statuses: list[int] = []
            gate = threading.Barrier(2)

            def send(line: Line, body: Any = body, gate: Any = gate, statuses: list[int] = statuses) -> None:
                gate.wait()
                statuses.append(line.ask("POST", "/api/auth/verify/", body)[0])

            threads = [threading.Thread(target=send, args=(line,)) for line in (here, there)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert sorted(statuses) == [200, 401]


def test_failures_are_counted_across_workers(home: Path) -> None:
    """Five failed verifies a minute are five at all workers together; a correct signature is taken all the same."""
    with engine_with_workers(home, HATCHWAY_LIMITS_FAILED_VERIFIES="5") as engine, two_workers(engine) as lines:
        nonce = lines[0].ask("GET", "/api/auth/challenge/")[1]["nonce"]
        wrong = signed(nonce, key("two"))
        told = [lines[number % 2].ask("POST", "/api/auth/verify/", wrong) for number in range(7)]
        assert [status for status, _ in told] == [401] * 5 + [429] * 2
        assert {problem["code"] for _, problem in told[:5]} == {"invalid_signature"}
        assert lines[1].ask("POST", "/api/auth/verify/", signed(nonce, key()))[0] == 200


def test_a_key_that_goes_takes_its_sessions_along(home: Path) -> None:
    """Unregistered by command or by hand, narrowed by hand: the next call at any worker knows."""
    with engine_with_workers(home) as engine, two_workers(engine) as lines:
        keys = AuthorizedKeys(home / "authorized_keys")
        keys.register(key("two").public, FIVE, "two")
        keys.register(key("three").public, FIVE, "three")
        owners = {"one": key(), "two": key("two"), "three": key("three")}
        tokens = {name: signed_in(lines[0], private) for name, private in owners.items()}
        for line in lines * 2:
            assert {line.inspect(token) for token in tokens.values()} == {200}
        keys.register(key("three").public, ("SHELL",), "three")
        for line in lines:
            assert line.ask("GET", "/api/auth/inspect/", token=tokens["three"])[1]["permissions"] == ["SHELL"]
        engine.command("key", "unregister", key().identity)
        assert [line.inspect(tokens["one"]) for line in lines] == [401, 401]
        keys.unregister(key("two").identity)
        assert [line.inspect(tokens["two"]) for line in lines] == [401, 401]
        assert [line.inspect(tokens["three"]) for line in lines] == [200, 200]


def test_who_asks_is_known_behind_the_workers(engine: EngineProcess) -> None:
    """A session's address is its client's; no header makes it another's; the engine's own socket is its user's."""
    with Line(engine, "127.0.0.5") as line:
        token = signed_in(line)
        _, told = line.ask("GET", "/api/auth/sessions/", token=token)
        assert [session["address"] for session in told["sessions"] if session["current"]] == ["127.0.0.5"]
    names = ("X-Forwarded-For", "Forwarded", "X-Real-IP", "Hatchway-Client", "Client")
    forged = dict.fromkeys(names, "127.0.0.9")
    with httpx.Client(base_url=engine.url) as client:
        nonce = client.get("/api/auth/challenge/").json()["nonce"]
        made = client.post("/api/auth/verify/", json=signed(nonce, key()), headers=forged).json()
        told = client.get("/api/auth/sessions/", headers=bearer(made["token"]) | forged).json()
    assert [session["address"] for session in told["sessions"] if session["current"]] == ["127.0.0.1"]
    assert (engine.home / "doors.sock").stat().st_mode & 0o777 == 0o600


def measured(client: httpx.Client) -> dict[str, float]:
    """How many requests each endpoint of the table has answered with 200, and the sign-ins."""
    text = client.get("/metrics").text
    found = parsed(text)
    counts = {
        dict(labels)["path"]: value
        for labels, value in found.get("hatchway_request_duration_seconds_count", {}).items()
        if dict(labels)["status"] == "200"
    }
    signs = found.get("hatchway_sign_in_duration_seconds_count", {})
    return counts | {"sign-ins": signs.get(frozenset({("method", "key")}), 0.0)}


def test_what_workers_answer_alone_is_counted(home: Path) -> None:
    """Requests and sign-ins in /metrics are those that were made, whoever answered, a second later at most."""
    with engine_with_workers(home) as engine, two_workers(engine) as lines, httpx.Client(base_url=engine.url) as client:
        for line in lines:
            for _ in range(3):
                token = signed_in(line)
            for _ in range(10):
                assert line.inspect(token) == 200
        wanted = {"/api/auth/challenge/": 6, "/api/auth/verify/": 6, "/api/auth/inspect/": 20, "sign-ins": 6}
        until(lambda: measured(client).items() >= wanted.items(), what=f"{measured(client)}, and not {wanted}")


def test_events_come_through_a_worker_one_by_one(engine: EngineProcess) -> None:
    """A step is told while the stream is held; a reader that hangs up is known to have left."""
    with httpx.Client(base_url=engine.url, timeout=30) as client:
        token = sign_in(client, key("own"))["token"]
        with client.stream("GET", "/api/events/", headers=bearer(token)) as stream:
            lines = stream.iter_lines()
            assert next(lines).startswith("retry:")
            with Line(engine) as line:
                signed_in(line)
            told = next(json.loads(said[6:]) for said in lines if said.startswith("data: "))
            assert (told["chart"], told["event"]) == ("session", "start")
            assert "hatchway_event_readers 1.0" in client.get("/metrics").text
        until(lambda: "hatchway_event_readers 0.0" in client.get("/metrics").text, what="the reader is still there")


def test_a_killed_worker_costs_nobody_else(home: Path) -> None:
    """Workers killed, or ended, under load: others answer meanwhile, each comes back, nothing acknowledged is lost."""
    for number in range(4):
        key(f"crash {number}")
    with engine_with_workers(home) as engine:
        load = Steady(engine)
        load.start()
        try:
            for how in (signal.SIGKILL, signal.SIGTERM) * max(1, int(effort())):
                until(partial(load.beyond, load.done()), what="nobody gets on")
                victim = workers_of(engine)[0]
                os.kill(victim, how)
                until(lambda: not running(victim), what="the worker does not end")  # noqa: B023 - called here
                with httpx.Client(base_url=engine.url, timeout=30) as client:
                    assert client.get("/readyz").status_code == 200
                until(partial(_back, engine, victim), what="the worker does not come back")
        finally:
            load.join()
        load.check()
        until(lambda: '"event":"engine.door_ended"' in engine.log(), what="the log")


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_an_engine_that_has_answered_goes_on(home: Path, how: signal.Signals) -> None:
    """A worker that dies while it comes up, after another has answered a client, is started again like any other."""
    with closing(EngineProcess(home, HATCHWAY_WORKERS="2")) as engine:
        engine.begin()
        until(partial(_begun, engine, 2), what="no workers")
        late = workers_of(engine)[1]
        os.kill(late, signal.SIGSTOP)
        engine.wait_ready()
        os.kill(late, how)
        with suppress(ProcessLookupError):  # a killed one may be gone already
            os.kill(late, signal.SIGCONT)
        until(partial(_back, engine, late), what="the worker does not come back")
        assert httpx.get(f"{engine.url}/readyz").status_code == 200
        engine.process.send_signal(signal.SIGTERM)
        assert engine.process.wait(20) == 0


def _begun(engine: EngineProcess, count: int) -> bool:
    """Whether so many worker processes have begun, ready or not."""
    try:
        return len(workers_of(engine)) == count
    except OSError:
        return False  # the operator socket is not there yet


def _back(engine: EngineProcess, gone: int) -> bool:
    pids = workers_of(engine)
    return len(pids) == 2 and gone not in pids


class Steady(Load):
    """People who come again when their connection breaks."""

    def done(self) -> list[int]:
        """What has been acknowledged so far, by kind."""
        return [len(self.live), len(self.ended)]

    def beyond(self, before: list[int]) -> bool:
        """Whether there is more of each kind than there was."""
        return all(now > then for now, then in zip(self.done(), before, strict=True))

    def _work(self, doing: Any) -> None:
        while not self._over:
            with suppress(*GONE), httpx.Client(base_url=self.engine.url, timeout=30) as client:
                while not self._over:
                    doing(client)


def running(pid: int) -> bool:
    """Whether a process does anything still."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_the_engine_takes_its_workers_along(home: Path, how: signal.Signals) -> None:
    """kill -9 of the engine ends every worker at once; nobody is left who accepts."""
    with engine_with_workers(home) as engine:
        workers = workers_of(engine)
        assert len(workers) == 2
        engine.process.send_signal(how)
        assert engine.process.wait(20) == (-signal.SIGKILL if how == signal.SIGKILL else 0)
        until(lambda: not any(map(running, workers)), what="a worker outlives its engine")
        with pytest.raises(httpx.TransportError):
            httpx.get(f"{engine.url}/healthz")
        engine.start()
        assert len(workers_of(engine)) == 2


async def test_a_worker_that_comes_up_while_the_engine_stops(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has not been there when the others were told to stop, and ends as they do, without an error."""
    spawned: list[trio.Process] = []
    shutdown = trio.Event()
    async with virtual_engine(home) as engine:
        pool = WorkerPool(engine, make_app(engine), 1)
        spawn = pool._spawn

        async def slow(*given: Any) -> trio.Process:
            spawned.append(await spawn(*given))
            if len(spawned) == 2:
                shutdown.set()
                await trio.testing.wait_all_tasks_blocked()  # until `Stop` is sent
            return spawned[-1]

        monkeypatch.setattr(pool, "_spawn", slow)
        with trio.fail_after(PATIENCE), socket.create_server(("127.0.0.1", 0)) as listener:
            async with trio.open_nursery() as nursery:
                await nursery.start(pool.serve, [listener], shutdown)
                spawned[0].kill()
    assert [process.returncode for process in spawned] == [-signal.SIGKILL, 0]


def test_held_answers_end_with_their_last_items(home: Path) -> None:
    """SIGTERM: a waiting console gets its refusal, an event stream its last event, within five seconds; exit code 0."""
    with engine_with_workers(home) as engine, httpx.Client(base_url=engine.url, timeout=30) as client:
        token = sign_in(client, key("own"))["token"]
        with engine.operator_connection() as operator:
            operator.sendall(b'{"op":"pair","permissions":null,"lifetime":3600}\n')
            told = operator.makefile("rb")
            code = json.loads(told.readline())["code"]
            with (
                client.stream("GET", "/api/events/", headers=bearer(token)) as events,
                client.stream("POST", "/api/auth/pair/request/", json={"code": code}) as console,
            ):
                lines = console.iter_lines()
                assert json.loads(next(lines))["accepted"]
                assert json.loads(told.readline())["event"] == "claimed"
                share, before = Share(engine.process.pid), time.monotonic()
                engine.process.send_signal(signal.SIGTERM)
                last = json.loads([line for line in lines if line][-1])
                seen = events.read().decode()
                assert (time.monotonic() - before) * share.now() < 5
        assert (last["status"], last["detail"]) == (401, "invalid pairing code")
        assert '"event":"stop"' in seen
        assert engine.process.wait(20) == 0


def test_settings_are_taken_up_by_every_worker(home: Path) -> None:
    """After `engine reload` a new address is ours at each worker, and workers with `lane` off answer the same."""
    with engine_with_workers(home) as engine, two_workers(engine) as lines:
        token = signed_in(lines[0])
        before = [line.ask("GET", "/api/auth/inspect/", token=token) for line in lines]
        address = f"engine.example:{engine.port}"
        for line in lines:
            line.host = address
            assert line.ask("GET", "/api/auth/inspect/", token=token)[0] == 421
        config = home / "config.toml"
        config.write_text(f'addresses = ["{address}"]\nlane = false\n')
        config.chmod(0o600)
        engine.command("engine", "reload")
        for _ in range(2):
            assert [line.ask("GET", "/api/auth/inspect/", token=token) for line in lines] == before
        signed_in(lines[1])


def test_a_certificate_is_taken_up_by_every_worker(home: Path) -> None:
    """After SIGHUP every new connection sees the new certificate, HTTP/2 ones too; one that was open answers on."""
    engine = EngineProcess(home, HATCHWAY_TLS="auto", HATCHWAY_WORKERS="2")
    try:
        engine.start()
        unchecked = ssl._create_unverified_context()
        with httpx.Client(base_url=engine.url, verify=unchecked, http2=True, timeout=60) as kept:
            token = sign_in(kept)["token"]
            for _ in range(3):
                answer = kept.get("/api/auth/inspect/", headers=bearer(token))
                assert (answer.status_code, answer.http_version) == (200, "HTTP/2")
            port = int(engine.url.rpartition(":")[2])
            first = ssl.get_server_certificate(("127.0.0.1", port))
            (home / "tls-cert.pem").unlink()
            engine.process.send_signal(signal.SIGHUP)

            def all_new() -> bool:
                return first not in {ssl.get_server_certificate(("127.0.0.1", port)) for _ in range(8)}

            until(all_new, what="the old certificate is still shown")
            assert kept.get("/api/auth/inspect/", headers=bearer(token)).status_code == 200
    finally:
        engine.close()


def test_manners_hold_at_each_worker(home: Path) -> None:
    """A head that does not come is ended in its time, and at a worker that is full the idle give way."""
    with engine_with_workers(home, HATCHWAY_LIMITS_HEADER_SECONDS="1", HATCHWAY_MAX_CONNECTIONS="2") as engine:
        lines: list[Line] = []
        try:
            while len(lines) < 8:
                lines.append(Line(engine))
                assert lines[-1].ask("GET", "/healthz")[0] == 200
            assert lines[0].rest() == b""
            lines[-1].send(b"GET /healthz HTTP/1.1\r\nHost: ")
            assert lines[-1].rest().startswith(b"HTTP/1.1 408")
        finally:
            for line in lines:
                line.close()


def test_a_worker_that_can_not_start_stops_the_start(home: Path, tmp_path: Path) -> None:
    """No engine runs on whose workers are not there; the command says so, with exit code 1."""
    engine = EngineProcess(home, HATCHWAY_WORKERS="2", HATCHWAY_TLS_CERT="/nowhere", HATCHWAY_TLS_KEY="/nowhere")
    engine.begin()
    assert engine.process.wait(30) == 1
    until(lambda: "/nowhere" in engine.log(), what="the log")


def test_a_worker_without_its_engine_fails(tmp_path: Path) -> None:
    """The channel's end ends it, whatever it is doing, and not with success."""
    ours, theirs = socket.socketpair()
    words = versions.create()
    with theirs, socket.create_server(("127.0.0.1", 0)) as listener:
        kept = (theirs.fileno(), words, listener.fileno())
        code = "from hatchway.api.workers.worker import main; main()"
        process = subprocess.Popen([sys.executable, "-c", code, *map(str, kept)], cwd=ROOT, pass_fds=kept)
    os.close(words)
    ours.close()
    assert process.wait(30) == 70

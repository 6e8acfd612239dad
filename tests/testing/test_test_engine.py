"""The test engine: time that is held, people who do as they are told, faults, records, and what it is not."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from base64 import urlsafe_b64decode
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
import trio

from hatchway.api.testing.engine_under_test import EngineUnderTest
from hatchway.api.testing.people import Answer
from hatchway.api.testing.process import ControlRefused, EngineProcess
from hatchway.engine.base.errors import Refusal
from hatchway.engine.base.issuer import TEST_ISSUER
from hatchway.engine.pairings.pairings import Claimant
from hatchway.engine.runtime.records import Origin
from tests.support.processes import HATCHWAY
from tests.support.timing import parsing_seconds

INSPECT = "/api/auth/inspect/"
PAIR = "/api/auth/pair/request/"
INSTANCES = "/api/platform/singularity/instance/"
WHOLE = {"accept": "application/json"}


def bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


def client(engine: EngineProcess) -> httpx.Client:
    return httpx.Client(base_url=engine.url, trust_env=False)


def test_the_clock_stands(hatchway_engine: EngineProcess) -> None:
    """No second passes by itself; those that are told to pass have passed when the call returns, date and all."""
    with client(hatchway_engine) as http:
        session = hatchway_engine.sign_in("5m")
        before = http.get("/readyz").headers["date"]
        time.sleep(1.1)
        assert http.get("/readyz").headers["date"] == before
        hatchway_engine.advance(299)
        assert http.get(INSPECT, headers=bearer(session.token)).status_code == 200
        hatchway_engine.advance(1)
        assert http.get(INSPECT, headers=bearer(session.token)).status_code == 401
        assert http.get("/readyz").headers["date"] != before
        assert [record.event for record in hatchway_engine.records] == ["start", "start", "lifetime_elapsed"]
        assert hatchway_engine.now == session.expires_at


@pytest.mark.process
def test_one_line_is_printed() -> None:
    """A client reads one line of JSON and may stop reading: nothing follows, at the engine's end either."""
    command = [*HATCHWAY, "test-engine"]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
        assert child.stdout is not None
        line = child.stdout.readline()
        child.terminate()
        assert (json.loads(line)["pid"], child.communicate()) == (child.pid, (b"", b""))


def test_the_clock_runs(hatchway_engine: EngineProcess) -> None:
    """At the speed that it is told, until it is told to stand."""
    session = hatchway_engine.sign_in("1m")
    hatchway_engine.run(1000)
    until = time.monotonic() + 30
    while hatchway_engine.records[-1].event != "lifetime_elapsed":
        assert time.monotonic() < until
    hatchway_engine.run(0)
    assert hatchway_engine.now == hatchway_engine.now >= session.expires_at


@pytest.mark.parametrize(
    ("answer", "wait", "status", "code"),
    [
        ("approve", 0, 200, None),
        ("reject", 0, 401, "invalid_pairing_code"),
        ("late", 30, 401, "pairing_expired_on_approval"),
        (None, 30, 401, "pairing_expired_on_approval"),
    ],
)
async def test_an_operator_answers_as_told(
    hatchway_engine: EngineUnderTest, answer: Any, wait: float, status: int, code: str | None
) -> None:
    """Yes, no, yes too late, or nothing at all."""
    given = await hatchway_engine.pair(["SHELL"], "2h", answer)
    replies: list[httpx.Response] = []
    async with httpx.AsyncClient(base_url=hatchway_engine.url, timeout=None) as http, trio.open_nursery() as nursery:

        async def claim() -> None:
            replies.append(await http.post(PAIR, json={"code": given}, headers=WHOLE))

        nursery.start_soon(claim)
        await hatchway_engine.advance(wait)
    assert replies[0].status_code == status
    assert replies[0].json().get("code") == code
    if status == 200:
        assert replies[0].json()["permissions"] == ["SHELL"]
        assert replies[0].json()["expires_at"] == hatchway_engine.now + 7200


async def test_a_code_waits_for_its_window(hatchway_engine: EngineUnderTest) -> None:
    """A code is good to the last moment, and no longer."""
    async with httpx.AsyncClient(base_url=hatchway_engine.url, timeout=None) as http:
        for wait, status in ((29.999, 200), (30, 401)):
            code = await hatchway_engine.pair()
            await hatchway_engine.advance(wait)
            assert (await http.post(PAIR, json={"code": code}, headers=WHOLE)).status_code == status


async def test_a_stream_lives_in_the_engines_time(hatchway_engine: EngineUnderTest) -> None:
    """What is due on the way is done on the way: a held claim gets a blank line each 5 s, and its last item."""
    code = await hatchway_engine.pair(answer=None)
    async with httpx.AsyncClient(base_url=hatchway_engine.url, timeout=None) as http, trio.open_nursery() as nursery:
        lines: list[str] = []

        async def claim() -> None:
            async with http.stream("POST", PAIR, json={"code": code}) as answer:
                lines.extend([line async for line in answer.aiter_lines()])

        nursery.start_soon(claim)
        await hatchway_engine.advance(30)
    assert lines[1:-1] in ([""] * 5, [""] * 6)  # the sixth is due together with the end of the window
    assert json.loads(lines[-1])["code"] == "pairing_expired_on_approval"


async def test_a_platform_does_as_told(hatchway_engine: EngineUnderTest) -> None:
    """Instances start, queue, fail and end as their script says, in the engine's time."""
    token = (await hatchway_engine.sign_in("24h")).token
    async with httpx.AsyncClient(base_url=hatchway_engine.url, timeout=None, headers=bearer(token)) as http:

        async def start(name: str, wait: float) -> httpx.Response:
            replies: list[httpx.Response] = []

            async def ask() -> None:
                replies.append(await http.post(INSTANCES, json={"image": "test.sif", "identity": name}))

            async with trio.open_nursery() as nursery:
                nursery.start_soon(ask)
                await hatchway_engine.advance(wait)
            return replies[0]

        async def state(name: str) -> tuple[str, int | None]:
            shown = (await http.get(f"{INSTANCES}{name}/")).json()
            return shown["state"], shown.get("exit_code")

        hatchway_engine.script(takes=2, runs=60, exit_code=3)
        hatchway_engine.script("bad", fails="no room", exit_code=7)
        hatchway_engine.script("slow", queues=3600)
        begun = await start("box", 2)
        assert begun.status_code == 201, begun.text
        assert await state("box") == ("running", None)
        await hatchway_engine.advance(60)
        assert await state("box") == ("stopped", 3)
        failed = await start("bad", 0)
        assert (failed.status_code, failed.json()["items"][0]["payload"]["code"]) == (503, 7)
        assert (await start("slow", 15)).status_code == 202
        assert (await state("slow"))[0] == "queued"
        await hatchway_engine.advance(3600)
        assert (await state("slow"))[0] == "running"
        hatchway_engine.end_instance("slow", 9)
        await hatchway_engine.advance(0)
        assert await state("slow") == ("stopped", 9)


def test_keys_come_and_go(hatchway_engine: EngineProcess) -> None:
    """A key holds what it was given; taken out, its sessions end, and no other's."""
    key = hatchway_engine.key(["RUNTIME:READ"], "reader")
    theirs, ours = hatchway_engine.sign_in(key="reader"), hatchway_engine.sign_in()
    assert theirs.permissions == ("RUNTIME:READ",)
    assert key.file.stat().st_mode & 0o777 == 0o600
    hatchway_engine.unregister(key.identity)
    with client(hatchway_engine) as http:
        assert http.get(INSPECT, headers=bearer(theirs.token)).status_code == 401
        assert http.get(INSPECT, headers=bearer(ours.token)).status_code == 200


def test_faults_are_there_and_gone(hatchway_engine: EngineProcess) -> None:
    """A store that is away, 503s for as many requests as told, on the paths that are told, and then none."""
    token, faults = hatchway_engine.sign_in().token, hatchway_engine.faults
    with client(hatchway_engine) as http:
        faults.set(store_away=True)
        refused = http.post("/api/auth/renew/", headers=bearer(token), json={})
        assert (refused.status_code, refused.json()["code"]) == (503, "store_unavailable")
        assert http.get(INSPECT, headers=bearer(token)).status_code == 200
        faults.set(unavailable=True, times=2, path="/api/")
        assert [http.get(path).status_code for path in ("/readyz", INSPECT, INSPECT, INSPECT)] == [200, 503, 503, 401]
        assert faults.now.times == 0
        faults.set(unavailable=True)
        assert http.get("/").headers["retry-after"] == "1"
        faults.clear()
        assert http.post("/api/auth/renew/", headers=bearer(token), json={}).status_code == 200


@pytest.mark.parametrize("room", [0, 1, 100, 250])
def test_a_connection_that_drops(hatchway_engine: EngineProcess, room: int) -> None:
    """It ends after exactly so many bytes of the answer; the next one is whole."""
    import socket

    def ask() -> bytes:
        host, port = hatchway_engine.url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port)), timeout=30) as sock:
            sock.sendall(f"GET /readyz HTTP/1.1\r\nHost: {host}:{port}\r\nConnection: close\r\n\r\n".encode())
            return b"".join(iter(lambda: sock.recv(65_536), b""))

    hatchway_engine.faults.set(drop_after=room, times=1)
    broken, whole = ask(), ask()
    assert broken == whole[:room]
    assert whole.endswith(b"}")


def test_an_engine_that_goes_away(hatchway_engine: EngineProcess) -> None:
    """Its connections end and no new one is answered, until it is back, with all that it knew."""
    token = hatchway_engine.sign_in().token
    with client(hatchway_engine) as http:
        assert http.get(INSPECT, headers=bearer(token)).status_code == 200
        hatchway_engine.faults.set(away=True)
        with pytest.raises(httpx.TransportError):
            http.get(INSPECT, headers=bearer(token))
        hatchway_engine.faults.clear()
        assert http.get(INSPECT, headers=bearer(token)).status_code == 200


async def test_slow_answers_and_a_wrong_clock(hatchway_engine: EngineUnderTest) -> None:
    """A slow answer comes when the engine's clock says so; a wall clock that is off dates it, and ends sessions."""
    session = await hatchway_engine.sign_in("5m")
    async with httpx.AsyncClient(base_url=hatchway_engine.url, timeout=10) as http:
        hatchway_engine.faults.set(slow=11)
        late: list[Exception] = []

        async def ask() -> None:
            with pytest.raises(httpx.ReadTimeout) as told:
                await http.get("/readyz")
            late.append(told.value)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask)
            await hatchway_engine.advance(11)
        assert late
        before = hatchway_engine.now
        hatchway_engine.faults.set(clock_off=600)
        assert hatchway_engine.now == before + 600
        assert (await http.get(INSPECT, headers=bearer(session.token))).status_code == 401


def test_reset_is_a_new_engine(hatchway_engine: EngineProcess) -> None:
    """Nothing is left of sessions, keys, faults and records; address and first key are as they were."""
    hatchway_engine.key(name="two")
    token = hatchway_engine.sign_in(key="two").token
    hatchway_engine.faults.set(unavailable=True)
    hatchway_engine.run(5)
    hatchway_engine.reset()
    with client(hatchway_engine) as http:
        assert http.get(INSPECT, headers=bearer(token)).status_code == 401
    assert [record.event for record in hatchway_engine.records] == ["start"]
    assert hatchway_engine.now == hatchway_engine.now
    with pytest.raises(ControlRefused, match="must be a key that this test made: one"):
        hatchway_engine.sign_in(key="two")
    assert hatchway_engine.sign_in().token


def test_it_says_what_it_is(hatchway_engine: EngineProcess) -> None:
    """On every answer, whoever gives it; and in every token."""
    with client(hatchway_engine) as http:
        for path in ("/", "/readyz", "/nowhere", INSPECT, "/metrics"):
            assert http.get(path).headers["x-hatchway-test"] == "1", path
        assert http.get("/readyz", headers={"x": "y" * 20_000}).headers["x-hatchway-test"] == "1"
    assert httpx.get(f"{hatchway_engine.control_url}/clock").headers["x-hatchway-test"] == "1"
    body = hatchway_engine.sign_in().token.split(".")[1]
    assert json.loads(urlsafe_b64decode(body + "=="))["iss"] == TEST_ISSUER == "urn:hatchway:test"


@pytest.mark.parametrize(
    ("path", "fields", "words"),
    [
        ("/clock/advance", {"seconds": -1}, "seconds"),
        ("/clock/advance", {}, "seconds"),
        ("/clock/advance", {"seconds": 5, "minutes": 1}, "minutes"),
        ("/clock/run", {"speed": "fast"}, "speed"),
        ("/pairings", {"answer": "perhaps"}, "perhaps"),
        ("/pairings", {"permissions": ["MASTER"]}, "MASTER"),
        ("/pairings", {"lifetime": "soon"}, "30m or 2h"),
        ("/keys", {"name": "../x"}, "name"),
        ("/sessions", {"key": "nobody"}, "key"),
        ("/instances/end", {"name": "nobody"}, "nobody"),
        ("/faults", {"drop_after": -1}, "drop_after"),
        ("/everything", {}, "/clock/advance"),
    ],
)
def test_what_it_is_not_told(hatchway_engine: EngineProcess, path: str, fields: Any, words: str) -> None:
    """What can't be meant is refused, in words that name it; nothing changes."""
    before = hatchway_engine.now
    answer = httpx.post(hatchway_engine.control_url + path, json=fields)
    assert 400 <= answer.status_code < 500
    assert words in answer.text
    assert hatchway_engine.now == before


def test_no_web_page_is_heard(hatchway_engine: EngineProcess) -> None:
    """The control address wants JSON under its own name: neither a form nor a name that leads here has any effect."""
    before, url = hatchway_engine.now, f"{hatchway_engine.control_url}/clock/advance"
    assert httpx.post(url, content=b'{"seconds": 5}', headers={"content-type": "text/plain"}).status_code == 415
    assert httpx.post(url, json={"seconds": 5}, headers={"host": "evil.example"}).status_code == 421
    assert hatchway_engine.now == before


BAD: list[tuple[str, str, bytes, int, str]] = [
    ("GET", "/nothing", b"", 404, "GET one of /clock, /faults"),
    ("DELETE", "/clock", b"", 405, "this path answers GET only"),
    ("PUT", "/faults", b"{}", 405, "this path answers GET, POST only"),
    ("GET", "/clock/advance", b"", 405, "this path answers POST only"),
    ("POST", "/clock/advance", b"{}", 422, "seconds: is required"),
    ("POST", "/clock/advance", b'{"seconds": -1}', 422, "seconds: expected a number >= 0.0"),
    ("POST", "/clock/advance", b'{"seconds": "30"}', 422, "seconds: expected a number, got text"),
    ("POST", "/clock/advance", b'{"seconds": 1, "minutes": 2}', 422, "minutes: is unknown"),
    ("POST", "/clock/advance", b'{"seconds": 1, "seconds": 86400}', 400, "repeats a key"),
    ("POST", "/clock/advance", b'{"seconds": NaN}', 400, "NaN is no JSON number"),
    ("POST", "/clock/advance", b"[30]", 400, "one JSON object in UTF-8"),
    ("POST", "/clock/advance", b"\xff", 400, "one JSON object in UTF-8"),
    ("POST", "/clock/run", b'{"speed": 1e9}', 422, "speed: expected a number <= 1000000.0"),
    ("POST", "/pairings", b'{"answer": "maybe"}', 422, "answer: invalid enum value 'maybe'"),
    ("POST", "/pairings", b'{"lifetime": "banana"}', 422, "lifetime: a duration is a whole number"),
    ("POST", "/pairings", b'{"permissions": ["MASTER"]}', 422, "MASTER belongs to the engine's own key"),
    ("POST", "/keys", b'{"name": "../one"}', 422, "name: must be letters, digits, - and _"),
    ("POST", "/keys/unregister", b'{"name": "nobody"}', 422, "must be a key that this test made: one"),
    ("POST", "/sessions", b'{"count": 0}', 422, "count: expected a whole number >= 1"),
    ("POST", "/instances", b'{"exit_code": 256}', 422, "exit_code: expected a whole number <= 255"),
    ("POST", "/instances/end", b'{"name": "box"}', 404, "no instance named box"),
    ("POST", "/faults", b'{"drop_after": -1}', 422, "drop_after: expected"),
    ("POST", "/faults", b'{"lost": true}', 422, "lost: is unknown"),
]


@pytest.mark.parametrize(("method", "path", "body", "status", "words"), BAD)
def test_what_the_control_address_refuses(
    hatchway_engine: EngineProcess, method: str, path: str, body: bytes, status: int, words: str
) -> None:
    """By the engine's own rules for bodies: every wrong field is named, and nothing has happened."""
    before = hatchway_engine.now, hatchway_engine.faults.now
    headers = {"content-type": "application/json"}
    answer = httpx.request(method, hatchway_engine.control_url + path, content=body, headers=headers, trust_env=False)
    assert (answer.status_code, answer.headers["content-type"]) == (status, "application/problem+json")
    assert words in answer.json()["detail"]
    assert ("allow" in answer.headers) == (status == 405)
    assert (hatchway_engine.now, hatchway_engine.faults.now) == before


def test_more_sessions_than_there_may_be(hatchway_engine: EngineProcess) -> None:
    """None is left of a call that was refused: nobody would have their tokens."""
    told = httpx.post(f"{hatchway_engine.control_url}/sessions", json={"count": 101}, trust_env=False)
    assert told.status_code == 429
    assert hatchway_engine.revoke() == 0


CONSOLE = Claimant("127.0.0.1", None, b"console")

ANSWERS: tuple[tuple[Answer | None, bool], ...] = (("approve", True), ("reject", True), ("late", True), (None, False))
"""What the operator says to a console, and whether one claims the code at all."""


A_DAY = {
    "engine notice start": 1,
    "key notice register": 11,
    "session transition start": 1100 + 36,
    "session transition renew": 6000,
    "session transition lifetime_elapsed": 100 + 35,
    "pairing transition issue": 144,
    "pairing transition claim": 108,
    "pairing transition approve": 36,
    "pairing transition reject": 36,
    "pairing transition decision_elapsed": 36,
    "pairing refusal approve": 36,
    "pairing transition claim_elapsed": 36,
}


async def _pair_all_day(engine: EngineUnderTest) -> None:
    """A code every ten minutes, 144 in all."""
    for answer, claimed in ANSWERS * 36:
        code = await engine.pair(answer=answer)
        if claimed:
            claim = await engine.engine.pairings.claim(code, CONSOLE, Origin(None, CONSOLE.address))
            with suppress(Refusal):
                await claim.wait_answer()
        await trio.sleep_until(600 * (trio.current_time() // 600 + 1))


async def test_a_day(hatchway_engine: EngineUnderTest) -> None:
    """24 hours in one advance: a thousand sessions that renew, a hundred that end, 144 pairings of four fates, and the
    records of a day. It takes less of a core than to parse 900,000 records: on a machine of 2026, 3 s."""
    for number in range(11):
        name = f"key-{number}"
        await hatchway_engine.key(name=name)
        for _ in range(100):
            await hatchway_engine.sign_in("8h", name, renews=number > 0)
    parsing, before = parsing_seconds(50_000), time.process_time()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_pair_all_day, hatchway_engine)
        await hatchway_engine.advance(86_400)
    took = time.process_time() - before
    parsing += parsing_seconds(50_000)
    assert took < 9 * parsing
    told = Counter(f"{record.chart} {record.kind} {record.event}" for record in hatchway_engine.records)
    assert told == A_DAY
    assert len(list(hatchway_engine.engine.runtime.actors("session"))) == 1001
    home = hatchway_engine.master_key_file.parent
    checked = await trio.run_process(
        [*HATCHWAY, "events", "check"], env={**os.environ, "HATCHWAY_HOME": str(home)}, capture_stdout=True
    )
    assert checked.returncode == 0, checked.stdout


def test_no_real_home_is_opened(tmp_path: Path) -> None:
    """It has a folder of its own, which goes with it; `HATCHWAY_HOME` and its settings are nothing to it."""
    home = tmp_path / "home"
    home.mkdir()
    (home / "config.toml").write_text("port = 'nonsense'\n")
    with subprocess.Popen(
        [*HATCHWAY, "test-engine"], stdout=subprocess.PIPE, env={**os.environ, "HATCHWAY_HOME": str(home)}
    ) as process:
        assert process.stdout is not None
        told = json.loads(process.stdout.readline())
        assert set(told) == {"address", "control_address", "key_file", "master_key_file", "pid"}
        assert told["pid"] == process.pid
        assert Path(told["key_file"]).exists()
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    assert [path.name for path in home.iterdir()] == ["config.toml"]
    assert not Path(told["key_file"]).parent.parent.parent.exists()


def test_the_command_stores_no_token_of_it(hatchway_engine: EngineProcess, command_folder: None, home: Path) -> None:
    """`login` and `pair` fail in words, and leave neither a token nor a session behind."""
    login = [*HATCHWAY, "login", "--url", hatchway_engine.url, "--key", str(hatchway_engine.key_file)]
    pair = [*HATCHWAY, "pair", "--url", hatchway_engine.url]
    for command, typed in ((login, ""), (pair, hatchway_engine.pair())):
        done = subprocess.run(command, input=typed, capture_output=True, text=True)
        assert done.returncode == 1
        assert "the token of a test engine (urn:hatchway:test) is never stored" in done.stderr
    assert not (home / "connection-token").exists()
    assert hatchway_engine.revoke() == 0


def test_no_engine_loads_it() -> None:
    """An engine that isn't a test's imports nothing of the kit."""
    probe = "import sys, hatchway.api.host.run; print([name for name in sys.modules if 'api.testing' in name])"
    assert subprocess.check_output([sys.executable, "-c", probe], text=True).strip() == "[]"

"""Records are handed on in order, at least once each, from where it left off; a target that fails holds nobody up."""

from __future__ import annotations

import hmac
import json
import os
import random
import re
import signal
import socket
import ssl
import subprocess
import threading
import time
from base64 import b64decode, b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
import structlog
from google.protobuf.json_format import Parse
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

from hatchway.api.ship import http as http_module
from hatchway.api.ship import shipper as shipper_module
from hatchway.api.ship import syslog as syslog_module
from hatchway.api.ship.records import Choice, Parcel
from hatchway.api.ship.shipper import Shipper
from hatchway.api.ship.targets import Options, TargetRefused, target_of
from hatchway.engine.base.clock import SystemClock
from hatchway.engine.base.errors import FileRefused
from hatchway.engine.journal import shipments
from hatchway.engine.journal.files import read_after
from hatchway.engine.runtime.records import Origin
from tests.support.certificate_authority import Authority
from tests.support.command import completed
from tests.support.generated_journal import SIGNED_IN, Generated
from tests.support.processes import HATCHWAY, EngineProcess, running_engine, sign_in
from tests.support.rsyslog import Rsyslog
from tests.support.waits import until
from tests.support.webhook_receiver import Receiver, receiving

SECRET = b"0123456789abcdef0123456789abcdef"


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Generated]:
    """A journal of some hundred records; whoever hands them on is quick to try again."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    monkeypatch.setattr(shipper_module, "SHORTEST_PAUSE", 0.02)
    monkeypatch.setattr(shipper_module, "LONGEST_PAUSE", 0.1)
    monkeypatch.setattr(http_module, "PATIENCE", 0.5)
    generated = Generated(tmp_path / "home" / "log")
    generated.start()
    generated.work(300)
    yield generated
    structlog.reset_defaults()


def home_of(made: Generated) -> Path:
    return made.folder.parent


def shipper_of(made: Generated, target: str, choice: Choice = Choice(), ca: Path | None = None) -> Shipper:  # noqa: B008
    options = Options(SystemClock(), ca, SECRET)
    return Shipper(home_of(made), target, target_of(target, options), choice, SystemClock())


def ship(made: Generated, target: str, choice: Choice = Choice(), ca: Path | None = None) -> Shipper:  # noqa: B008
    """Hand on all that is there."""
    shipper = shipper_of(made, target, choice, ca)
    shipper.run(threading.Event(), once=True)
    return shipper


@contextmanager
def shipping(shipper: Shipper) -> Iterator[None]:
    """While it runs."""
    stop = threading.Event()
    thread = threading.Thread(target=shipper.run, args=(stop,))
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(20)
        assert not thread.is_alive()


def everything(made: Generated) -> list[bytes]:
    return [line.data for lines in read_after(made.folder, 0) for line in lines]


# A file


def test_a_file_has_each_line_once(made: Generated, tmp_path: Path) -> None:
    """Over several runs, after a cut line, and where it was moved away meanwhile."""
    path = tmp_path / "handed.jsonl"
    ship(made, f"file://{path}")
    assert path.read_bytes().splitlines() == everything(made)
    made.work(50)
    path.write_bytes(path.read_bytes()[:-20])
    (home_of(made) / "ship").joinpath(next((home_of(made) / "ship").glob("*.json")).name).unlink()
    assert ship(made, f"file://{path}").state.seq == made.journal.last_seq
    lines = [line for line in path.read_bytes().splitlines() if line in everything(made)]
    assert lines == everything(made)
    assert path.stat().st_mode & 0o077 == 0


def test_a_file_of_another_engine_takes_all(made: Generated, tmp_path: Path) -> None:
    """Its numbers are higher, or the same: no record of this engine passes for one that is there."""
    path, other = tmp_path / "handed.jsonl", Generated(tmp_path / "other" / "log", begin=1_780_000_000.0)
    other.start()
    other.work(400)
    theirs = everything(other)
    path.touch(0o600)
    path.write_bytes(b"\n".join(theirs) + b"\n")
    ship(made, f"file://{path}")
    made.work(20)
    ship(made, f"file://{path}")
    assert path.read_bytes().splitlines() == theirs + everything(made)


def test_killed_again_and_again(home: Path, tmp_path: Path) -> None:
    """kill -9 of the engine and of the process that hands its records on, at any moment: the journal checks, and the
    file has every line of it, once, in order."""
    path, dice = tmp_path / "handed.jsonl", random.Random(1)
    command = [*HATCHWAY, "events", "ship", f"file://{path}"]
    engine = EngineProcess(home)
    try:
        engine.start()
        for _ in range(4):
            shipper = subprocess.Popen(command, env=engine.environ, stderr=subprocess.DEVNULL)
            with httpx.Client(base_url=engine.url) as client:
                for _ in range(dice.randrange(5, 25)):
                    sign_in(client)
            time.sleep(dice.uniform(0, 1.0))
            shipper.kill()
            shipper.wait()
            engine.kill()
            engine.start()
        engine.terminate()
        subprocess.run([*command, "--once"], env=engine.environ, check=True, stderr=subprocess.DEVNULL)
        lines = [line.data for lines in read_after(home / "log", 0) for line in lines]
        assert path.read_bytes().splitlines() == lines
        assert json.loads(engine.command("events", "check", "--json"))["ok"]
    finally:
        engine.close()


# Syslog


@pytest.fixture(params=["tcp", "tls"])
def syslog(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Rsyslog, str, Path | None]]:
    """A receiver, its address as a target, and whom to trust."""
    authority = Authority(tmp_path) if request.param == "tls" else None
    receiver = Rsyslog(tmp_path / "rsyslog", authority).start()
    yield receiver, f"syslog+{request.param}://127.0.0.1:{receiver.port}", authority.path if authority else None
    receiver.stop()


@pytest.mark.rsyslog
def test_syslog_gets_all_in_order(made: Generated, syslog: tuple[Rsyslog, str, Path | None]) -> None:
    """Each record once, with its fields as structured data and its line as the text; a second run sends nothing."""
    receiver, target, ca = syslog
    for _ in range(2):
        assert ship(made, target, ca=ca).state.seq == made.journal.last_seq
    until(lambda: len(receiver.lines()) >= 301, what="all came")
    assert receiver.seqs() == list(range(1, made.journal.last_seq + 1))
    last = receiver.lines()[-1]
    assert last.startswith("hatchway ")
    assert last.endswith(everything(made)[-1].decode())
    assert json.loads(last[last.index("] {") + 2 :])["hash"]


@pytest.mark.rsyslog
def test_syslog_that_dies_loses_nothing(
    made: Generated, syslog: tuple[Rsyslog, str, Path | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ended and begun again while records come: all of them are there, in order but for those sent again."""
    monkeypatch.setattr(syslog_module, "TAKEN_AFTER", 1.0)
    receiver, target, ca = syslog
    with shipping(shipper_of(made, target, ca=ca)):
        for _ in range(3):
            made.work(60)
            until(lambda: made.journal.last_seq in receiver.seqs(), what="they came")
            receiver.stop()
            made.work(60)
            time.sleep(0.5)
            receiver.start()
        until(lambda: made.journal.last_seq in receiver.seqs(), what="the last came")
    seqs = receiver.seqs()
    assert sorted(set(seqs)) == list(range(1, made.journal.last_seq + 1))
    assert list(dict.fromkeys(seqs)) == sorted(set(seqs))


@contextmanager
def slow_reader(speed: int) -> Iterator[tuple[int, bytearray]]:
    """Its port, and what it has read: so many bytes every 10 ms, of one connection after another."""
    got, over = bytearray(), threading.Event()
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    listener.bind(("127.0.0.1", 0))
    listener.listen()
    listener.settimeout(0.05)

    def read() -> None:
        connection = None
        while not over.wait(0.01):
            try:
                connection = connection or listener.accept()[0]
                got.extend(data := connection.recv(speed))
            except TimeoutError:
                continue
            if not data:
                connection.close()
                connection = None

    thread = threading.Thread(target=read)
    thread.start()
    try:
        yield listener.getsockname()[1], got
    finally:
        over.set()
        thread.join()
        listener.close()


def test_syslog_that_reads_slowly_is_waited_for(made: Generated, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch takes it longer than a write may stand still: nothing is sent twice, and the position moves with what it
    has read, though its backlog never ends meanwhile."""
    monkeypatch.setattr(syslog_module, "PATIENCE", 1.0)
    monkeypatch.setattr(syslog_module, "TAKEN_AFTER", 0.1)
    made.work(9000)
    with slow_reader(65_536) as (port, got):
        shipper = shipper_of(made, f"syslog+tcp://127.0.0.1:{port}")
        with shipping(shipper):
            until(lambda: 0 < shipper.state.seq < made.journal.last_seq, what="the position moves")
            until(lambda: shipper.state.seq == made.journal.last_seq, what="all came")
    seqs = [int(found) for found in re.findall(rb'\[hatchway@32473 seq="(\d+)"', got)]
    assert seqs == list(range(1, made.journal.last_seq + 1))
    assert shipper.state.failures == 0


@pytest.mark.rsyslog
def test_syslog_may_want_a_certificate(made: Generated, tmp_path: Path) -> None:
    """A receiver that lets nobody in without one gets all from who shows it, and nothing from others."""
    authority = Authority(tmp_path)
    receiver = Rsyslog(tmp_path / "rsyslog", authority, certificates=True).start()
    try:
        target = f"syslog+tls://127.0.0.1:{receiver.port}"
        own = tmp_path / "own.pem"
        own.touch(0o600)
        own.write_bytes(b"".join(path.read_bytes() for path in authority.issue("engine")))
        with shipping(shipper_of(made, target, ca=authority.path)):
            until(lambda: any(one.failures for one in shipments.all_of(home_of(made))), what="it is refused")
        assert receiver.seqs() == []
        known = Options(SystemClock(), authority.path, b"", own)
        shipper = Shipper(home_of(made), target, target_of(target, known), Choice(), SystemClock())
        shipper.run(threading.Event(), once=True)
        until(lambda: len(receiver.seqs()) >= made.journal.last_seq, what="all came")
        assert sorted(set(receiver.seqs())) == list(range(1, made.journal.last_seq + 1))
        own.chmod(0o644)
        with pytest.raises(FileRefused):
            target_of(target, known)
        own.chmod(0o600)
        own.write_bytes(authority.path.read_bytes())
        with pytest.raises(TargetRefused, match="a certificate and its key"):
            target_of(target, known)
    finally:
        receiver.stop()


def test_a_message_keeps_its_form() -> None:
    """RFC 5424: quotes, backslashes and brackets in a value are escaped, and a name holds no space."""
    record = {"time": 1.5, "seq": 7, "kind": "refusal", "chart": "a b", "event": "x" * 40, "actor": 'q"u\\o]t'}
    told = syslog_module.message(Parcel(7, b"{}", record), "host").decode()
    assert told.startswith("<108>1 1970-01-01T00:00:01.500000Z host hatchway - a_b." + "x" * 28 + " [hatchway@32473 ")
    assert 'actor="q\\"u\\\\o\\]t"' in told
    assert told.endswith("] {}")


# OpenTelemetry


def test_a_collector_reads_it(made: Generated) -> None:
    """The protocol's own package decodes every request; each record once, in order, with its time, name and trace."""
    trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    origin = Origin("SHA256:x", "192.0.2.1", "a-1", trace)
    made.records.transition("session", "traced", "start", "none", "active", ("issue_token",), origin, None, SIGNED_IN)
    receiver = Receiver()
    with receiving(receiver) as port:
        ship(made, f"otlp+http://127.0.0.1:{port}")
    logs = []
    for got in receiver.taken:
        assert got.path == "/v1/logs"
        told = Parse(got.body, ExportLogsServiceRequest())
        logs += [log for resource in told.resource_logs for scope in resource.scope_logs for log in scope.log_records]
    assert [log.body.string_value.encode() for log in logs] == everything(made)
    last = {one.key: one.value for one in logs[-1].attributes}
    record = json.loads(everything(made)[-1])
    assert (last["hatchway.actor"].string_value, last["hatchway.seq"].int_value) == ("traced", record["seq"])
    assert abs(logs[-1].time_unix_nano / 1e9 - record["time"]) < 1e-5
    assert logs[-1].event_name == "session.start"
    # Trace IDs are hexadecimal in OTLP's JSON; the package's own JSON reads bytes as base64.
    assert b64encode(logs[-1].trace_id).decode() == trace.split("-")[1]


# Webhooks


def signed_well(got: object, secret: bytes) -> bool:
    headers, body = got.headers, got.body  # type: ignore[attr-defined]
    told = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
    version, _, signature = headers["webhook-signature"].partition(",")
    fresh = abs(int(headers["webhook-timestamp"]) - time.time()) < 300
    return version == "v1" and fresh and hmac.compare_digest(hmac.digest(secret, told, "sha256"), b64decode(signature))


@pytest.mark.parametrize("fault", [500, 503, 404, 302, "hang", "die", "deaf", "short", "trickle", "flood"])
def test_webhooks_outlast_a_failing_receiver(made: Generated, fault: str | int) -> None:
    """One that answers 500, hangs or dies now and then: every record comes, signed, in order, and again only where a
    connection broke, then under the same name."""
    faults = {3, 4, 17, 40} if fault in ("hang", "trickle") else {3, 4, 5, 17, 40, 41, 90}
    receiver = Receiver(lambda number: fault if number in faults else "take")
    with receiving(receiver) as port:
        ship(made, f"http://127.0.0.1:{port}/in", Choice(kinds=("refusal", "notice"), events=()))
        ship(made, f"http://127.0.0.1:{port}/in", Choice(charts=("pairing",)))
    wanted = [line for line in everything(made) if b'"kind":"refusal"' in line or b'"kind":"notice"' in line]
    wanted += [line for line in everything(made) if b'"chart":"pairing"' in line]
    assert len(wanted) > 60
    bodies = [json.loads(got.body) for got in receiver.taken]
    assert all(signed_well(got, SECRET) for got in receiver.taken)
    ids = [got.headers["webhook-id"] for got in receiver.taken]
    told = [body["data"] for body, name, before in zip(bodies, ids, [None, *ids], strict=False) if name != before]
    assert told == [json.loads(line) for line in wanted]
    again, failures = len(ids) - len(told), sum(one.failures for one in shipments.all_of(home_of(made)))
    assert again >= len(faults) * (fault == "die")
    refused = len(faults) * (fault not in ("die", "flood"))
    assert again <= failures - refused  # an answer that came too late is a failure, too
    assert {body["type"] for body in bodies} >= {"pairing.claim", "engine.start"}


def test_a_receiver_that_is_gone_is_let_be(made: Generated) -> None:
    """410: it wants no more. It is asked once, the position stays, and `/metrics` tells why."""
    receiver = Receiver(lambda number: 410)
    with receiving(receiver) as port, shipping(shipper_of(made, f"http://127.0.0.1:{port}/in")):
        until(lambda: any(one.error for one in shipments.all_of(home_of(made))), what="it is told")
        time.sleep(0.5)
    (told,) = shipments.all_of(home_of(made))
    assert (told.error, told.failures, told.seq, receiver.count) == ("it answered 410", 1, 0, 1)


def test_an_outage_is_told_and_ends(made: Generated) -> None:
    """Nobody listens for a while: the position stays, the error is told; afterwards all comes."""
    receiver = Receiver()
    with receiving(receiver) as port:
        pass
    target = f"http://127.0.0.1:{port}/in"
    shipper = shipper_of(made, target, Choice(kinds=("notice",)))
    with shipping(shipper):
        until(lambda: any(one.failures > 2 for one in shipments.all_of(home_of(made))), what="failures are told")
        (told,) = shipments.all_of(home_of(made))
        assert told.error
        assert (told.seq, told.sent) == (0, 0)
        with receiving(receiver, port=port):
            until(lambda: shipper.state.seq == made.journal.last_seq, what="all came")
    (told,) = shipments.all_of(home_of(made))
    assert (told.error, told.sent) == (None, 1)


def test_a_new_address_is_one_line(made: Generated, tmp_path: Path) -> None:
    """`--new-address`: a sign-in from where its identity has not been, over runs too; nothing else."""
    path = tmp_path / "new.jsonl"

    def start(address: str) -> None:
        origin = Origin("SHA256:bob", address, "a-1")
        name = f"n{made.journal.last_seq}"
        made.records.transition("session", name, "start", "none", "active", ("issue_token",), origin, None, SIGNED_IN)

    for address in ("198.51.100.1", "198.51.100.1", "198.51.100.2"):
        start(address)
    ship(made, f"file://{path}", Choice(new_address=True))
    for address in ("198.51.100.2", "198.51.100.3"):
        start(address)
    ship(made, f"file://{path}", Choice(new_address=True))
    told = [json.loads(line) for line in path.read_bytes().splitlines()]
    assert [one["address"] for one in told if one["identity"] == "SHA256:bob"] == [f"198.51.100.{n}" for n in (1, 2, 3)]
    assert {(one["chart"], one["event"]) for one in told} == {("session", "start")}
    whence = [(one["identity"], one["address"]) for one in told]
    assert len(whence) == len(set(whence))


def test_https_is_verified(made: Generated, tmp_path: Path) -> None:
    """A certificate of an authority that is trusted is taken, any other is not."""
    authority = Authority(tmp_path)
    trust = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    trust.load_cert_chain(*authority.issue("receiver"))
    receiver, notices = Receiver(), Choice(kinds=("notice",))
    with receiving(receiver, trust) as port:
        target = f"https://127.0.0.1:{port}/in"
        with shipping(shipper_of(made, target, notices)):
            until(lambda: any(one.error for one in shipments.all_of(home_of(made))), what="it is refused")
        assert "certificate" in (next(iter(shipments.all_of(home_of(made)))).error or "").lower()
        assert receiver.taken == []
        ship(made, target, notices, authority.path)
    assert len(receiver.taken) == 1


def test_an_address_is_asked_as_it_is_written(made: Generated) -> None:
    """Its path and query, its host with the port, and the user and password that it may name."""
    receiver = Receiver()
    with receiving(receiver) as port:
        ship(made, f"http://so%40me:w%3Ard@LOCALHOST:{port}/in/\u00fc%2f?to=a b&c=d", Choice(kinds=("notice",)))
        ship(made, f"http://127.0.0.1:{port}?to=all", Choice(kinds=("notice",)))
    one, other = receiver.taken
    assert (one.path, one.headers["host"]) == ("/in/%C3%BC%2f?to=a%20b&c=d", f"localhost:{port}")
    assert one.headers["authorization"] == f"Basic {b64encode(b'so@me:w:rd').decode()}"
    assert (other.path, other.headers["host"]) == ("/?to=all", f"127.0.0.1:{port}")
    assert "authorization" not in other.headers


@pytest.mark.parametrize(
    ("target", "why"),
    [
        ("ftp://host/x", "is no target"),
        ("syslog+tcp://log..example", "names no host"),
        (f"https://{'a' * 64}.example/x", "names no host"),
        ("https://a\u00df..b/x", "names no host"),
        ("syslog+udp://host", "is no target"),
        ("file:relative", "whole path"),
        ("https:///path", "names no host"),
        ("syslog+tls://host:port", "names no host"),
        ("http://example.net/in", "on a network"),
        ("otlp+http://192.0.2.1", "on a network"),
    ],
)
def test_what_is_no_target_is_refused(target: str, why: str) -> None:
    """In words that say what would be one."""
    with pytest.raises(TargetRefused, match=why):
        target_of(target, Options(SystemClock(), None, SECRET))


def test_a_webhook_wants_a_secret() -> None:
    """Unsigned it is not sent."""
    with pytest.raises(TargetRefused, match="--secret"):
        target_of("https://example.net/in", Options(SystemClock()))


# The command


def run(home: Path, *arguments: str, code: int = 0) -> str:
    environ = {**os.environ, "HATCHWAY_HOME": str(home)}
    done = completed(environ, "events", "ship", *arguments)
    assert done.returncode == code, done.stderr
    return done.stdout + done.stderr


@pytest.mark.process
def test_the_command(home: Path, tmp_path: Path) -> None:
    """It makes a secret, hands on what there is, one process a target; the engine's metrics tell how far it is."""
    with running_engine(home) as engine:
        secret, receiver = tmp_path / "hook.secret", Receiver()
        with receiving(receiver) as port:
            target = f"http://127.0.0.1:{port}/in?token=hidden"
            words = run(home, target, "--secret", str(secret), "--kind", "notice", "--once")
            assert "give it to whoever receives" in words
            key = b64decode(secret.read_text().strip().removeprefix("whsec_"))
            assert [signed_well(got, key) for got in receiver.taken] == [True]
            with httpx.Client(base_url=engine.url) as client:
                sign_in(client)
                text = client.get("/metrics").text
            name = f"http://127.0.0.1:{port}/in"
            assert f'hatchway_ship_backlog{{target="{name}"}} 1.0' in text
            assert f'hatchway_ship_failures{{target="{name}"}} 0.0' in text
            assert "hidden" not in text
        long = [*HATCHWAY, "events", "ship", f"file://{tmp_path}/all"]
        held = subprocess.Popen(long, env=engine.environ, stderr=subprocess.DEVNULL)
        until(lambda: (tmp_path / "all").exists(), what="it runs")
        assert "by another process" in run(home, f"file://{tmp_path}/all", code=1)
        held.send_signal(signal.SIGTERM)
        assert held.wait(20) == 0
        assert run(home, f"file://{tmp_path}/later", "--from-now", "--once") == ""
        assert not (tmp_path / "later").exists()
    assert "is no target" in run(home, "ftp://x", code=1)
    assert "'sesion' is not one of" in run(home, f"file://{tmp_path}/x", "--chart", "sesion", code=2)
    (tmp_path / "bad").touch(0o600)
    assert "must hold whsec_" in run(home, "https://x.example/", "--secret", str(tmp_path / "bad"), code=1)


@pytest.mark.systemd
def test_its_unit(home: Path, tmp_path: Path) -> None:
    """`--unit` prints one that systemd takes, and that runs the same command."""
    text = run(home, "syslog+tcp://127.0.0.1:601", "--kind", "refusal", "--unit")
    assert "events ship syslog+tcp://127.0.0.1:601 --kind refusal\n" in text
    path = tmp_path / "hatchway-ship.service"
    path.write_text(text)
    done = subprocess.run(
        ["systemd-analyze", "verify", "--user", str(path)], capture_output=True, text=True, check=False
    )
    assert str(path) not in done.stderr


def test_its_unit_names_files_wherever_it_is_started(home: Path, tmp_path: Path) -> None:
    """systemd starts it in another folder than the one in which it was printed."""
    authority = Authority(tmp_path).path
    text = run(home, "syslog+tls://127.0.0.1:6514", f"--ca={os.path.relpath(authority)}", "--unit")
    assert f" --ca={Path.cwd() / os.path.relpath(authority)}\n" in text

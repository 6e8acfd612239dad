"""TLS of a real engine: SIGHUP takes up another certificate, and drops nobody."""

from __future__ import annotations

import http.client
import itertools
import json
import os
import signal
import ssl
import time
from pathlib import Path

import pytest
import structlog.testing
import trio
from cryptography import x509
from cryptography.hazmat.primitives import serialization

from hatchway.api.cli.pins import fingerprint
from hatchway.api.server.tls import IN_TIME, LOOK_INTERVAL, VALID, Tls, keep_in_time
from hatchway.engine.base.errors import SettingRefused
from hatchway.engine.base.files import make_private_dir
from hatchway.engine.settings.settings import Settings
from tests.support.certificate_authority import Authority
from tests.support.fakes import run_in_virtual_time
from tests.support.processes import START_SECONDS, EngineProcess, tls_engine
from tests.support.waits import until

pytestmark = pytest.mark.process


def test_a_reload_drops_no_connection(home: Path) -> None:
    """After SIGHUP a new connection sees the new certificate; one that was open answers on, on the same socket."""
    unchecked = ssl._create_unverified_context()
    with tls_engine(home) as engine:
        port = int(engine.url.rpartition(":")[2])
        first = ssl.get_server_certificate(("127.0.0.1", port))
        kept = http.client.HTTPSConnection("127.0.0.1", port, timeout=10, context=unchecked)
        assert ask(kept) == 200
        connection = kept.sock
        assert connection is not None
        (home / "tls-cert.pem").unlink()
        engine.process.send_signal(signal.SIGHUP)
        until = time.monotonic() + START_SECONDS
        while ssl.get_server_certificate(("127.0.0.1", port)) == first:
            assert time.monotonic() < until, "the old certificate is still shown"
            time.sleep(0.05)
        assert ask(kept) == 200
        assert kept.sock is connection
        kept.close()


def test_a_certificate_that_cannot_be_used_leaves_all_as_it_was(home: Path) -> None:
    """The reload is refused as a whole: the old certificate, the old settings, and no record of a reload."""
    with tls_engine(home) as engine:
        port = int(engine.url.rpartition(":")[2])
        first = ssl.get_server_certificate(("127.0.0.1", port))
        (home / "tls-cert.pem").write_text("no certificate")
        engine.command("config", "set", "limits.failed_verifies", "1")
        engine.command("engine", "reload", code=1)
        assert ssl.get_server_certificate(("127.0.0.1", port)) == first
        assert '"event":"reload"' not in (home / "log" / "events.jsonl").read_text()
        statuses = {failed_verify(port) for _ in range(3)}
        assert statuses == {401}


def test_each_certificate_that_is_shown_is_on_record(home: Path) -> None:
    """At the start and when another one is taken up, by its fingerprint; a reload that finds the same says nothing."""
    path = home / "log" / "events.jsonl"

    def told() -> list[str]:
        found = map(json.loads, path.read_text().splitlines())
        return [one["cause"] for one in found if one["event"] == "certificate_shown"]

    def shown() -> str:
        return str(json.loads(engine.command("engine", "status", "--json"))["fingerprint"])

    with tls_engine(home) as engine:
        first = shown()
        assert told() == [first]
        engine.command("engine", "reload")
        assert told() == [first]
        (home / "tls-cert.pem").unlink()
        engine.command("engine", "reload")
        assert told() == [first, shown()]
        assert first != shown()
        listed = engine.command("events", "--chart", "engine")
        assert "certificate_shown" in listed
        assert shown() in listed
        engine.command("events", "check")


def test_a_key_that_the_engine_may_not_read_is_named(home: Path, tmp_path: Path) -> None:
    """Certificate and key are two files: which of them is wanting is said."""
    certificate, private = Authority(tmp_path).issue("engine")
    private.unlink()
    with pytest.raises(SettingRefused, match=f"No such file or directory: '{private}'"):
        Tls(home, Settings(tls_cert=certificate, tls_key=private))


def test_a_key_with_a_passphrase_is_refused(home: Path, tmp_path: Path) -> None:
    """In words: nobody is there to be asked for it when a host starts, or an engine reads its certificate again."""
    certificate, private = Authority(tmp_path).issue("engine")
    key = serialization.load_pem_private_key(private.read_bytes(), None)
    locked = serialization.BestAvailableEncryption(b"secret")
    forms = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    private.write_bytes(key.private_bytes(*forms, locked))
    with pytest.raises(SettingRefused, match="the key has a passphrase"):
        Tls(home, Settings(tls_cert=certificate, tls_key=private))


@pytest.mark.parametrize("which", ["tls_cert", "tls_key", "self-made"])
def test_a_pipe_is_no_certificate(home: Path, tmp_path: Path, which: str) -> None:
    """It is not waited for, since nobody may ever write it: a reload and a start refuse it, and a running engine goes
    on with what it has."""
    certificate, private = Authority(tmp_path).issue("engine")
    path = {"tls_cert": certificate, "tls_key": private}.get(which, home / "tls-cert.pem")
    given = {"HATCHWAY_TLS_CERT": str(certificate), "HATCHWAY_TLS_KEY": str(private)}
    engine = EngineProcess(home, **({"HATCHWAY_TLS": "auto"} if which == "self-made" else given))
    try:
        engine.start()
        before = ssl.get_server_certificate(("127.0.0.1", engine.port), timeout=10)
        path.unlink()
        os.mkfifo(path, 0o600)
        engine.command("engine", "reload", code=1)
        assert ssl.get_server_certificate(("127.0.0.1", engine.port), timeout=10) == before
        engine.terminate()
        engine.begin()
        assert engine.process.wait(30) == 1
        assert f"{path} is not a plain file" in engine.log()
    finally:
        engine.close()


def failed_verify(port: int) -> int:
    connection = http.client.HTTPSConnection("127.0.0.1", port, context=ssl._create_unverified_context())
    said = {"Content-Type": "application/json"}
    connection.request("POST", "/api/auth/verify/", b'{"nonce":"a","signature":"b"}', said)
    answer = connection.getresponse()
    answer.read()
    connection.close()
    return answer.status


def ask(connection: http.client.HTTPSConnection) -> int:
    connection.request("GET", "/healthz")
    answer = connection.getresponse()
    answer.read()
    return answer.status


AUTO = Settings(tls="auto")
YEAR = 365 * 86400.0


def made_at(home: Path, wall: float) -> x509.Certificate:
    """The self-made certificate of an engine that starts on `home` when its clock says `wall`."""
    make_private_dir(home)
    made = Tls(home, AUTO, lambda: wall)
    assert not made.is_due()
    return x509.load_pem_x509_certificate((home / "tls-cert.pem").read_bytes())


def test_a_self_made_certificate_is_made_anew_in_time(home: Path) -> None:
    """E27: at a start within 30 days of its end, after it, or before its beginning there is a new one, signed with the
    old one's key; at any other start it stays."""
    now, valid, ahead = time.time(), VALID.total_seconds(), IN_TIME.total_seconds()
    first = made_at(home, now)
    assert made_at(home, now + valid - ahead - 60) == first
    for wall in (now + valid - ahead + 60, 4 * 86400.0, now, now + 11 * YEAR, now):
        anew = made_at(home, wall)
        assert anew != first
        anew.verify_directly_issued_by(first)
        assert anew.not_valid_before_utc.timestamp() <= wall < anew.not_valid_after_utc.timestamp() - ahead
        first = anew


def test_a_key_that_is_none_of_ours_makes_no_certificate(home: Path) -> None:
    """E27: what can't be made anew is told with the files' names, and stays as it is."""
    made_at(home, 86400.0)
    before = (home / "tls-cert.pem").read_bytes()
    (home / "tls-key.pem").write_text("no key")
    with pytest.raises(SettingRefused, match=r"tls-cert.pem and tls_key .*tls-key.pem can't be used"):
        made_at(home, time.time())
    assert (home / "tls-cert.pem").read_bytes() == before


def test_a_clock_that_is_set_right_makes_it_anew_while_the_engine_runs(home: Path) -> None:
    """E27: an engine that starts in 1970 has a good certificate a minute after its clock is right; a refusal in
    between is tried again."""
    make_private_dir(home)
    now = [86400.0]
    tls = Tls(home, AUTO, lambda: now[0])
    tries: list[float] = []

    async def take_up() -> None:
        tries.append(trio.current_time())
        if len(tries) == 1:
            raise SettingRefused("the disk is full")
        tls.reload(AUTO)

    async def run() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(keep_in_time, tls, take_up)
            await trio.sleep(10 * LOOK_INTERVAL + 1)
            assert tries == []
            now[0] = time.time()
            await trio.sleep(5 * LOOK_INTERVAL)
            nursery.cancel_scope.cancel()

    run_in_virtual_time(run)
    assert [b - a for a, b in itertools.pairwise(tries)] == [LOOK_INTERVAL]
    assert not tls.is_due()


def test_an_engine_of_a_dead_certificate_is_found(home: Path, tmp_path: Path) -> None:
    """E27: the first start was in 1970; the next one is answered, by whoever pinned the dead one too, and its
    fingerprint is in the log, where there is no terminal to print it on."""
    dead = made_at(home, 4 * 86400.0)
    with tls_engine(home) as engine:
        shown = ssl.get_server_certificate(("127.0.0.1", int(engine.url.rpartition(":")[2])))
        assert x509.load_pem_x509_certificate(shown.encode()) != dead
        engine.command("engine", "ping")
        until(lambda: fingerprint(shown) in engine.log(), what="the log")
        away = EngineProcess(tmp_path / "away")
        away.command("login", "--url", engine.url, "--key", str(home / "private-key.pem"))
        away.command("session", "list")


def test_a_tls_key_that_others_may_read_is_warned_of(home: Path) -> None:
    """E11: the operator's own key is used all the same, and the log has the command that mends it."""
    made_at(home, time.time())
    (home / "tls-key.pem").chmod(0o644)
    told = Settings(tls_cert=home / "tls-cert.pem", tls_key=home / "tls-key.pem")
    with structlog.testing.capture_logs() as logged:
        Tls(home, told)
    assert [line["event"] for line in logged] == ["tls_key_open_to_others"]
    assert "chmod 600" in logged[0]["why"]

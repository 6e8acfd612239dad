"""TLS of a real engine: SIGHUP takes up another certificate, and drops nobody."""

from __future__ import annotations

import http.client
import signal
import ssl
import time
from pathlib import Path

import pytest

from tests.processes import START_SECONDS, tls_engine

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

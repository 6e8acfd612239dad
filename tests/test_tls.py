"""TLS of a real engine: SIGHUP takes up another certificate, and drops nobody."""

from __future__ import annotations

import http.client
import signal
import ssl
import time
from pathlib import Path

import pytest

from tests.test_cli_engine import tls_engine

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
        until = time.monotonic() + 10
        while ssl.get_server_certificate(("127.0.0.1", port)) == first:
            assert time.monotonic() < until, "the old certificate is still shown"
            time.sleep(0.05)
        assert ask(kept) == 200
        assert kept.sock is connection
        kept.close()


def ask(connection: http.client.HTTPSConnection) -> int:
    connection.request("GET", "/healthz")
    answer = connection.getresponse()
    answer.read()
    return answer.status

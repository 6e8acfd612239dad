"""Self-signed certificates: remembered once, refused when they change, and nothing sent to the false one."""

from __future__ import annotations

import datetime
import ssl
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding

from api.cli.pins import CertificateChanged, fingerprint, tls_for
from api.client import Client, Unreachable
from tests.fakes import key
from tests.false_engine import answer, false_engine, stored


def certificate(folder: Path, name: str) -> Path:
    """A self-signed certificate; its key is beside it."""
    private = key(name)
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder(subject, subject, private.key.public_key(), 1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .sign(private.key, SHA256())
    )
    path = folder / f"{name}.crt"
    path.write_bytes(made.public_bytes(Encoding.PEM))
    path.with_suffix(".pem").write_bytes(private.pem())
    return path


def load(context: ssl.SSLContext, certificate: Path) -> None:
    """Show this certificate from now on."""
    context.load_cert_chain(certificate, certificate.with_suffix(".pem"))


@contextmanager
def served(chain: Path) -> Iterator[tuple[str, list[bytes], ssl.SSLContext]]:
    """A TLS server that answers inspect; its context takes another certificate while it runs."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    load(context, chain)
    with false_engine(lambda _: answer(200, b'{"sessions": []}'), context) as (url, requests):
        yield url, requests, context


def ask(home: Path, url: str, *, expected: str | None = None, accept: bool = False) -> None:
    with Client(url, stored=stored(url), tls=tls_for(home, url, expected=expected, accept=accept)) as client:
        assert client.sessions() == []


def test_pinned_once_and_refused_when_it_changes(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The first meeting says the fingerprint, later ones are silent, another certificate is refused loudly."""
    first, second = certificate(tmp_path, "first"), certificate(tmp_path, "second")
    with served(first) as (url, requests, context):
        ask(home, url)
        assert fingerprint(first.read_text()) in capsys.readouterr().err
        ask(home, url)
        assert capsys.readouterr().err == ""
        assert len(requests) == 2
        load(context, second)
        with pytest.raises(CertificateChanged, match=r"HAS CHANGED.*--accept-certificate") as refused:
            ask(home, url)
        assert all(fingerprint(path.read_text()) in refused.value.detail for path in (first, second))
        assert len(requests) == 2
        ask(home, url, accept=True)
        ask(home, url)
        assert len(requests) == 4
    assert stat.S_IMODE((home / "known_engines").stat().st_mode) == 0o600


def test_the_word_of_this_hosts_engine_counts_for_more(home: Path, tmp_path: Path) -> None:
    """A certificate that the operator socket vouches for replaces a pin; one that it doesn't is refused."""
    first, second = certificate(tmp_path, "first"), certificate(tmp_path, "second")
    with served(first) as (url, requests, context):
        ask(home, url)
        load(context, second)
        ask(home, url, expected=fingerprint(second.read_text()))
        ask(home, url)
        with pytest.raises(CertificateChanged, match="not this host's engine"):
            ask(home, url, expected=fingerprint(first.read_text()))
    assert len(requests) == 3


def test_a_pin_is_for_one_certificate_alone(home: Path, tmp_path: Path) -> None:
    """What slips in between the look and the call gets no request either."""
    first, second = certificate(tmp_path, "first"), certificate(tmp_path, "second")
    with served(first) as (url, requests, context):
        tls = tls_for(home, url)
        load(context, second)
        with Client(url, stored=stored(url), tls=tls) as client, pytest.raises(Unreachable, match="certificate"):
            client.sessions()
        assert requests == []


def test_plain_http_and_a_dead_port(home: Path) -> None:
    """Without TLS there is nothing to pin; without an engine the refusal is the usual one."""
    assert tls_for(home, "http://127.0.0.1:1") is None
    with pytest.raises(Unreachable, match=r"no engine answers at https://127.0.0.1:1"):
        tls_for(home, "https://127.0.0.1:1")

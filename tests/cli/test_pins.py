"""Self-signed certificates: remembered once, refused when they change, and nothing sent to the false one."""

from __future__ import annotations

import datetime
import ipaddress
import socket
import ssl
import stat
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from email.utils import formatdate
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding

from hatchway.api.cli.failures import failure_of
from hatchway.api.cli.host import Here, store_token
from hatchway.api.cli.pins import CertificateChanged, fingerprint, tls_for
from hatchway.api.client import Client, Unreachable
from hatchway.api.client.wire import CertificateRefused
from tests.support.fakes import key
from tests.support.false_engine import answer, false_engine, stored

DAY = datetime.timedelta(days=1)


def certificate(
    folder: Path, name: str, by: str | None = None, *, days: int = 0, lasting: int = 1, named: str | None = None
) -> Path:
    """A certificate for 127.0.0.1, valid `lasting` days around today or `days` from it; its key is beside it.

    Signed by itself or by `by`; `named` is who it says has signed it, where that is not true.
    """
    private, signing = key(name), key(by or name)
    subject, issuer = (
        x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, text)]) for text in (name, named or by or name)
    )
    now = datetime.datetime.now(datetime.UTC) + days * DAY
    # Python 3.13 believes no authority without these (VERIFY_X509_STRICT).
    usage = x509.KeyUsage(True, False, False, False, False, by is None, False, False, False)
    signer = x509.AuthorityKeyIdentifier.from_issuer_public_key(signing.key.public_key())
    made = (
        x509.CertificateBuilder(issuer, subject, private.key.public_key(), x509.random_serial_number())
        .not_valid_before(now - lasting * DAY)
        .not_valid_after(now + lasting * DAY)
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=by is None, path_length=None), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(private.key.public_key()), critical=False)
        .add_extension(signer, critical=False)
        .sign(signing.key, SHA256())
    )
    path = folder / f"{name}.crt"
    path.write_bytes(made.public_bytes(Encoding.PEM))
    path.with_suffix(".pem").write_bytes(private.pem())
    return path


def load(context: ssl.SSLContext, certificate: Path) -> None:
    """Show this certificate from now on."""
    context.load_cert_chain(certificate, certificate.with_suffix(".pem"))


@contextmanager
def served(chain: Path, *, days: int = 0) -> Iterator[tuple[str, list[bytes], ssl.SSLContext]]:
    """A TLS server that answers, `days` from today by its clock; its context takes another certificate as it runs."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    load(context, chain)
    date = formatdate(time.time() + days * DAY.total_seconds(), usegmt=True)
    with false_engine(lambda _: answer(200, b'{"sessions": []}', f"Date: {date}"), context) as (url, requests):
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


@pytest.fixture
def authority(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of the one authority that this machine believes."""
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate(tmp_path, "root")))
    return "root"


def test_after_an_authoritys_word_less_is_a_change(home: Path, tmp_path: Path, authority: str) -> None:
    """E6: who was vouched for by an authority is not believed with a certificate of its own, until that is accepted."""
    with served(certificate(tmp_path, "first", authority)) as (url, requests, context):
        ask(home, url)
        load(context, certificate(tmp_path, "second"))
        with pytest.raises(CertificateChanged, match=r"an authority vouches for.*login --url .* --accept-certificate"):
            ask(home, url)
        assert len(requests) == 1
        ask(home, url, accept=True)
        ask(home, url)
        assert len(requests) == 3


def test_after_tls_plain_http_is_a_change(home: Path, tmp_path: Path) -> None:
    """E6: an address that spoke TLS is not spoken to in clear, until that is accepted."""
    with served(certificate(tmp_path, "first")) as (url, _, _):
        ask(home, url)
    plain = url.replace("https:", "http:")
    for _ in range(2):
        with pytest.raises(CertificateChanged, match="plain HTTP"):
            tls_for(home, plain)
    assert tls_for(home, plain, accept=True) is None
    assert tls_for(home, plain) is None


def test_tls_to_an_engine_without_it(home: Path) -> None:
    """An engine that was started again without TLS is not said to be away: the words lead to where it is."""
    with socket.create_server(("127.0.0.1", 0)) as listening, ThreadPoolExecutor(1) as others:
        address = f"127.0.0.1:{listening.getsockname()[1]}"

        def answer_in_clear() -> None:
            peer, _ = listening.accept()
            with peer:
                peer.recv(65536)
                peer.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")

        others.submit(answer_in_clear)
        with pytest.raises(
            CertificateRefused, match=f"speaks no TLS.*hatchway login --url http://{address} --accept-certificate"
        ):
            tls_for(home, f"https://{address}")


@pytest.mark.usefixtures("command_folder")
def test_nothing_is_trusted_at_first_use_where_a_token_could_go(home: Path, tmp_path: Path) -> None:
    """E6: only `login` and `pair` meet an engine for the first time, and not one that a token is stored for."""
    store_at = "https://127.0.0.1:1"
    with served(certificate(tmp_path, "first")) as (url, requests, _):
        for where in (url, store_at):
            store_token(home, stored(where))
            with pytest.raises(CertificateRefused, match="--accept-certificate"), Here(url).client() as client:
                client.sessions()
        store_token(home, stored(url))
        with pytest.raises(CertificateRefused, match="no authority"), Here(url).client(fresh=True):
            pass
        assert requests == []
        store_token(home, stored(store_at))
        with Here(url).client(fresh=True):
            pass
        store_token(home, stored(url))
        with Here(url).client() as client:
            assert client.sessions() == []


@pytest.mark.parametrize("days", [-800, 800])
def test_what_its_pin_vouches_for_has_no_dates(home: Path, tmp_path: Path, days: int) -> None:
    """E27: a certificate that has ended, or is not valid yet, by either clock, is pinned and used like any other."""
    with served(certificate(tmp_path, "first", days=days)) as (url, requests, _):
        ask(home, url)
        ask(home, url)
        assert len(requests) == 2


def test_a_pin_follows_the_signature_of_its_key(home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """E27: what the pinned key has signed is taken, said and pinned; what calls itself so without its key is not."""
    with served(certificate(tmp_path, "first", days=-800)) as (url, requests, context):
        ask(home, url)
        load(context, certificate(tmp_path, "first"))
        ask(home, url)
        load(context, certificate(tmp_path, "second", "first"))
        capsys.readouterr()
        ask(home, url)
        said = capsys.readouterr().err
        assert "signed by the one before" in said
        assert fingerprint((tmp_path / "second.crt").read_text()) in said
        false = tmp_path / "false"
        false.mkdir()
        # Its issuer is named as the pinned one is, and has another key.
        forged = certificate(false, "third", "third", named="second")
        load(context, forged)
        with pytest.raises(CertificateChanged):
            ask(home, url)
        assert len(requests) == 3


@pytest.mark.parametrize(("days", "words"), [(-800, "has expired"), (800, "is not valid yet")])
@pytest.mark.usefixtures("authority")
def test_a_wrong_clock_is_told_for_what_it_is(home: Path, tmp_path: Path, days: int, words: str) -> None:
    """E27: where an authority vouches for another time than our clock's, that is said, with how wrong the clock is; it
    is neither a dead engine nor a certificate to be pinned. The Python client says so too."""
    (tmp_path / "root.crt").write_bytes(certificate(tmp_path, "root", lasting=2000).read_bytes())
    with served(certificate(tmp_path, "first", "root", days=days), days=days) as (url, requests, _):
        skew = rf"this machine's clock is \d+ s {'ahead' if days < 0 else 'behind'}"
        with pytest.raises(CertificateRefused, match=rf"{words} by this machine's clock; {skew}") as refused:
            ask(home, url)
        told = failure_of(refused.value)
        assert told is not None
        assert told[1] == ()
        assert not (home / "known_engines").exists()
        with Client(url, stored=stored(url)) as client, pytest.raises(CertificateRefused, match="certificate"):
            client.sessions()
        assert [request.split()[1] for request in requests] == [b"/healthz"]

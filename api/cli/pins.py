"""Self-signed certificates: pinned the first time an engine is met, refused loudly when they change."""

from __future__ import annotations

import hashlib
import socket
import ssl
from pathlib import Path
from urllib.parse import urlsplit

import click
import msgspec

from api.wire import ClientFault, Unreachable, dialled
from engine.files import locked, make_private_dir, read_private, write_private

KNOWN = "known_engines"
WAIT = 5.0
"""Seconds for a handshake."""

Pins = dict[str, str]
"""Host and port as dialled to the certificate, PEM."""


class CertificateChanged(ClientFault):
    """Another certificate than the pinned one: a new one of the engine's, or somebody in between."""


def tls_for(home: Path, url: str, *, expected: str | None = None, accept: bool = False) -> ssl.SSLContext | None:
    """How to speak TLS with `url`; None for plain HTTP.

    A certificate that the system's authorities vouch for needs no pin. `expected` is the fingerprint that the engine
    of this host told over the operator socket: it counts for more than any pin. `accept` replaces a pin.
    """
    if urlsplit(url).scheme != "https":
        return None
    host = dialled(url)
    pinned = None if accept else _pins(home).get(host)
    if expected is None and pinned is None and _is_vouched_for(url):
        return ssl.create_default_context()
    shown = _certificate(url)
    if expected is not None and fingerprint(shown) != expected:
        raise CertificateChanged(f"{host} is not this host's engine: its certificate is another one")
    if expected is None and pinned is not None and fingerprint(shown) != fingerprint(pinned):
        raise CertificateChanged(
            f"THE CERTIFICATE OF {host} HAS CHANGED. It was {fingerprint(pinned)}, and is now {fingerprint(shown)}: "
            "somebody may be listening in. Nothing was sent. If the engine's owner confirms the new one: "
            f"hatchway login --url {url} --accept-certificate"
        )
    if pinned != shown:
        _pin(home, host, shown)
        if expected is None:
            click.echo(f"the certificate of {host} is self-signed; remembered as {fingerprint(shown)}", err=True)
    return _only(shown)


def fingerprint(pem: str) -> str:
    """SHA-256 of the certificate, in the form that browsers and `openssl x509 -fingerprint` show."""
    digest = hashlib.sha256(ssl.PEM_cert_to_DER_cert(pem)).hexdigest().upper()
    return ":".join(digest[place : place + 2] for place in range(0, 64, 2))


def _only(pem: str) -> ssl.SSLContext:
    """Trusts this one certificate, whatever name it is for: the pin says whose it is."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.load_verify_locations(cadata=pem)
    return context


def _is_vouched_for(url: str) -> bool:
    try:
        _shake_hands(url, ssl.create_default_context())
    except ssl.SSLCertVerificationError:
        return False
    return True


def _certificate(url: str) -> str:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE  # only to look at it: what follows is refused unless it is the pinned one
    return ssl.DER_cert_to_PEM_cert(_shake_hands(url, context))


def _shake_hands(url: str, context: ssl.SSLContext) -> bytes:
    parts = urlsplit(url)
    address = (parts.hostname or "", parts.port or 443)
    try:
        with (
            socket.create_connection(address, WAIT) as plain,
            context.wrap_socket(plain, server_hostname=address[0]) as secured,
        ):
            return secured.getpeercert(binary_form=True) or b""
    except ssl.SSLCertVerificationError:
        raise
    except OSError as fault:
        raise Unreachable(f"no engine answers at {url}: {fault}", sent=False) from None


def _pins(home: Path) -> Pins:
    try:
        return msgspec.json.decode(read_private(home / KNOWN), type=Pins)
    except FileNotFoundError:
        return {}
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise ClientFault(f"{home / KNOWN} is damaged; it is made anew once you remove it") from None


def _pin(home: Path, host: str, pem: str) -> None:
    make_private_dir(home)
    with locked(home / f"{KNOWN}.lock"):
        write_private(home / KNOWN, msgspec.json.encode(_pins(home) | {host: pem}), overwrite=True)

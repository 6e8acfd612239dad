"""TLS: the operator's certificate, or one that is made here. A reload takes a new one up, and no connection ends."""

from __future__ import annotations

import datetime
import ipaddress
import os
import socket
import ssl
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import structlog
import trio
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import NameOID

from hatchway.engine.base import files
from hatchway.engine.base.clock import SystemClock
from hatchway.engine.base.errors import FileRefused, Refusal, SettingRefused
from hatchway.engine.settings.kinds import wire_name
from hatchway.engine.settings.settings import Settings

VALID = datetime.timedelta(days=3650)
"""How long a self-made certificate lasts: long, since clients pin it."""

IN_TIME = datetime.timedelta(days=30)
"""How long before its end a self-made certificate is made anew."""

LOOK_INTERVAL = 60.0
"""Seconds between two checks whether it is time for that. (A clock that is wrong at the start is set right later.)"""

log = structlog.get_logger(__name__)


class Tls:
    """Holds the TLS context of new connections. `fingerprint` is the certificate's SHA-256, for people to compare;
    `ends_at` when the certificate ends, in epoch seconds."""

    def __init__(self, home: Path, settings: Settings, wall: Callable[[], float] | None = None) -> None:
        """`wall` tells the time in seconds since the epoch; by default the host's clock."""
        self._home, self._wall = home, wall or SystemClock().wall
        self.reload(settings)

    def __call__(self) -> ssl.SSLContext:
        return self._context

    def reload(self, settings: Settings) -> None:
        """Read certificate and key again. Raises SettingRefused where they don't fit, and keeps the old ones."""
        cert, key = settings.tls_cert, settings.tls_key
        self_made = cert is None or key is None
        if cert is None or key is None:
            cert, key = self._self_signed(settings)
        else:
            _warn_if_shared(key)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols(["h2", "http/1.1"])
        try:
            # OpenSSL names no file in its error, and would wait for a pipe that nobody writes.
            chain, _ = _read(cert), _read(key)
            context.load_cert_chain(cert, key, _no_passphrase)
            shown = x509.load_pem_x509_certificate(chain)
        except (OSError, ValueError, FileRefused) as error:
            raise _unusable(cert, key, error) from None
        self._context, self.fingerprint = context, fingerprint_of(shown)
        self.ends_at = shown.not_valid_after_utc.timestamp()
        self._self_made = shown if self_made else None

    def is_due(self) -> bool:
        """Whether the certificate in use is self-made and to be made anew: near its end, past it, or not valid yet."""
        return self._self_made is not None and self._is_due(self._self_made)

    def _is_due(self, made: x509.Certificate) -> bool:
        now = datetime.datetime.fromtimestamp(self._wall(), datetime.UTC)
        return not made.not_valid_before_utc <= now < made.not_valid_after_utc - IN_TIME

    def _self_signed(self, settings: Settings) -> tuple[Path, Path]:
        cert, key = self._home / "tls-cert.pem", self._home / "tls-key.pem"
        if cert.exists() and key.exists():
            files.check_private(key)
            self._make_in_time(cert, key, settings)
            return cert, key
        private = ec.generate_private_key(ec.SECP256R1())
        pem = private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        files.write_private(key, pem)
        self._write(cert, private, settings)
        return cert, key

    def _make_in_time(self, cert: Path, key: Path, settings: Settings) -> None:
        """Make a new certificate where the present one is due, for the same key. It is signed with that key, and so
        clients that have pinned the old one accept it."""
        try:
            if not self._is_due(x509.load_pem_x509_certificate(_read(cert))):
                return
            private = load_pem_private_key(_read(key), None)
        except (OSError, ValueError, TypeError, FileRefused) as error:
            raise _unusable(cert, key, error) from None
        if not isinstance(private, ec.EllipticCurvePrivateKey):
            raise _unusable(cert, key, "the key is of another kind than we make")
        made = self._write(cert, private, settings)
        log.warning("certificate_made_anew", sha256=fingerprint_of(made), until=f"{made.not_valid_after_utc:%Y-%m-%d}")

    def _write(self, cert: Path, private: ec.EllipticCurvePrivateKey, settings: Settings) -> x509.Certificate:
        now = datetime.datetime.fromtimestamp(self._wall(), datetime.UTC)
        made = _certificate(private, _names(settings), now)
        files.write_private(cert, made.public_bytes(Encoding.PEM))
        return made


async def keep_in_time(tls: Tls, take_up: Callable[[], Awaitable[object]]) -> None:
    """Call `take_up` whenever a new certificate is due, for ever. Where it fails it is called again later."""
    while True:
        await trio.sleep(LOOK_INTERVAL)
        if tls.is_due():
            try:
                await take_up()
            except Refusal as refused:
                log.warning("certificate_not_made_anew", why=refused.detail)


def _read(path: Path) -> bytes:
    with os.fdopen(files.open_to_read(path), "rb") as file:
        return file.read()


def _no_passphrase() -> str:
    """OpenSSL itself would ask at the terminal, and the engine would wait for the answer."""
    raise ValueError("the key has a passphrase: take it off with openssl rsa, or openssl ec")


def _warn_if_shared(key: Path) -> None:
    try:
        files.check_unshared(key)
    except FileRefused as refused:
        log.warning("tls_key_open_to_others", why=refused.detail)
    except OSError:
        pass  # the refusal comes where the key is read


def _unusable(cert: Path, key: Path, why: object) -> SettingRefused:
    return SettingRefused(f"tls_cert {cert} and tls_key {key} can't be used: {why}")


def fingerprint_of(certificate: x509.Certificate) -> str:
    """SHA-256 of the DER, in upper-case hex pairs, as browsers and openssl show it."""
    return ":".join(f"{byte:02X}" for byte in certificate.fingerprint(SHA256()))


def wanted(settings: Settings) -> bool:
    """Whether this engine speaks TLS."""
    return settings.tls == "auto" or settings.tls_cert is not None


def _names(settings: Settings) -> list[x509.GeneralName]:
    hosts = {"localhost", "127.0.0.1", "::1", settings.host}
    with suppress(ValueError):  # a host may have a name that is no name on the network
        hosts.add(wire_name(socket.gethostname()))
    hosts |= {address.rpartition(":")[0].strip("[]") for address in settings.addresses}
    return [_name(host) for host in sorted(hosts)]


def _name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _certificate(
    key: ec.EllipticCurvePrivateKey, names: list[x509.GeneralName], now: datetime.datetime
) -> x509.Certificate:
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "hatchway")])
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + VALID)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    )
    return builder.sign(key, SHA256())

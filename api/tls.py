"""TLS: the operator's certificate, or one made at first start; taken up anew on reload without dropping anybody."""

from __future__ import annotations

import datetime
import ipaddress
import socket
import ssl
from contextlib import suppress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from engine import files
from engine.errors import SettingRefused
from engine.setting_kinds import wire_name
from engine.settings import Settings

VALID = datetime.timedelta(days=3650)
"""How long a self-made certificate lasts: those who pin it should not have to do so often."""


class Tls:
    """The context that new connections get. `fingerprint` is that of the certificate, to be compared by people."""

    def __init__(self, home: Path, settings: Settings) -> None:
        self._home = home
        self.reload(settings)

    def __call__(self) -> ssl.SSLContext:
        return self._context

    def reload(self, settings: Settings) -> None:
        """Read certificate and key again. Raises SettingRefused, and keeps the old ones, where they don't fit."""
        cert, key = settings.tls_cert, settings.tls_key
        if cert is None or key is None:
            cert, key = self._self_signed(settings)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols(["h2", "http/1.1"])
        try:
            context.load_cert_chain(cert, key)
            self.fingerprint = fingerprint_of(x509.load_pem_x509_certificate(Path(cert).read_bytes()))
        except (OSError, ValueError) as error:
            raise SettingRefused(f"tls_cert {cert} and tls_key {key} can't be used: {error}") from None
        self._context = context

    def _self_signed(self, settings: Settings) -> tuple[Path, Path]:
        cert, key = self._home / "tls-cert.pem", self._home / "tls-key.pem"
        if cert.exists() and key.exists():
            files.check_private(key)
            return cert, key
        private = ec.generate_private_key(ec.SECP256R1())
        made = _certificate(private, _names(settings))
        pem = private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        files.write_private(key, pem)
        files.write_private(cert, made.public_bytes(Encoding.PEM))
        return cert, key


def fingerprint_of(certificate: x509.Certificate) -> str:
    """SHA-256 of the DER, in upper-case hex pairs, as browsers and openssl show it."""
    return ":".join(f"{byte:02X}" for byte in certificate.fingerprint(SHA256()))


def wanted(settings: Settings) -> bool:
    """Whether this engine speaks TLS."""
    return settings.tls == "auto" or settings.tls_cert is not None


def _names(settings: Settings) -> list[x509.GeneralName]:
    hosts = {"localhost", "127.0.0.1", "::1", settings.host}
    with suppress(ValueError):  # a machine may be called what nothing on the network can be
        hosts.add(wire_name(socket.gethostname()))
    hosts |= {address.rpartition(":")[0].strip("[]") for address in settings.addresses}
    return [_name(host) for host in sorted(hosts)]


def _name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _certificate(key: ec.EllipticCurvePrivateKey, names: list[x509.GeneralName]) -> x509.Certificate:
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "hatchway")])
    now = datetime.datetime.now(datetime.UTC)
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

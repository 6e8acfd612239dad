"""A private certificate authority, and the servers and clients that it vouches for."""

from __future__ import annotations

import datetime
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

FROM = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
UNTIL = FROM + datetime.timedelta(days=36500)


class Authority:
    """Its certificate is `path`; what it issues lies beside it."""

    def __init__(self, folder: Path, name: str = "authority") -> None:
        self._folder, self._name = folder, _named(name)
        self._key = ec.generate_private_key(ec.SECP256R1())
        basic = x509.BasicConstraints(ca=True, path_length=None)
        usage = x509.KeyUsage(False, False, False, False, False, True, True, False, False)
        builder = self._builder(name, self._key.public_key()).add_extension(basic, critical=True)
        identifier = x509.SubjectKeyIdentifier.from_public_key(self._key.public_key())
        made = builder.add_extension(usage, critical=True).add_extension(identifier, critical=False)
        self.path = folder / f"{name}.pem"
        self.path.write_bytes(made.sign(self._key, hashes.SHA256()).public_bytes(Encoding.PEM))

    def issue(self, name: str, address: str = "127.0.0.1", until: datetime.datetime = UNTIL) -> tuple[Path, Path]:
        """Certificate and key, as PEM files, of whoever is at an IP address."""
        key = ec.generate_private_key(ec.SECP256R1())
        names = x509.SubjectAlternativeName([x509.IPAddress(ip_address(address))])
        # Python 3.13 believes no certificate that does not name its authority's key (VERIFY_X509_STRICT).
        signer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        made = self._builder(name, key.public_key(), until).add_extension(names, critical=False)
        made = made.add_extension(signer, critical=False)
        paths = self._folder / f"{name}.crt", self._folder / f"{name}.key"
        paths[0].write_bytes(made.sign(self._key, hashes.SHA256()).public_bytes(Encoding.PEM))
        paths[1].write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
        return paths

    def _builder(
        self, name: str, key: ec.EllipticCurvePublicKey, until: datetime.datetime = UNTIL
    ) -> x509.CertificateBuilder:
        builder = x509.CertificateBuilder().subject_name(_named(name)).issuer_name(self._name).public_key(key)
        return builder.serial_number(x509.random_serial_number()).not_valid_before(FROM).not_valid_after(until)


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])

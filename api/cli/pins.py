"""How an engine's certificate is trusted: by an authority, or because it was pinned at sign-in. A change is refused."""

from __future__ import annotations

import socket
import ssl
import time
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from hatchway.api.cli.printing import note
from hatchway.api.client.wire import (
    SKEW_TOLD,
    CertificateRefused,
    ClientFault,
    Unreachable,
    clock_skew,
    dialled,
    skew_words,
)
from hatchway.engine.base.errors import FileRefused
from hatchway.engine.base.file_locks import locked
from hatchway.engine.base.files import make_private_dir, read_private, write_private

KNOWN = "known_engines"
WAIT = 5.0
"""Seconds for a handshake."""

AUTHORITY = "authority"
Known = dict[str, str]
"""For each host and port as dialled, why that engine was trusted: AUTHORITY, or the pinned certificate in PEM."""


class CertificateChanged(ClientFault):
    """The engine shows another certificate than the pinned one, or none that an authority has signed where there was
    one. It may be the engine's new one, or a man in the middle's."""


def tls_for(
    home: Path, url: str, *, expected: str | None = None, accept: bool = False, trust_first: bool = True
) -> ssl.SSLContext | None:
    """How to speak TLS with `url`; None for plain HTTP. Raises CertificateChanged, CertificateRefused, Unreachable.

    How an engine was vouched for is remembered, and whatever is less is a change: no certificate after an authority's,
    no plain HTTP after TLS. `expected` is the fingerprint that the engine of this host told over the operator socket:
    it counts for more than any memory. `accept` forgets what was before. Without `trust_first` a certificate that
    nobody vouches for is refused at the first meeting too.
    """
    host = dialled(url)
    before = None if accept else _known(home).get(host)
    if urlsplit(url).scheme != "https":
        if before is not None:
            raise _changed(url, _told(before), "plain HTTP, without any certificate")
        if accept:
            _remember(home, host, None)
        return None
    if expected is None and before in (None, AUTHORITY) and _is_vouched_for(url, pin_all_the_same=accept):
        _remember(home, host, AUTHORITY)
        return ssl.create_default_context()
    shown = _certificate(url)
    if expected is not None and fingerprint(shown) != expected:
        raise CertificateChanged(f"{host} is not this host's engine: its certificate is another one")
    if expected is None and before is not None and not _follows(before, shown):
        raise _changed(url, _told(before), f"{fingerprint(shown)}, which no authority vouches for")
    if expected is None and before is None and not (accept or trust_first):
        raise CertificateRefused(
            f"no authority vouches for the certificate of {host}, and it was never accepted here: {fingerprint(shown)}."
            " Nothing was sent. If `hatchway engine status` on the engine's host shows this fingerprint: "
            f"hatchway login --url {url} --accept-certificate"
        )
    _remember(home, host, shown)
    if expected is None and before != shown:
        why = "no authority vouches for" if before is None else "made anew, and signed by the one before:"
        note(f"{why} the certificate of {host}; remembered as {fingerprint(shown)}")
    return _only(shown)


def _told(voucher: str) -> str:
    return "one that an authority vouches for" if voucher == AUTHORITY else fingerprint(voucher)


def _changed(url: str, before: str, now: str) -> CertificateChanged:
    return CertificateChanged(
        f"THE CERTIFICATE OF {dialled(url)} HAS CHANGED. It was {before}, and is now {now}: "
        "somebody may be listening in. Nothing was sent. If the engine's owner confirms the new one: "
        f"hatchway login --url {url} --accept-certificate"
    )


def _follows(before: str, shown: str) -> bool:
    """Whether a certificate is the pinned one, or was signed with its key: the engine makes its own anew in time."""
    if before in (shown, AUTHORITY):
        return before == shown
    from cryptography import x509
    from cryptography.exceptions import InvalidSignature

    try:
        old, new = (x509.load_pem_x509_certificate(pem.encode()) for pem in (before, shown))
        new.verify_directly_issued_by(old)
    except (InvalidSignature, ValueError, TypeError):
        return False
    return True


def fingerprint(pem: str) -> str:
    """SHA-256 of the certificate, in the form that browsers and `openssl x509 -fingerprint` show."""
    import hashlib  # imported here: no certificate is seen over plain HTTP

    digest = hashlib.sha256(ssl.PEM_cert_to_DER_cert(pem)).hexdigest().upper()
    return ":".join(digest[place : place + 2] for place in range(0, 64, 2))


NO_CHECK_TIME = 0x200000
"""X509_V_FLAG_NO_CHECK_TIME, which the module ssl has no name for."""


def _only(pem: str) -> ssl.SSLContext:
    """A context that trusts this certificate alone, for any name and at any time, since it is pinned."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN | NO_CHECK_TIME
    context.load_verify_locations(cadata=pem)
    return context


def _unchecked() -> ssl.SSLContext:
    """A context to look at a certificate alone: any connection but to the pinned one is refused after it."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def _is_vouched_for(url: str, *, pin_all_the_same: bool) -> bool:
    """Whether an authority has signed the engine's certificate. Raises CertificateRefused where one has, but this
    host's clock is outside the certificate's time."""
    try:
        _shake_hands(url, ssl.create_default_context())
    except ssl.SSLCertVerificationError as fault:
        if fault.verify_code in OUT_OF_TIME and not pin_all_the_same:
            skew = _clock_skew(url)
            wrong = f"; {skew_words(skew)}" if skew is not None and abs(skew) > SKEW_TOLD else ""
            raise CertificateRefused(
                f"the certificate of {dialled(url)} {OUT_OF_TIME[fault.verify_code]} by this machine's clock{wrong}"
            ) from None
        return False
    return True


OUT_OF_TIME = {9: "is not valid yet", 10: "has expired"}
"""OpenSSL's X509_V_ERR_CERT_NOT_YET_VALID and X509_V_ERR_CERT_HAS_EXPIRED: all else about the certificate is right."""


def _clock_skew(url: str) -> float | None:
    """Seconds by which our clock is ahead of what the other end says. It is only a hint: the other end is not
    trusted."""
    from http.client import HTTPException, HTTPSConnection  # imported here: seldom is a clock wrong

    parts = urlsplit(url)
    asked = HTTPSConnection(parts.hostname or "", parts.port or 443, timeout=WAIT, context=_unchecked())
    try:
        asked.request("GET", "/healthz", headers={"Host": dialled(url)})
        date = asked.getresponse().headers.get("date", "")
    except (OSError, HTTPException):
        return None
    finally:
        asked.close()
    return clock_skew({"date": date}, time.time())


def _certificate(url: str) -> str:
    return ssl.DER_cert_to_PEM_cert(_shake_hands(url, _unchecked()))


NO_TLS = "WRONG_VERSION_NUMBER"
"""OpenSSL's reason where the first bytes of an answer are no TLS, as those of plain HTTP are not."""


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
    except ssl.SSLError as fault:
        if fault.reason != NO_TLS:
            raise Unreachable(f"no engine answers at {url}: {fault}", sent=False) from None
        raise CertificateRefused(
            f"what answers at {url} speaks no TLS. Nothing was sent. If the engine there was started without TLS:"
            f" hatchway login --url http://{parts.netloc} --accept-certificate"
        ) from None
    except OSError as fault:
        raise Unreachable(f"no engine answers at {url}: {fault}", sent=False) from None


def _known(home: Path) -> Known:
    try:
        return msgspec.json.decode(read_private(home / KNOWN), type=Known)
    except FileNotFoundError:
        return {}
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise ClientFault(f"{home / KNOWN} is damaged; it is made anew once you remove it") from None


def _remember(home: Path, host: str, voucher: str | None) -> None:
    """Remember why an engine is trusted, or forget it with None. Where the folder can't be written, nothing changes,
    and the command goes on."""
    if _known(home).get(host) == voucher:
        return
    try:
        make_private_dir(home)
        with locked(home / f"{KNOWN}.lock"):
            known = {name: told for name, told in _known(home).items() if name != host}
            known |= {} if voucher is None else {host: voucher}
            write_private(home / KNOWN, msgspec.json.encode(known), overwrite=True)
    except FileRefused as refused:
        if refused.cause != "unwritable":
            raise
        note(f"how {host} was vouched for is not remembered: {refused.detail}")

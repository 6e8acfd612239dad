"""What records are handed on to, by the scheme of an address."""

from __future__ import annotations

import secrets
import ssl
from base64 import b64decode, b64encode
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, Protocol
from urllib.parse import SplitResult, urlsplit

from hatchway.api.ship.records import Parcel
from hatchway.engine.base import files
from hatchway.engine.base.clock import Clock
from hatchway.engine.base.errors import Refusal
from hatchway.engine.base.loopback import is_loopback_address, is_loopback_name
from hatchway.engine.settings.kinds import wire_name

SCHEMES = "syslog+tls://, syslog+tcp://, otlp+https://, https:// and file://"


class TargetRefused(Refusal):
    """An address that can be no target, or what a target needs and lacks."""

    code = "target_refused"


class Target(Protocol):
    """One place. Every function may raise OSError and NotTaken: then all from `settled` on is sent again."""

    most: int
    """Records that are sent at once."""

    def send(self, parcels: Sequence[Parcel]) -> None:
        """Hand these on, in order."""

    def settled(self, sent: int) -> int:
        """Up to which record the target surely has everything, where the last that was sent is number `sent`."""

    def finish(self, sent: int) -> int:
        """As `settled`, after the connection was ended in the protocol's own way."""

    def close(self) -> None:
        """Let go of connection or file; `send` opens it again."""


class Options(NamedTuple):
    """What a target may need besides its address: whom to trust, the secret that signs webhooks, and the private file
    of a certificate and its key, for receivers that want to know who hands on."""

    clock: Clock
    ca: Path | None = None
    secret: bytes = b""
    certificate: Path | None = None


def target_of(text: str, options: Options) -> Target:
    """Raises TargetRefused, FileRefused."""
    parts = urlsplit(text)
    match parts.scheme:
        case "file":
            from hatchway.api.ship.file import FileTarget

            if parts.netloc not in ("", "localhost") or not parts.path.startswith("/"):
                raise TargetRefused("a file is named by its whole path: file:///var/log/hatchway.jsonl")
            return FileTarget(Path(parts.path))
        case "syslog+tls" | "syslog+tcp":
            from hatchway.api.ship.syslog import SyslogTarget

            host, port = _address(text, parts, 6514 if parts.scheme == "syslog+tls" else 601)
            return SyslogTarget(host, port, _trust(options) if parts.scheme == "syslog+tls" else None, options.clock)
        case "otlp+https" | "otlp+http" | "https" | "http":
            return _by_http(text, parts, options)
    raise TargetRefused(f"{text[:80]!r} is no target: those of {SCHEMES} are known")


def _by_http(text: str, parts: SplitResult, options: Options) -> Target:
    from hatchway.api.ship.http import OtlpTarget, WebhookTarget

    host, _ = _address(text, parts, 443)
    if parts.scheme.endswith("http") and not (is_loopback_name(host) or is_loopback_address(host)):
        raise TargetRefused(f"{host} is on a network: records go there by {parts.scheme}s")
    url = text.removeprefix("otlp+")
    if parts.scheme.startswith("otlp"):
        url = url if parts.path.strip("/") else f"{url.rstrip('/')}/v1/logs"
        return OtlpTarget(url, _trust(options))
    if not options.secret:
        raise TargetRefused("a webhook is signed: name the file of its secret with --secret")
    return WebhookTarget(url, _trust(options), options.secret, options.clock)


def _address(text: str, parts: SplitResult, port: int) -> tuple[str, int]:
    try:
        host, found = wire_name(parts.hostname or ""), parts.port
    except ValueError:
        host, found = "", None
    if not host:
        raise TargetRefused(f"{text[:80]!r} names no host")
    return host, found or port


def _trust(options: Options) -> ssl.SSLContext:
    try:
        trust = ssl.create_default_context(cafile=options.ca)
    except OSError as error:
        raise TargetRefused(f"{options.ca} is no PEM file of certificates: {error}") from None
    if options.certificate is not None:
        files.check_private(options.certificate)
        try:
            trust.load_cert_chain(options.certificate, password=_no_passphrase)
        except (OSError, ValueError) as error:
            raise TargetRefused(
                f"{options.certificate} must hold a certificate and its key, without a passphrase, in PEM: {error}"
            ) from None
    return trust


def _no_passphrase() -> str:
    raise ValueError("the key has a passphrase")


def read_secret(path: Path) -> bytes:
    """The bytes of `whsec_...` in a private file, which is made where there is none. Raises FileRefused,
    TargetRefused."""
    try:
        text = files.read_private(path).decode("ascii", "replace").strip()
    except FileNotFoundError:
        text = f"whsec_{b64encode(secrets.token_bytes(32)).decode()}"
        files.write_private(path, text.encode() + b"\n", overwrite=False)
    try:
        found = b64decode(text.removeprefix("whsec_"), validate=True)
    except ValueError:
        found = b""
    if not text.startswith("whsec_") or not 24 <= len(found) <= 64:
        raise TargetRefused(f"{path} must hold whsec_ and 24 to 64 bytes in base64")
    return found

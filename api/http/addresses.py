"""Which Host and Origin are ours: checked before routing, against DNS rebinding and foreign pages."""

from __future__ import annotations

import ipaddress
import re

from api.http.problems import BadRequest, ForeignOrigin, MisdirectedRequest
from engine.errors import Refusal

_HOST = re.compile(r"(?P<name>\[[0-9a-f:.]{2,45}\]|[a-z0-9_-]+(?:\.[a-z0-9_-]+)*)(?::(?P<port>[0-9]{1,5}))?")
_ORIGIN = re.compile(r"(?P<scheme>https?)://(?P<host>[^/?#@]+)")
_PORTS = {"http": "80", "https": "443"}
_WILDCARDS = ("0.0.0.0", "::")  # noqa: S104 - compared with, not bound
_LOOPBACK_NAMES = ("localhost", "127.0.0.1", "[::1]")


class Addresses:
    """The host:port pairs that people dial: the loopback names with the port bound, and those of the setting."""

    def __init__(self, bound: tuple[tuple[str, int], ...], configured: tuple[str, ...]) -> None:
        self._ports = frozenset(str(port) for _, port in bound)
        self._known = frozenset(
            {f"{_bracketed(host)}:{port}" for host, port in bound if host not in _WILDCARDS}
            | {f"{name}:{port}" for name in _LOOPBACK_NAMES for port in self._ports}
            | {address.lower() for address in configured}
        )

    def check_host(self, host: str | None, scheme: str, local: str | None) -> None:
        """Raises MisdirectedRequest for a foreign Host. `local` is the address of ours that the connection reached."""
        if host in self._known:
            return
        found = _HOST.fullmatch((host or "").lower())
        if found is None:
            raise BadRequest("send one Host header, as host:port")
        name, port = found["name"], found["port"] or _PORTS[scheme]
        if not self._is_ours(name, port, local):
            raise self._misdirected(name, port)

    def check_origin(self, origin: str, local: str | None) -> None:
        """Raises ForeignOrigin for a page that is not ours."""
        found = _ORIGIN.fullmatch(origin.lower())
        host = _HOST.fullmatch(found["host"]) if found else None
        if not (found and host and self._is_ours(host["name"], host["port"] or _PORTS[found["scheme"]], local)):
            raise ForeignOrigin("this page is of another origin: open the console at the engine's own address")

    def _is_ours(self, name: str, port: str, local: str | None) -> bool:
        if f"{name}:{port}" in self._known:
            return True
        # A literal address can't be rebound: the connection reached it.
        reached = local is not None and name == _bracketed(local)
        return port in self._ports and (reached or name.endswith(".localhost"))

    def _misdirected(self, name: str, port: str) -> Refusal:
        words = f"{name}:{port} is not an address of this engine: add it to the setting `addresses`"
        if _is_loopback(name):
            ours = min(self._ports, default="7420")
            words += f", or reach the engine's own port by `ssh -L {ours}:127.0.0.1:{ours}`"
        return MisdirectedRequest(words)


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _is_loopback(name: str) -> bool:
    try:
        return ipaddress.ip_address(name.strip("[]")).is_loopback
    except ValueError:
        return name == "localhost" or name.endswith(".localhost")

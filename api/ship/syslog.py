"""Records as syslog messages (RFC 5424) over TCP (RFC 6587, octets counted) or TLS (RFC 5425)."""

from __future__ import annotations

import fcntl
import re
import socket
import ssl
import struct
import termios
from collections import deque
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from hatchway.api.ship.records import Parcel
from hatchway.engine.base.clock import Clock

AUDIT = 13
"""Facility: log audit (RFC 5424, table 1)."""

SEVERITY = {"refusal": 4, "notice": 5, "transition": 6}

ELEMENT = "hatchway@32473"
"""Name of the structured data. Hatchway has no enterprise number of its own: this one is for examples (RFC 5612)."""

TAKEN_AFTER = 5.0
"""Seconds after which a message that the other host's kernel has taken counts as taken. Syslog acknowledges nothing:
what is younger as a connection breaks is sent again."""

PATIENCE = 15.0
"""Seconds to connect, and for a write that makes no progress."""

CLOSE_WITHIN = 3.0
"""Seconds that the receiver has to read the rest and hang up."""

_FIELDS = ("seq", "kind", "chart", "event", "actor", "source", "target", "identity", "address", "request_id")
_MORE = ("traceparent", "cause", "count", "hash")


def message(parcel: Parcel, host: str) -> bytes:
    """One message: what a record says as structured data, and its JSON as the text."""
    record = parcel.record
    when = datetime.fromtimestamp(record["time"], UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
    priority = AUDIT * 8 + SEVERITY.get(record["kind"], 5)
    told = "".join(
        f' {name}="{_escaped(record[name])}"' for name in (*_FIELDS, *_MORE) if record.get(name) not in (None, "")
    )
    name = re.sub(r"[^!-~]", "_", parcel.name)[:32]
    head = f"<{priority}>1 {when} {host} hatchway - {name} [{ELEMENT}{told}] "
    return head.encode("utf-8", "replace") + parcel.data


def _escaped(value: Any) -> str:
    return re.sub(r'(["\\\]])', r"\\\1", str(value))


class SyslogTarget:
    """One receiver. `trust` makes it TLS."""

    most = 200

    def __init__(self, host: str, port: int, trust: ssl.SSLContext | None, clock: Clock) -> None:
        self._address, self._trust, self._clock = (host, port), trust, clock
        self._name = re.sub(r"[^!-~]", "_", socket.gethostname())[:255] or "-"
        self._socket: socket.socket | None = None
        self._young: deque[tuple[float, int, int]] = deque()
        """When each batch was sent, its last record, and how many bytes this connection had taken with it: those of
        which it is not known yet that the receiver's kernel has them."""
        self._sent = 0
        self._sure: int | None = None

    def send(self, parcels: Sequence[Parcel]) -> None:
        """Raises OSError."""
        connected = self._connected()
        messages = [message(parcel, self._name) for parcel in parcels]
        rest = memoryview(b"".join(b"%d %b" % (len(one), one) for one in messages))
        while rest:  # `sendall` would give up on a slow receiver, though it goes on
            taken = connected.send(rest)
            rest, self._sent = rest[taken:], self._sent + taken
        self._young.append((self._clock.elapsed(), parcels[-1].seq, self._sent))

    def _connected(self) -> socket.socket:
        if self._socket is None:
            made = socket.create_connection(self._address, PATIENCE)
            made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            try:
                self._socket = self._trust.wrap_socket(made, server_hostname=self._address[0]) if self._trust else made
            except OSError:
                made.close()
                raise
        return self._socket

    def settled(self, sent: int) -> int:
        """Raises OSError where the receiver has hung up."""
        if self._socket is None or not self._young:
            return sent
        self._check_alive(self._socket)
        now, arrived = self._clock.elapsed(), self._sent - _unsent(self._socket)
        while self._young and now - self._young[0][0] >= TAKEN_AFTER and self._young[0][2] <= arrived:
            self._sure = self._young.popleft()[1]
        if not self._young:
            return sent
        return self._sure if self._sure is not None else -1

    @staticmethod
    def _check_alive(connected: socket.socket) -> None:
        connected.setblocking(False)
        try:
            if connected.recv(4096) == b"":
                raise ConnectionResetError("the receiver has hung up")
        except (BlockingIOError, ssl.SSLWantReadError):
            pass
        finally:
            connected.settimeout(PATIENCE)

    def finish(self, sent: int) -> int:
        """Close the sending side, and wait until the receiver closes its own: then it has read everything."""
        if self._socket is None or not self._young:
            return sent
        self._socket.settimeout(CLOSE_WITHIN)
        try:
            if isinstance(self._socket, ssl.SSLSocket):
                self._socket.unwrap()
            else:
                self._socket.shutdown(socket.SHUT_WR)
                while self._socket.recv(4096):
                    pass
        except (ssl.SSLEOFError, ssl.SSLZeroReturnError):
            pass
        except OSError:
            return self._sure if self._sure is not None else -1
        return sent

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
        self._socket = None
        self._young.clear()
        self._sent, self._sure = 0, None


def _unsent(connected: socket.socket) -> int:
    """Bytes that the other host's kernel has not acknowledged (tcp(7), SIOCOUTQ), by TLS somewhat more."""
    told = fcntl.ioctl(connected.fileno(), termios.TIOCOUTQ, struct.pack("i", 0))
    return int(struct.unpack("i", told)[0])

"""Ports for servers that tests start, and may start again."""

from __future__ import annotations

import random
import socket
from contextlib import suppress
from pathlib import Path

_EPHEMERAL = Path("/proc/sys/net/ipv4/ip_local_port_range")
_LOWEST = 10_240
_drawn: set[int] = set()


def free_port() -> int:
    """A port of loopback where nobody listens, and that no connection is given by chance.

    A port that the kernel chooses (0) is of the range that outgoing connections get: it can be gone before its server
    binds it, or while the server is down.
    """
    lowest_given = int(_EPHEMERAL.read_text().split()[0])
    for port in random.sample(range(_LOWEST, lowest_given), 100) if lowest_given > _LOWEST + 1000 else ():
        if port not in _drawn:
            with suppress(OSError), socket.create_server(("127.0.0.1", port)):
                _drawn.add(port)
                return port
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])

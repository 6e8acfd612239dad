"""Notifies systemd of the state of a service with `Type=notify` (sd_notify(3)); does nothing elsewhere."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping

import structlog
import trio

log = structlog.get_logger(__name__)


class Notifier:
    """Tells the service manager the engine's state. It never waits and never fails."""

    def __init__(self, environ: Mapping[str, str] = os.environ) -> None:
        self._address = environ.get("NOTIFY_SOCKET", "")
        mine = (environ.get("WATCHDOG_PID") or str(os.getpid())) == str(os.getpid())
        usec = environ.get("WATCHDOG_USEC", "")
        self.watchdog = int(usec) / 1e6 if mine and usec.isdigit() else 0.0
        """Seconds without a notification after which systemd ends the engine; 0 for never."""

    def ready(self, url: str) -> None:
        """The engine listens, at `url`: READY=1, with a status line for `systemctl status`."""
        self._tell(READY="1", STATUS=f"Serving {url}")

    def reloading(self) -> None:
        """Settings are being read anew; `ready` follows."""
        self._tell(RELOADING="1", MONOTONIC_USEC=str(time.monotonic_ns() // 1000))

    def stopping(self) -> None:
        """The engine is ending."""
        self._tell(STOPPING="1", STATUS="Stopping")

    async def watch(self) -> None:
        """Notify twice as often as asked, for ever. It is done in the event loop, so that a loop that hangs is
        noticed."""
        while self.watchdog:
            self._tell(WATCHDOG="1")
            await trio.sleep(self.watchdog / 2)

    def _tell(self, **variables: str) -> None:
        if not self._address:
            return
        message = "\n".join(f"{name}={value}" for name, value in variables.items())
        # A name that begins with @ is an abstract one (unix(7)).
        address = "\0" + self._address[1:] if self._address.startswith("@") else self._address
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sock:
                sock.setblocking(False)
                # The engine's folder may not be UTF-8, and systemd takes nothing else.
                sock.sendto(message.encode(errors="replace"), address)
        except OSError as error:
            log.warning("systemd_not_told", why=str(error))

"""The tunnel: it connects, attaches, forwards and checks, then keeps all of that up, also when the network was lost."""

from __future__ import annotations

import select
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

from hatchway.api.client.ssh.attached import Attached, Wanted, attach
from hatchway.api.client.ssh.connection import SshConnection
from hatchway.api.client.ssh.faults import SshFault
from hatchway.api.client.ssh.probe import issuer_at
from hatchway.api.open.near_end import NearEnd
from hatchway.api.open.pulse import BEAT, Pulse
from hatchway.engine.base.errors import EngineUnavailable

PAUSES = (0.0, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0)
"""Seconds before each further try to connect; the last applies to all that follow."""

RESTART = 10.0
"""Seconds for which an engine that does not answer may be about to be started again by its operator."""


class Tunnel:
    """The tunnel to one host. `status` is what its engine said of itself when it was attached to."""

    attached: Attached
    status: dict[str, Any]
    url: str

    def __init__(self, wanted: Wanted, near: NearEnd) -> None:
        self.wanted, self.near = wanted, near
        self._connection: SshConnection | None = None

    @property
    def is_attached(self) -> bool:
        """Whether the tunnel is attached to an engine."""
        return self._connection is not None and hasattr(self, "attached")

    def connect(self) -> SshConnection:
        """A connection to the host. Raises SshFault."""
        self.drop()
        self._connection = SshConnection(self.wanted.host)
        self._connection.connect()
        return self._connection

    def attach(self, flags: str, *, upgrade: bool = False) -> None:
        """Attach to its engine, which `--start` in `flags` starts. Raises what `attach` does."""
        assert self._connection is not None
        self.attached = attach(self._connection, self.wanted.command, flags, upgrade=upgrade)
        # From this request on the connection stays open for further ones.
        self.attached.ask("hold_address", address=self.near.address)
        self.status = self.attached.ask("status")

    def forward(self, *, may_start_anew: bool = True) -> None:
        """Forward the near end to the engine, which accepts the near end's address while the tunnel is attached.

        It leads to the engine's Unix socket, or to its port where the host forbids to forward to that. An engine that
        was started for this and has no port is started anew with one. Raises SshFault.
        """
        assert self._connection is not None
        if any(self._leads(far, secure) for far, secure in self._ways()):
            self.near.lead_to(self._connection.folder / "near")
            return
        self.attached.ask("status")  # where this is not answered, the connection is lost, and the host forbids nothing
        host = self.wanted.host.target
        if self.status.get("listening"):
            raise SshFault(
                f"{host} forwards nothing, so that no browser reaches its engine: its sshd_config must allow it"
                " (AllowTcpForwarding yes, or local)"
            )
        if not (self.attached.hello.started and may_start_anew):
            raise SshFault(
                f"{host} forwards no Unix sockets (AllowStreamLocalForwarding), and its engine has no port: run there"
                " `hatchway config set listen both`, stop the engine, and run this command again"
            )
        # The engine that was started just now has no port, and the host forbids to forward to a Unix socket.
        self._stop_and_wait()
        self.attach("--start --listen tcp")
        self.forward(may_start_anew=False)

    def _ways(self) -> Iterator[tuple[str, bool]]:
        """The addresses on the host that may be forwarded to, and whether the engine speaks TLS there."""
        if self.status.get("socket"):
            yield self.status.get("socket_way") or self.status["socket"], False
        for listening in self.status.get("listening", ())[:1]:
            host, _, port = listening.rpartition(":")
            here = {"0.0.0.0": "127.0.0.1", "[::]": "[::1]"}.get(host, host)  # noqa: S104 - compared with, not bound
            yield f"{here}:{port}", self.status.get("fingerprint") is not None

    def _leads(self, far: str, secure: bool) -> bool:
        assert self._connection is not None
        near = self._connection.folder / "near"
        self._connection.unforward()
        self._connection.forward(near, far)
        fingerprint = self.status["fingerprint"] if secure else None
        issuer = issuer_at(near, self.near.address, fingerprint)
        if issuer is not None and issuer != self.status["identity"]:
            raise SshFault(
                f"at {far} on {self.wanted.host.target} another engine answers than this user's: stop that one, or give"
                " this user's another port there, with: hatchway config set port 0"
            )
        self.url = f"{'https' if secure else 'http'}://{self.near.address}"
        return issuer is not None

    def hold(self, told: Callable[[str, float], None]) -> None:
        """Keep the tunnel up, for ever. `told` is called with `lost` and the seconds until the next try, and with
        `back` and the seconds that it took.

        Raises SshFault where connecting again can't help, and EngineUnavailable where the engine is gone.
        """
        while True:
            self._beat()
            self._dial_again(told)

    def _beat(self) -> None:
        """Send beats until the connection is lost."""
        line, pulse = self.attached.line, Pulse(self.attached.line)
        with suppress(EngineUnavailable, OSError):
            while pulse.beat():
                if select.select([line], [], [], BEAT)[0]:
                    line.read()
                    pulse.heard()

    def _dial_again(self, told: Callable[[str, float], None]) -> None:
        began, identity = time.monotonic(), self.status["identity"]
        self.near.lead_to(None)
        for pause in _pauses():
            told("lost", pause)
            self.drop()
            time.sleep(pause)
            try:
                self.connect()
                self.attach("")
                self._check_same(identity)
                self.forward()
            except EngineUnavailable:
                if time.monotonic() - began < RESTART:
                    continue
                host = self.wanted.host.target
                raise EngineUnavailable(
                    f"the engine on {host} no longer runs: `hatchway open {host}` starts it again"
                ) from None
            except SshFault as fault:
                if fault.lasting:
                    raise
            else:
                told("back", time.monotonic() - began)
                return

    def _check_same(self, identity: str) -> None:
        if self.status["identity"] != identity:
            raise SshFault(f"{self.wanted.host.target} has another engine now: run the command again")

    def stop_engine(self, own_sessions: int) -> str | None:
        """Stop the engine, unless somebody else uses it: then returns what runs there, in words. Raises SshFault."""
        now = self.attached.ask("status")
        tunnels = sum(row.get("tunnels", 0) for row in self.attached.ask("address_list")["addresses"]) - 1
        counts = {
            "instance": now["instances"],
            "other session": max(0, now["sessions"] - own_sessions),
            "other tunnel": tunnels,
        }
        if any(counts.values()):
            return ", ".join(f"{n} {what}{'' if n == 1 else 's'}" for what, n in counts.items() if n)
        self._stop_and_wait()
        return None

    def _stop_and_wait(self) -> None:
        self.attached.ask("stop")
        try:
            while True:
                self.attached.line.read()
        except (EngineUnavailable, OSError):
            pass  # the engine has closed the connection, and so its sockets

    def drop(self) -> None:
        """End the connection; the near end stays."""
        if self._connection is not None:
            self.near.lead_to(None)
            self._connection.close()
            self._connection = None


def _pauses() -> Iterator[float]:
    yield from PAUSES
    while True:
        yield PAUSES[-1]

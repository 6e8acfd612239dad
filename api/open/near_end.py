"""The near end of a tunnel: a port on this machine's loopback that stays open while the SSH connection comes and goes.

ssh forwards from a Unix socket in a private folder, and connections to the port are passed on to that socket. The port
is open from the first connection to the end. So no other user of this machine can take it while a lost connection is
made again, and a browser waits meanwhile instead of failing.
"""

from __future__ import annotations

import errno
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

import trio

from hatchway.api.client.ssh.faults import SshFault

WAIT = 60.0
"""Seconds that a browser's connection waits while the tunnel is being connected again."""

MOST = 512
"""Connections at once."""

CHUNK = 65_536


class NearEnd:
    """Listens until `close`. A thread of its own passes bytes on."""

    def __init__(self, port: int = 0) -> None:
        """Listen on `port`, 0 for any free one. Raises SshFault where another program has it."""
        self._listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._listener.bind(("127.0.0.1", port))
            self._listener.listen(128)
        except OSError as error:
            self._listener.close()
            why = "is taken" if error.errno == errno.EADDRINUSE else f"can't be had: {error.strerror}"
            raise SshFault(
                f"port {port} of this machine {why}: give another --local-port, or none for a free one"
            ) from None
        self.port: int = self._listener.getsockname()[1]
        self._far: Path | None = None
        self._opened = trio.Event()
        self._token: trio.lowlevel.TrioToken | None = None
        self._ready = threading.Event()
        self._thread = threading.Thread(target=trio.run, args=(self._run,), daemon=True)
        self._thread.start()
        self._ready.wait()

    @property
    def address(self) -> str:
        """Host and port, as a browser's Host header has them."""
        return f"127.0.0.1:{self.port}"

    def lead_to(self, far: Path | None) -> None:
        """Pass connections on to this Unix socket from now on; None: let them wait."""
        self._call(self._set, far)

    def close(self) -> None:
        """Stop listening, and cut the connections."""
        self._call(self._scope.cancel)
        self._thread.join(5)

    def _call(self, function: Callable[..., None], *arguments: object) -> None:
        assert self._token is not None
        with suppress(trio.RunFinishedError):  # closed
            trio.from_thread.run_sync(partial(function, *arguments), trio_token=self._token)

    def _set(self, far: Path | None) -> None:
        self._far = far
        if far is None:
            self._opened = trio.Event()
        else:
            self._opened.set()

    async def _run(self) -> None:
        self._token = trio.lowlevel.current_trio_token()
        room = trio.CapacityLimiter(MOST)
        with trio.CancelScope() as self._scope:
            self._ready.set()
            listener = trio.SocketListener(trio.socket.from_stdlib_socket(self._listener))

            async def one(stream: trio.SocketStream) -> None:
                async with room:
                    await self._pass_on(stream)

            await trio.serve_listeners(one, [listener])

    async def _pass_on(self, near: trio.SocketStream) -> None:
        with trio.move_on_after(WAIT):
            await self._opened.wait()
        if self._far is None:
            return
        try:
            far = await trio.open_unix_socket(str(self._far))
        except OSError:
            return  # the connection has just been lost: the browser tries again, and waits then
        async with far, trio.open_nursery() as nursery:
            nursery.start_soon(_copy, near, far)
            await _copy(far, near)
            nursery.cancel_scope.cancel()


async def _copy(source: trio.SocketStream, target: trio.SocketStream) -> None:
    """Copy bytes until the end of the source, then close the target's sending side."""
    try:
        while data := await source.receive_some(CHUNK):
            await target.send_all(data)
        await target.send_eof()
    except (trio.BrokenResourceError, trio.ClosedResourceError):
        pass

"""A process that has loaded what an engine loads, and forks whenever it is asked for a command.

Protocol, over a SOCK_SEQPACKET socket that is standard input: a request is a JSON object with the command's
`arguments`, `environ`, `folder` and `umask`, and whether its standard input is to be its `terminal`; with it come five
descriptors: a pipe, the command's standard input, output and errors, and its network namespace. Into the pipe go the
fork's process id and, once it has ended, its exit code (-N for signal N), as 4 bytes each. End of file ends the server.
"""

from __future__ import annotations

import fcntl
import gc
import json
import os
import selectors
import socket
import struct
import sys
import termios
from importlib import import_module
from pkgutil import iter_modules
from typing import NamedTuple

from hatchway.api import cli
from hatchway.engine.base.memory import loading
from tests.support.networks import enter

AT_START = (
    "hatchway.api.cli.busy",
    "hatchway.api.cli.lifecycle",
    "hatchway.api.cli.signing_keys",
    "hatchway.api.host.run",
)
LATER = (
    *("encodings.idna", "hatchway.api.http.quart_mount", "hatchway.engine.fleet.membership", "coredis"),
    *(f"{cli.__name__}.{module.name}" for module in iter_modules(cli.__path__)),
    *("hatchway.api.client.client", "hatchway.api.client.own_engine"),
)
"""What an engine loads when it first looks up a name, shows a page, or is one of a fleet; and what commands load."""

NUMBER = struct.Struct("i")
LONGEST = 1 << 20
"""Bytes of a request."""


class Fork(NamedTuple):
    """A running command: its process, and the pipe that tells of it."""

    pid: int
    told: int


def serve() -> tuple[bytes, list[int]]:
    """Forks until the requests end. Returns in each fork, with its request and its descriptors but for the pipe."""
    with socket.socket(fileno=os.dup(0)) as requests, selectors.DefaultSelector() as ready:
        ready.register(requests, selectors.EVENT_READ)
        while True:
            for at, _ in ready.select():
                if at.data:
                    ready.unregister(at.fd)
                    _tell_end(at.fd, at.data)
                    continue
                request, passed, *_ = socket.recv_fds(requests, LONGEST, 5)
                if not request:
                    sys.exit()
                told, *its = passed
                pid = os.fork()
                if not pid:
                    return request, its
                for descriptor in its:
                    os.close(descriptor)
                os.write(told, NUMBER.pack(pid))
                ready.register(os.pidfd_open(pid), selectors.EVENT_READ, Fork(pid, told))


def _tell_end(watched: int, fork: Fork) -> None:
    os.close(watched)
    _, status = os.waitpid(fork.pid, 0)
    os.write(fork.told, NUMBER.pack(os.waitstatus_to_exitcode(status)))
    os.close(fork.told)


def become(request: bytes, descriptors: list[int]) -> None:
    """The command, as an interpreter of its own would run it."""
    *streams, network = descriptors
    if not os.path.samestat(os.fstat(network), os.stat("/proc/self/ns/net")):
        enter(network)
    for standard, stream in enumerate(streams):
        os.dup2(stream, standard)
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))  # other forks' pipes too
    asked = json.loads(request)
    if asked["terminal"]:
        os.setsid()
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        # Those that are here took the server's own streams, which are no terminal, for files or pipes.
        sys.stdin, sys.stdout = open(0, closefd=False), open(1, "w", closefd=False)  # noqa: SIM115 - its standard streams
        sys.stderr = open(2, "w", errors="backslashreplace", closefd=False)  # noqa: SIM115
    os.environ.clear()
    os.environ.update(asked["environ"])
    os.chdir(asked["folder"])
    os.umask(asked["umask"])
    sys.argv = ["-c", *asked["arguments"]]
    cli.main()


if __name__ == "__main__":
    with loading():
        for name in AT_START:
            import_module(name)
    for name in LATER:
        import_module(name)
    gc.freeze()  # a fork that ends would look through all of it for garbage, and copy each page for that
    become(*serve())

"""A host that was dialled: the connection, and on it the conversation with its engine."""

from __future__ import annotations

import json
import socket
import time
from typing import Any, NamedTuple

from hatchway.api.client.operator import ATTACH_PROTOCOL, OperatorLine
from hatchway.api.client.ssh.connection import Multiplexed, SshSession, SshTarget
from hatchway.api.client.ssh.faults import SshFault, fault_of
from hatchway.api.client.ssh.remote import attach_script
from hatchway.engine.base.errors import EngineUnavailable
from hatchway.engine.base.text import printable
from hatchway.engine.base.version import installed_version

ATTACH_WAIT = 100.0
"""Seconds from the script to the engine's word: a login shell, and a first start that makes a key."""

LONGEST_LINE = 65_536


class Wanted(NamedTuple):
    """What to dial and what to find there: `command` is the setting's, None to look for it."""

    host: SshTarget
    command: str | None = None


class NoCommand(SshFault):
    """The host has no `hatchway` where one is looked for."""


class OldCommand(SshFault):
    """The host's `hatchway` speaks another protocol, or none. `path` is where it is."""

    def __init__(self, detail: str, path: str) -> None:
        super().__init__(detail)
        self.path = path


class Hello(NamedTuple):
    """What `engine attach` tells first."""

    command: str
    version: str
    home: str
    started: bool


class Attached:
    """The conversation, from the host's hello on."""

    def __init__(self, connection: Multiplexed, session: SshSession, hello: Hello) -> None:
        self.connection, self.hello = connection, hello
        self._session = session
        self.line = OperatorLine(session.socket)

    @property
    def host(self) -> str:
        """As the user calls it."""
        return self.connection.host.target

    def ask(self, op: str, **fields: Any) -> dict[str, Any]:
        """One request and its answer. Raises SshFault where the connection is lost, and the engine's refusal."""
        try:
            self.line.send(op=op, **fields)
            while True:
                for message in self.line.read():
                    if "event" not in message:  # of a sign of life that was sent before, or of a code
                        return message
        except (EngineUnavailable, OSError):
            raise self.lost() from None

    def lost(self) -> SshFault:
        """Why the conversation has ended."""
        return fault_of(self.host, "")


def attach(connection: Multiplexed, command: str | None, flags: str, *, upgrade: bool = False) -> Attached:
    """Find the engine's command on the host and attach to its engine. Raises NoCommand, OldCommand, EngineUnavailable,
    SshFault."""
    host = connection.host.target
    script = attach_script(installed_version(), command, flags, upgrade=upgrade)
    session = connection.run(script.command)
    session.socket.settimeout(ATTACH_WAIT)
    lines = SessionLines(session, ATTACH_WAIT)
    marked = ""
    try:
        while not marked.startswith(script.mark):  # start files may print whatever they like
            marked = lines.read()
    except SshFault:
        if session.was_lost():
            raise
        raise SshFault(
            f"{host} does not run what it is told: its sshd, or the key's line in authorized_keys, may force another"
            " command, or its login shell ends by itself; it said:"
            f" {session.words()}"
        ) from None
    _, said, *path_words = marked.split(" ", 2)
    path = path_words[0] if path_words else ""
    if said == "none":
        session.end()
        named = (
            f"{command}, which the setting remote_command names, is not there"
            if command
            else "there is no hatchway in PATH or in ~/.hatchway/runtime"
        )
        raise NoCommand(f"{host}: {named}")
    try:
        told = json.loads(lines.read())
    except (SshFault, ValueError):
        if session.was_lost():
            raise session.fault() from None
        raise OldCommand(
            f"{host}: {printable(path)} can't be attached to; it may be older than our {installed_version()}:"
            f" run `hatchway open --upgrade {host}`, or update it there. It said: {session.words()}",
            path,
        ) from None
    if "error" in told:
        session.end()
        raise EngineUnavailable(f"{host}: {printable(str(told['error'].get('detail')))}")
    if told.get("protocol") != ATTACH_PROTOCOL:
        session.end()
        raise OldCommand(
            f"{host}: {printable(path)} is version {told.get('version')}, which this machine's {installed_version()}"
            f" does not understand: update this machine, or run `hatchway open --upgrade {host}`",
            path,
        )
    return Attached(connection, session, Hello(path, told["version"], told["home"], told["started"]))


class SessionLines:
    """Lines from a session, and no byte past them."""

    def __init__(self, session: SshSession, seconds: float) -> None:
        """`seconds` are all that there are for them."""
        self._session = session
        self._until = time.monotonic() + seconds

    def read(self) -> str:
        """The next one. Raises SshFault."""
        line = b""
        peer = self._session.socket
        while not line.endswith(b"\n"):
            try:
                seen = peer.recv(4096, socket.MSG_PEEK)
            except TimeoutError:
                seen = b""
            if not seen or len(line) > LONGEST_LINE or time.monotonic() > self._until:
                raise self._session.fault()
            line += peer.recv(seen.index(b"\n") + 1 if b"\n" in seen else len(seen))
        return line.decode(errors="replace").strip()

"""SSH agents, as far as signing in needs them: which keys one holds, and one signature (draft-ietf-sshm-ssh-agent).

Each question is a message on a connection of its own: four bytes of length, one of kind, then the fields.
"""

from __future__ import annotations

import os
import socket
import time
from base64 import b64encode
from typing import NamedTuple

from hatchway.api.client.wire import ClientFault

FAILURE, SUCCESS = 5, 6
REQUEST_IDENTITIES, IDENTITIES_ANSWER = 11, 12
SIGN_REQUEST, SIGN_RESPONSE = 13, 14
EXTENSION = 27

RSA_SHA2_256 = 2
"""Flag of a SIGN_REQUEST: RSASSA-PKCS1-v1_5 with SHA-256 (RFC 8332), which is RS256. Without it SHA-1 is used."""

LARGEST = 256 * 1024
"""Bytes of an agent's answer: OpenSSH's own limit."""

ANSWERED_WITHIN, SIGNED_WITHIN = 5.0, 60.0
"""Seconds in which an agent must list its keys, and must sign: a person may have to confirm a signature, or to touch a
token. A challenge is not valid for longer than that."""


class AgentFault(ClientFault):
    """The SSH agent can't help; the sentence says why, and what to do."""


class AgentRefusal(AgentFault):
    """The agent does not sign with one of its keys; it may with another."""


class AgentKey(NamedTuple):
    """A key that an agent lists: its public half in SSH's encoding, and its comment."""

    blob: bytes
    comment: str

    @property
    def kind(self) -> str:
        """`ssh-rsa`, `ssh-ed25519`, or another. Raises AgentFault."""
        return Fields(self.blob).string().decode("ascii", "replace")

    @property
    def identity(self) -> str:
        """OpenSSH's fingerprint."""
        from hashlib import sha256  # imported here: a command that has a token asks no agent

        return "SHA256:" + b64encode(sha256(self.blob).digest()).decode().rstrip("=")

    @property
    def line(self) -> str:
        """The key as a line of a .pub file. Raises AgentFault."""
        return f"{self.kind} {b64encode(self.blob).decode()}"


class Fields:
    """Reads the fields of a message one after the other (RFC 4251 section 5). Raises AgentFault past its end."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def _take(self, size: int) -> bytes:
        end = self._at + size
        if end > len(self._data):
            raise AgentFault("the SSH agent's answer is cut short: is SSH_AUTH_SOCK the socket of an agent?")
        taken, self._at = self._data[self._at : end], end
        return taken

    def byte(self) -> int:
        """One byte."""
        return self._take(1)[0]

    def number(self) -> int:
        """A number of 32 bits."""
        return int.from_bytes(self._take(4))

    def string(self) -> bytes:
        """Bytes after their length."""
        return self._take(self.number())


def string(data: bytes) -> bytes:
    """Bytes as a field."""
    return len(data).to_bytes(4) + data


def read_keys(answer: bytes) -> list[AgentKey]:
    """The keys that an agent lists. Raises AgentFault for any other message."""
    fields = Fields(answer)
    if fields.byte() != IDENTITIES_ANSWER:
        raise AgentFault("the SSH agent does not list its keys")
    return [AgentKey(fields.string(), fields.string().decode(errors="replace")) for _ in range(fields.number())]


def read_signature(answer: bytes) -> tuple[str, bytes] | None:
    """The name of a signature's algorithm, and its bytes; None where the agent refuses. Raises AgentFault for any other
    message."""
    fields = Fields(answer)
    kind = fields.byte()
    if kind == FAILURE:
        return None
    if kind != SIGN_RESPONSE:
        raise AgentFault("the SSH agent's answer is no signature")
    signature = Fields(fields.string())
    return signature.string().decode("ascii", "replace"), signature.string()


class Agent:
    """The agent that listens on a socket."""

    def __init__(self, path: str | None = None) -> None:
        """`path` is the socket's, by default as SSH_AUTH_SOCK says. Raises AgentFault where that is not set."""
        self.path = path or os.environ.get("SSH_AUTH_SOCK", "")
        if not self.path:
            raise AgentFault(
                "there is no SSH agent: SSH_AUTH_SOCK is not set. Start one with `eval $(ssh-agent)`, then `ssh-add`"
            )

    def keys(self) -> list[AgentKey]:
        """The keys that it lists now, of all kinds. Raises AgentFault where it lists none."""
        found = read_keys(self._ask(bytes([REQUEST_IDENTITIES])))
        if not found:
            raise AgentFault(
                "the SSH agent holds no key: add one with `ssh-add FILE`"
                if self._is_unlocked()
                else "the SSH agent shows no key: it is locked (`ssh-add -X` unlocks it), or holds none"
            )
        return found

    def sign(self, key: AgentKey, message: bytes, flags: int) -> tuple[str, bytes]:
        """The name of a signature's algorithm, and its bytes. Raises AgentRefusal with the reason why there is none,
        and AgentFault where the agent does not answer."""
        request = bytes([SIGN_REQUEST]) + string(key.blob) + string(message) + flags.to_bytes(4)
        signature = read_signature(self._ask(request, SIGNED_WITHIN))
        if signature is None:
            raise self._refusal(key)
        return signature

    def _refusal(self, key: AgentKey) -> AgentRefusal:
        """Why the agent refused to sign, as far as it can be found out: the agent itself says only that it did."""
        named = f"{key.identity} ({key.comment})"
        try:
            listed = self.keys()
        except AgentFault as fault:
            return AgentRefusal(f"the SSH agent refused to sign with {named}: {fault.detail}")
        if key.blob not in (one.blob for one in listed):
            return AgentRefusal(
                f"the SSH agent has {named} no more: its smart card was taken out, or it was removed (`ssh-add -d`)"
            )
        if self._is_bound(key):
            return AgentRefusal(
                f"the SSH agent keeps {named} for certain hosts of SSH (`ssh-add -h`), and an engine is none: "
                "add the key without -h, or sign in with another"
            )
        return AgentRefusal(
            f"the SSH agent refused to sign with {named}: somebody refused to confirm it (`ssh-add -c`), or the smart"
            " card that holds it was taken out"
        )

    def _is_unlocked(self) -> bool:
        """Whether the agent accepts a binding to a host of SSH, as OpenSSH's does unless it is locked. Others know no
        such message."""
        with self._connected(ANSWERED_WITHIN) as line:
            return line.ask(_binding())[:1] == bytes([SUCCESS])

    def _is_bound(self, key: AgentKey) -> bool:
        """Whether the agent hides the key on a connection to an unknown host, since the key is restricted to others."""
        with self._connected(ANSWERED_WITHIN) as line:
            if line.ask(_binding())[:1] != bytes([SUCCESS]):
                return False
            return key.blob not in (one.blob for one in read_keys(line.ask(bytes([REQUEST_IDENTITIES]))))

    def _ask(self, message: bytes, seconds: float = ANSWERED_WITHIN) -> bytes:
        with self._connected(seconds) as line:
            return line.ask(message)

    def _connected(self, seconds: float) -> _Line:
        sock = socket.socket(socket.AF_UNIX)
        try:
            sock.settimeout(seconds)
            sock.connect(self.path)
        except OSError as error:
            sock.close()
            raise AgentFault(
                f"no SSH agent answers at {self.path}, which SSH_AUTH_SOCK names: {error.strerror or error}"
            ) from None
        return _Line(sock, seconds)


class _Line:
    """A connection to an agent. Its calls must end within `seconds` together."""

    def __init__(self, sock: socket.socket, seconds: float) -> None:
        self._sock, self._seconds = sock, seconds
        self._until = time.monotonic() + seconds

    def __enter__(self) -> _Line:
        return self

    def __exit__(self, *_: object) -> None:
        self._sock.close()

    def ask(self, message: bytes) -> bytes:
        """The answer to one message. Raises AgentFault."""
        try:
            self._sock.sendall(string(message))
            size = int.from_bytes(self._read(4))
            if not 1 <= size <= LARGEST:
                raise AgentFault("what answers at SSH_AUTH_SOCK is no SSH agent")
            return self._read(size)
        except TimeoutError:
            raise AgentFault(f"the SSH agent did not answer within {self._seconds:.0f} s") from None
        except OSError as error:
            raise AgentFault(f"the SSH agent hung up: {error.strerror or error}") from None

    def _read(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            left = self._until - time.monotonic()
            if left <= 0:
                raise TimeoutError
            self._sock.settimeout(left)
            piece = self._sock.recv(size - len(data))
            if not piece:
                raise AgentFault("the SSH agent hung up without an answer")
            data += piece
        return data


def _binding() -> bytes:
    """A message that binds the connection to an unknown host of SSH: its host key is made for this message alone
    (OpenSSH's PROTOCOL.agent, `session-bind@openssh.com`). The binding lasts as long as the connection."""
    import secrets

    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    name, host = string(b"ssh-ed25519"), Ed25519PrivateKey.generate()
    session = secrets.token_bytes(32)
    fields = (
        b"session-bind@openssh.com",
        name + string(host.public_key().public_bytes_raw()),
        session,
        name + string(host.sign(session)),
    )
    return bytes([EXTENSION]) + b"".join(map(string, fields)) + b"\0"

"""What the client signs a challenge with: the key of a file, or one that an SSH agent holds."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from hatchway.api.client.agent import RSA_SHA2_256, Agent, AgentFault, AgentKey
from hatchway.engine.base.text import counted
from hatchway.engine.settings.kinds import AGENT

if TYPE_CHECKING:
    from hatchway.engine.keys.keys import PrivateKey

KINDS = ("ssh-rsa", "ssh-ed25519")
"""Kinds of keys that sign in, in the order in which they are tried: few engines accept the second."""

MOST_TRIED = 6
"""Keys of an agent that are tried at an engine at most. Each may need a person's confirmation, and all but one fail."""


class Signer(Protocol):
    """Signs for one identity."""

    @property
    def identity(self) -> str:
        """The key's fingerprint."""

    @property
    def algorithm(self) -> str:
        """The `algorithm` of its signatures in a verify."""

    @property
    def words(self) -> str:
        """What kind of thing holds the key, for people."""

    def sign(self, message: bytes) -> bytes:
        """The signature, for a verify. It may take as long as a person takes to confirm it. Raises ClientFault."""


class FileSigner:
    """A key that was read from a file."""

    words = "key file"

    def __init__(self, key: PrivateKey) -> None:
        self._key, self.identity = key, key.identity
        self.algorithm = "EdDSA" if key.public.kind == "ed25519" else "PS256"

    def sign(self, message: bytes) -> bytes:
        """RSASSA-PSS, or EdDSA."""
        from hatchway.engine.keys.keys import sign

        return sign(self._key, message, "PS256")


class AgentSigner:
    """A key that an agent holds."""

    def __init__(self, agent: Agent, key: AgentKey) -> None:
        """Raises KeyRefused where the key is not within the bounds of ours."""
        from hatchway.engine.keys.keys import read_openssh

        self._agent, self._key, self._public = agent, key, read_openssh(key.line)
        self.algorithm = "EdDSA" if self._public.kind == "ed25519" else "RS256"
        self.identity, self.words = key.identity, f"SSH agent, {key.comment}" if key.comment else "SSH agent"

    def sign(self, message: bytes) -> bytes:
        """A signature by RSASSA-PKCS1-v1_5, verified before it is returned. Raises AgentFault."""
        from hatchway.engine.base.errors import SignatureRefused
        from hatchway.engine.keys.keys import verify

        wanted, flags = ("ssh-ed25519", 0) if self.algorithm == "EdDSA" else ("rsa-sha2-256", RSA_SHA2_256)
        name, made = self._agent.sign(self._key, message, flags)
        if name != wanted:
            raise AgentFault(f"the SSH agent signs by {name}, and {wanted} was asked for: a newer agent is needed")
        signature = made.rjust(self._public.signature_length, b"\0")  # a number, which some agents write short
        try:
            verify(self._public, self.algorithm, message, signature)
        except SignatureRefused:
            raise AgentFault(f"the SSH agent's signature is not by the key {self.identity}") from None
        return signature


def agent_signers(name: str = "", agent: Agent | None = None) -> Sequence[Signer]:
    """The first RSA keys of an agent, in its order, then its Ed25519 keys; with `name` the one of that fingerprint, a
    unique beginning of it, or that comment. Raises AgentFault where there is none."""
    agent = agent or Agent()
    listed = agent.keys()
    found = named(listed, name) if name else [key for kind in KINDS for key in listed if key.kind == kind]
    signers, why = _usable(agent, found)
    if signers:
        return signers[:MOST_TRIED]
    kinds = ", ".join(sorted({key.kind for key in listed}))
    if name:
        raise AgentFault(f"the SSH agent's key {name} can't be used here: {why}")
    raise AgentFault(
        f"the SSH agent holds no key that could be used: {why or f'what it holds is {kinds}'}. Make one with"
        " `ssh-keygen -t rsa -b 3072`, and have its .pub registered"
    )


def only_key(name: str = "", agent: Agent | None = None) -> AgentKey:
    """The agent's one RSA key, or the one key, of whatever kind, that `name` means. Raises AgentFault where it is none,
    or several."""
    listed = (agent or Agent()).keys()
    found = named(listed, name) if name else [key for key in listed if key.kind == "ssh-rsa"]
    if len(found) == 1:
        return found[0]
    if not found:
        kinds = ", ".join(sorted({key.kind for key in listed}))
        raise AgentFault(f"the SSH agent holds no RSA key; name another by fingerprint or comment (it has {kinds})")
    raise AgentFault(
        f"the SSH agent holds {counted(len(found), 'RSA key')}, and one is wanted: name it by fingerprint or comment"
        " (`ssh-add -l`)"
    )


def named(keys: Sequence[AgentKey], name: str) -> list[AgentKey]:
    """The one key that `name` means. Raises AgentFault where it is none, or several."""
    from hatchway.engine.keys.key_files import same_name

    exact = [key for key in keys if key.identity == name]
    prefix = len(name) > len("SHA256:")
    found = exact or [key for key in keys if same_name(key.comment, name) or (prefix and key.identity.startswith(name))]
    if len(found) == 1:
        return found
    if not found:
        raise AgentFault(
            f"the SSH agent has no key of the fingerprint or comment '{name}': `ssh-add -l` lists its keys"
        )
    raise AgentFault(f"the SSH agent has {len(found)} keys that go by '{name}': give the fingerprint (`ssh-add -l`)")


def _usable(agent: Agent, keys: Sequence[AgentKey]) -> tuple[list[Signer], str]:
    """The keys that can sign in, and why the first of the others can't."""
    from hatchway.engine.base.errors import KeyRefused

    signers: list[Signer] = []
    why = ""
    for key in keys:
        try:
            signers.append(AgentSigner(agent, key))
        except KeyRefused as refused:
            why = why or refused.detail
    return signers, why


def read_key(source: PrivateKey | Path | str | bytes, passphrase: bytes | None = None) -> PrivateKey:
    """The private key of a PEM file or its bytes. Raises KeyRefused with the one reason, and FileRefused
    for a file that others may read or write."""
    from hatchway.engine.base.files import check_unshared, read_small
    from hatchway.engine.keys.keys import KEY_TYPES, PrivateKey, read_private_key

    if isinstance(source, PrivateKey):
        return source
    if isinstance(source, bytes):
        return read_private_key(source, passphrase, KEY_TYPES)
    data = read_small(Path(source))
    if b"PRIVATE KEY-----" in data:  # any other file is refused below, with the reason
        check_unshared(Path(source))
    return read_private_key(data, passphrase, KEY_TYPES)


def read_signers(source: PrivateKey | Path | str | bytes, passphrase: bytes | None = None) -> Sequence[Signer]:
    """The signers for `agent:` and a name, or for a key or its file. Raises as `agent_signers` and `read_key`."""
    if isinstance(source, str) and source.startswith(AGENT):
        return agent_signers(source.removeprefix(AGENT))
    return (FileSigner(read_key(source, passphrase)),)

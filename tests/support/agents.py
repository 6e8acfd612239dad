"""SSH agents for tests: OpenSSH's, GnuPG's, one with a PKCS#11 token, and one that answers as it likes."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import threading
from base64 import b64decode
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from hatchway.api.client.agent import FAILURE, IDENTITIES_ANSWER, SIGN_REQUEST, SIGN_RESPONSE, Fields, string
from hatchway.engine.keys.keys import PrivateKey, PublicKey, sign
from tests.support.waits import until

SOFTHSM = Path("/usr/lib/softhsm/libsofthsm2.so")
PIN = "1234"


@contextmanager
def short_folder() -> Iterator[Path]:
    """A folder whose sockets have paths short enough for the kernel."""
    folder = Path(tempfile.mkdtemp(prefix="hw-agent-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


def script(path: Path, text: str) -> Path:
    """A program of these lines of sh."""
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o700)
    return path


class OpenSshAgent:
    """`ssh-agent`, and what `ssh-add` puts into it. `environ` says where it is."""

    def __init__(self, folder: Path, **environ: str) -> None:
        self.folder, self.socket = folder, folder / "agent.sock"
        self.environ = {"SSH_AUTH_SOCK": str(self.socket)}
        self._process = subprocess.Popen(
            ["ssh-agent", "-D", "-a", str(self.socket)],
            env={**os.environ, **environ},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        until(self._answers, what="ssh-agent")

    def _answers(self) -> bool:
        with socket.socket(socket.AF_UNIX) as tried:
            return tried.connect_ex(str(self.socket)) == 0  # its file is there a little before it listens

    def add(self, private: PrivateKey, comment: str, *flags: str) -> None:
        """Put a key into it under that name."""
        path = self.folder / "key"
        path.touch(0o600)
        path.write_bytes(private.key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()))
        subprocess.run(["ssh-keygen", "-q", "-c", "-C", comment, "-f", str(path)], check=True, capture_output=True)
        path.with_suffix(".pub").write_text(f"{private.public.openssh()} {comment}\n")
        self.ssh_add("-q", *flags, str(path))
        path.unlink()

    def ssh_add(self, *arguments: str, **environ: str) -> str:
        """What `ssh-add` prints; it must succeed."""
        done = subprocess.run(
            ["ssh-add", *arguments],
            env={**os.environ, **self.environ, **environ},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def answering(self, answer: str) -> dict[str, str]:
        """The environment of an `ssh-add` whose question for a passphrase or PIN is answered so."""
        asked = script(self.folder / "askpass", f"echo {answer}")
        return {"SSH_ASKPASS": str(asked), "SSH_ASKPASS_REQUIRE": "force"}

    def close(self) -> None:
        """End it."""
        self._process.terminate()
        self._process.wait()


@contextmanager
def ssh_agent(**environ: str) -> Iterator[OpenSshAgent]:
    """One that runs until left, with that environment."""
    with short_folder() as folder:
        agent = OpenSshAgent(folder, **environ)
        try:
            yield agent
        finally:
            agent.close()


@contextmanager
def token_agent() -> Iterator[tuple[OpenSshAgent, Path]]:
    """`ssh-agent` with a PKCS#11 token in which an RSA key was made, and the folder of the token."""
    with short_folder() as folder:
        tokens = folder / "tokens"
        tokens.mkdir()
        (folder / "softhsm2.conf").write_text(f"directories.tokendir = {tokens}\n")
        environ = {"SOFTHSM2_CONF": str(folder / "softhsm2.conf")}

        def call(*arguments: str) -> None:
            subprocess.run(arguments, env={**os.environ, **environ}, check=True, capture_output=True, timeout=60)

        call("softhsm2-util", "--init-token", "--free", "--label", "test", "--pin", PIN, "--so-pin", PIN)
        pair = ("--keypairgen", "--key-type", "rsa:2048", "--id", "01", "--label", "token key")
        call("pkcs11-tool", "--module", str(SOFTHSM), "--login", "--pin", PIN, *pair)
        agent = OpenSshAgent(folder, **environ)
        try:
            agent.ssh_add("-s", str(SOFTHSM), **environ, **agent.answering(PIN))
            yield agent, tokens
        finally:
            agent.close()


@contextmanager
def gpg_agent() -> Iterator[dict[str, str]]:
    """`gpg-agent` with SSH support and an RSA key of GnuPG's; the environment that leads to it."""
    with short_folder() as folder:
        environ = {**os.environ, "GNUPGHOME": str(folder)}

        def call(*arguments: str) -> str:
            done = subprocess.run(arguments, env=environ, check=True, capture_output=True, text=True, timeout=60)
            return done.stdout

        (folder / "gpg-agent.conf").write_text("enable-ssh-support\n")
        quiet = ("gpg", "--batch", "--pinentry-mode", "loopback", "--passphrase", "")
        try:
            call(*quiet, "--quick-gen-key", "test", "rsa2048", "cert,auth", "never")
            listed = call("gpg", "--with-keygrip", "-K", "--with-colons").splitlines()
            grip = next(line.split(":")[9] for line in listed if line.startswith("grp:"))
            (folder / "sshcontrol").write_text(f"{grip}\n")
            yield {"SSH_AUTH_SOCK": call("gpgconf", "--list-dirs", "agent-ssh-socket").strip()}
        finally:
            call("gpgconf", "--kill", "gpg-agent")


Answer = Callable[[bytes], bytes | None]
"""Takes a message to an agent; gives its answer, or None to hang up."""


class FalseAgent:
    """An agent that answers as it likes, and keeps what it was asked."""

    def __init__(self, folder: Path, answer: Answer) -> None:
        self.path, self._answer = str(folder / "false.sock"), answer
        self.asked: list[bytes] = []
        self._listening = socket.socket(socket.AF_UNIX)
        self._listening.bind(self.path)
        self._listening.listen()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    @property
    def to_sign(self) -> list[bytes]:
        """What it was asked to sign."""
        requests = [Fields(message[1:]) for message in self.asked if message[0] == SIGN_REQUEST]
        return [(fields.string(), fields.string())[1] for fields in requests]

    def _serve(self) -> None:
        while True:
            try:
                peer, _ = self._listening.accept()
            except OSError:
                return
            threading.Thread(target=self._talk, args=(peer,), daemon=True).start()

    def _talk(self, peer: socket.socket) -> None:
        with peer, suppress(OSError):
            while size := int.from_bytes(peer.recv(4, socket.MSG_WAITALL)):
                message = peer.recv(size, socket.MSG_WAITALL)
                self.asked.append(message)
                reply = self._answer(message)
                if reply is None:
                    return
                peer.sendall(reply)

    def close(self) -> None:
        """Listen no more."""
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self._thread.join()


@contextmanager
def false_agent(answer: Answer) -> Iterator[FalseAgent]:
    """One that listens until left."""
    with short_folder() as folder:
        agent = FalseAgent(folder, answer)
        try:
            yield agent
        finally:
            agent.close()


def listing(*keys: tuple[PublicKey, str]) -> bytes:
    """The message that lists these keys under these names."""
    rows = (string(b64decode(key.openssh().split()[1])) + string(comment.encode()) for key, comment in keys)
    return string(bytes([IDENTITIES_ANSWER]) + len(keys).to_bytes(4) + b"".join(rows))


def holding(*held: PrivateKey) -> Answer:
    """What an agent with these keys answers: it lists them, and signs whatever it is asked to."""
    known = {b64decode(private.public.openssh().split()[1]): private for private in held}

    def answer(message: bytes) -> bytes:
        if message[0] != SIGN_REQUEST:
            return listing(*((private.public, f"key {number}") for number, private in enumerate(held)))
        fields = Fields(message[1:])
        private, data = known.get(fields.string()), fields.string()
        if private is None:
            return string(bytes([FAILURE]))
        name = b"ssh-ed25519" if private.public.kind == "ed25519" else b"rsa-sha2-256"
        signature = string(name) + string(sign(private, data, "RS256"))
        return string(bytes([SIGN_RESPONSE]) + string(signature))

    return answer

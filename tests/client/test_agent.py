"""Signing in by a key of an SSH agent: what is asked of it, what never is, and the words for what goes wrong."""

from __future__ import annotations

import json
import struct
from base64 import b64decode, b64encode
from collections.abc import Callable

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hypothesis import given
from hypothesis import strategies as st

from hatchway.api.client import ChallengeRefused, Client, Refused
from hatchway.api.client import agent as agents
from hatchway.api.client.agent import (
    FAILURE,
    SIGN_REQUEST,
    SIGN_RESPONSE,
    Agent,
    AgentFault,
    read_keys,
    read_signature,
    string,
)
from hatchway.api.client.signers import MOST_TRIED, agent_signers, only_key
from hatchway.engine.keys.keys import PrivateKey, read_openssh
from tests.support.agents import Answer, false_agent, holding, listing
from tests.support.fakes import key
from tests.support.false_engine import answer, false_engine, nonce

OPENSSH = (Encoding.OpenSSH, PublicFormat.OpenSSH)


def ssh_authentication() -> str:
    """What a client of SSH signs to log in as root (RFC 4252 section 7), each byte a character."""
    blob = b64encode(b"x" * 32)
    fields = (b"root", b"ssh-connection", b"publickey")
    request = (
        string(b"s" * 32) + b"\x32" + b"".join(map(string, fields)) + b"\1" + string(b"rsa-sha2-256") + string(blob)
    )
    return request.decode("latin-1")


def file_signature(namespace: bytes) -> str:
    """What `ssh-keygen -Y sign` signs (OpenSSH's PROTOCOL.sshsig)."""
    fields = (namespace, b"", b"sha256", b"h" * 32)
    return (b"SSHSIG" + b"".join(map(string, fields))).decode("latin-1")


COMMIT = "tree 4b825dc642cb6eb9a060e54bf8d69288fbee4904\nauthor A <a@b> 1 +0000\ncommitter A <a@b> 1 +0000\n\nhello\n"

STRANGE: dict[str, Callable[[], str]] = {
    "authentication": ssh_authentication,
    "commit": lambda: COMMIT,
    "signed commit": lambda: file_signature(b"git"),
    "file": lambda: file_signature(b"file"),
    "authentication after our prefix": lambda: "hatchway-auth-v1." + ssh_authentication(),
    "commit after our prefix": lambda: "hatchway-auth-v1.\n" + COMMIT,
    "commit in our form": lambda: nonce("HOST") + "\n" + COMMIT,
    "another engine's": lambda: nonce("other.example:443"),
}


@pytest.mark.parametrize("kind", STRANGE)
def test_nothing_but_a_nonce_of_ours_is_signed(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A false engine that sends what other protocols sign, or a challenge of another, is refused unsigned."""

    def reply(request: bytes) -> bytes:
        host = request.lower().split(b"host: ")[1].split(b"\r\n")[0].decode()
        made = STRANGE[kind]().replace(nonce("HOST"), nonce(host))
        return answer(200, json.dumps({"identity": "x", "nonce": made, "lifetime": "1m0s"}).encode())

    with false_agent(holding(key())) as agent, false_engine(reply) as (url, requests):
        monkeypatch.setenv("SSH_AUTH_SOCK", agent.path)
        with Client(url, key="agent:") as client, pytest.raises(ChallengeRefused, match=r"^refused to sign: "):
            client.sign_in()
        assert agent.to_sign == []
        assert len(requests) == 1


def test_the_nonce_alone_is_signed(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the agent signs is the nonce's bytes, by SHA-256; the verify names key and algorithm."""
    sent: list[dict[str, str]] = []

    def reply(request: bytes) -> bytes:
        if request.startswith(b"GET"):
            host = request.lower().split(b"host: ")[1].split(b"\r\n")[0].decode()
            return answer(200, json.dumps({"identity": "x", "nonce": nonce(host), "lifetime": "1m0s"}).encode())
        sent.append(json.loads(request.partition(b"\r\n\r\n")[2]))
        return answer(200, b'{"token": "a.b.c", "permissions": [], "expires_at": 1}')

    with false_agent(holding(key())) as agent, false_engine(reply) as (url, _):
        monkeypatch.setenv("SSH_AUTH_SOCK", agent.path)
        with Client(url, key="agent:key 0") as client:
            client.sign_in()
        (signed,) = agent.to_sign
        assert agent.asked[-1].endswith(struct.pack(">I", 2))
    assert signed.decode() == sent[0]["nonce"]
    assert (sent[0]["identity"], sent[0]["algorithm"]) == (key().identity, "RS256")


def test_keys_are_tried_in_the_agents_order_and_not_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a name the first keys are tried, each once; a name asks for one alone."""
    tried: list[str] = []

    def reply(request: bytes) -> bytes:
        if request.startswith(b"GET"):
            host = request.lower().split(b"host: ")[1].split(b"\r\n")[0].decode()
            return answer(200, json.dumps({"identity": "x", "nonce": nonce(host), "lifetime": "1m0s"}).encode())
        tried.append(json.loads(request.partition(b"\r\n\r\n")[2])["identity"])
        return answer(401, json.dumps({"status": 401, "code": "invalid_signature", "detail": "no"}).encode())

    held = [key(f"held {number}") for number in range(MOST_TRIED + 2)]
    with false_agent(holding(*held)) as agent, false_engine(reply) as (url, _):
        monkeypatch.setenv("SSH_AUTH_SOCK", agent.path)
        with Client(url, key="agent:") as client, pytest.raises(Refused, match=f"none of the {MOST_TRIED} keys"):
            client.sign_in()
        assert tried == [one.identity for one in held[:MOST_TRIED]]
        tried.clear()
        with Client(url, key=f"agent:{held[7].identity}") as client, pytest.raises(Refused, match=r"^no$"):
            client.sign_in()
        assert tried == [held[7].identity]


def refusing(one: PrivateKey, others: Answer) -> Answer:
    """An agent that signs with all its keys but one."""
    blob = string(b64decode(one.public.openssh().split()[1]))
    return lambda message: (
        string(bytes([FAILURE])) if message[0] == SIGN_REQUEST and message[1:].startswith(blob) else others(message)
    )


def engine_that_authorizes(
    *known: str, refusal: tuple[int, str] = (401, "invalid_signature")
) -> Callable[[bytes], bytes]:
    """What an engine answers that authorizes these identities, and refuses others so."""

    def reply(request: bytes) -> bytes:
        if request.startswith(b"GET"):
            host = request.lower().split(b"host: ")[1].split(b"\r\n")[0].decode()
            return answer(200, json.dumps({"identity": "x", "nonce": nonce(host), "lifetime": "1m0s"}).encode())
        status, code = refusal
        if json.loads(request.partition(b"\r\n\r\n")[2])["identity"] not in known:
            return answer(status, json.dumps({"status": status, "code": code, "detail": "key_types is rsa"}).encode())
        return answer(200, b'{"token": "a.b.c", "permissions": [], "expires_at": 1}')

    return reply


def test_a_key_that_the_agent_does_not_sign_with_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is bound to hosts, or that nobody confirms, hides no other; where none signs in, it is told."""
    held = holding(key(), key("two"))
    for known in ((key("two").identity,), ()):
        with (
            false_agent(refusing(key(), held)) as agent,
            false_engine(engine_that_authorizes(*known)) as (url, _),
            Client(url, key="agent:") as client,
        ):
            monkeypatch.setenv("SSH_AUTH_SOCK", agent.path)
            if known:
                client.sign_in()
                assert client.flows.signer is not None
                assert client.flows.signer.identity == key("two").identity
            else:
                with pytest.raises(AgentFault, match=r"refused to sign with .* \(key 0\)"):
                    client.sign_in()


def test_no_rsa_key_where_the_engine_wants_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """An agent with an Ed25519 key alone, at an engine that accepts none: told so, in the engine's own words."""
    private = Ed25519PrivateKey.generate()
    made = PrivateKey(private, read_openssh(private.public_key().public_bytes(*OPENSSH).decode()))
    with (
        false_agent(holding(made)) as agent,
        false_engine(engine_that_authorizes(refusal=(422, "invalid_request"))) as (url, _),
        Client(url, key="agent:") as client,
    ):
        monkeypatch.setenv("SSH_AUTH_SOCK", agent.path)
        with pytest.raises(Refused, match=r"^there is no RSA key to sign in with, .*: key_types is rsa$"):
            client.sign_in()
        with pytest.raises(AgentFault, match=r"^the SSH agent holds no RSA key; .* \(it has ssh-ed25519\)"):
            only_key()


@pytest.mark.parametrize(
    ("made", "why"),
    [
        (string(bytes([FAILURE])), "does not list its keys"),
        (b"", "hung up without an answer"),
        (b"\xff\xff\xff\xff", "no SSH agent"),
        (b"\0\0\0\0", "no SSH agent"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "no SSH agent"),
        (string(b"\x0c\0\0\0\5"), "cut short"),
        (string(b"\x0c\0\0\0\0"), r"is locked \(`ssh-add -X` unlocks it\), or holds none"),
    ],
)
def test_other_answers_are_told_in_words(made: bytes, why: str) -> None:
    """Whatever listens there, the client raises its own fault with a sentence."""
    with false_agent(lambda message: made or None) as agent, pytest.raises(AgentFault, match=why):
        agent_signers("", Agent(agent.path))


def test_no_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither a variable nor a socket, or one that nobody listens on."""
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    with pytest.raises(AgentFault, match="SSH_AUTH_SOCK is not set"):
        agent_signers()
    for path in ("/nowhere/agent.sock", "/dev/null", "/" + "x" * 200):
        with pytest.raises(AgentFault, match="no SSH agent answers at"):
            agent_signers("", Agent(path))


def test_an_agent_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has its time, and no more; so has one that sends a byte now and then."""
    monkeypatch.setattr(agents, "ANSWERED_WITHIN", 0.2)
    with false_agent(lambda message: b"\0") as agent, pytest.raises(AgentFault, match="did not answer within"):
        Agent(agent.path)._ask(b"\x0b", 0.2)


def test_a_signature_that_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """One of SHA-1, of another key, or of other bytes is not sent to the engine."""

    def signing(name: bytes, signature: bytes) -> Callable[[bytes], bytes]:
        def answered(message: bytes) -> bytes:
            if message[0] == agents.REQUEST_IDENTITIES:
                return listing((key().public, "x"))
            return string(bytes([SIGN_RESPONSE]) + string(string(name) + string(signature)))

        return answered

    for name, why in ((b"ssh-rsa", "signs by ssh-rsa"), (b"rsa-sha2-256", "is not by the key")):
        with false_agent(signing(name, b"\1" * 256)) as agent, pytest.raises(AgentFault, match=why):
            agent_signers("", Agent(agent.path))[0].sign(b"nonce")


def test_names() -> None:
    """A key goes by its fingerprint, a unique beginning of it, or a unique comment."""
    keys = [(key("one").public, "laptop"), (key("two").public, "token"), (key("three").public, "token")]
    with false_agent(lambda message: listing(*keys)) as made:
        agent = Agent(made.path)
        assert only_key("laptop", agent).identity == key("one").identity
        assert only_key(key("two").identity, agent).identity == key("two").identity
        assert only_key(key("three").identity[:20], agent).identity == key("three").identity
        for name, why in (("token", "2 keys that go by"), ("other", "no key of the fingerprint"), ("", "holds 3 RSA")):
            with pytest.raises(AgentFault, match=why):
                only_key(name, agent)


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    """No answer raises anything but the client's own fault, and none is read past its end."""
    for read in (read_keys, read_signature):
        for message in (data, b"\x0c" + data, b"\x0e" + data):
            try:
                read(message)
            except AgentFault:
                continue


@given(st.lists(st.tuples(st.binary(max_size=50), st.text(max_size=20)), max_size=5))
def test_what_an_agent_lists_is_read(keys: list[tuple[bytes, str]]) -> None:
    """Every key comes back with its name, whatever is in them."""
    rows = b"".join(string(blob) + string(comment.encode()) for blob, comment in keys)
    read = read_keys(b"\x0c" + len(keys).to_bytes(4) + rows)
    assert [(one.blob, one.comment) for one in read] == keys

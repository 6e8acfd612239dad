"""The way to a fleet's store: TLS under a private authority, and a user of Redis who may do no more than needed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.authority import Authority
from tests.command import process
from tests.fakes import ROOT
from tests.fleet import client, fleet, inspect, member, post
from tests.pairs import Console, desk
from tests.ports import free_port
from tests.processes import EngineProcess, sign_in
from tests.redis_server import RedisServer, speak, until

pytestmark = [pytest.mark.redis, pytest.mark.process]


class Secure:
    """A Redis that speaks TLS, and the authority that vouches for it."""

    def __init__(self, folder: Path, address: str = "127.0.0.1") -> None:
        self.authority, self.port = Authority(folder), free_port()
        certificate, key = self.authority.issue("server", address)
        files = ("--tls-cert-file", str(certificate), "--tls-key-file", str(key))
        ca = ("--tls-ca-cert-file", str(self.authority.path), "--tls-auth-clients", "no")
        self.server = RedisServer(folder / "redis", "--tls-port", str(self.port), *files, *ca).start()
        self.url = f"rediss://127.0.0.1:{self.port}/0"


@pytest.fixture
def secure(tmp_path: Path) -> Iterator[Secure]:
    made = Secure(tmp_path)
    try:
        yield made
    finally:
        made.server.close()


def told(home: Path, url: str) -> str:
    """What a command that wants the store says."""
    done = process("key", "list", HATCHWAY_HOME=str(home), HATCHWAY_STORE=url, HATCHWAY_KEYS="store")
    assert "Traceback" not in done.stderr
    return done.stdout + done.stderr


def test_a_private_authority(secure: Secure, tmp_path: Path) -> None:
    """Named in the address, or to the whole process as SSL_CERT_FILE: one fleet, over TLS."""
    named = f"{secure.url}?ssl_ca_certs={secure.authority.path}"
    with fleet(tmp_path, named) as (a,):
        b = member(tmp_path, "b", secure.url, SSL_CERT_FILE=str(secure.authority.path))
        try:
            b.start()
            with closing(client(a)) as http:
                session = sign_in(http)
            assert inspect(b, session) == 200
            assert post(b, "/api/auth/logout/", session).status_code == 204
            until(lambda: inspect(a, session) == 401)
        finally:
            b.close()


def test_a_certificate_that_is_none_of_ours(secure: Secure, tmp_path: Path) -> None:
    """Of an authority that nobody named: no engine starts, and its words say that it is the certificate."""
    lone = member(tmp_path, "lone", f"rediss://me:secret@127.0.0.1:{secure.port}/0")
    try:
        lone.begin()
        assert lone.process.wait(30) == 1
        assert "certificate verify failed" in lone.log()
        assert "secret" not in lone.log()
    finally:
        lone.close()
    other = Authority(tmp_path, "other").path
    assert "certificate verify failed" in told(tmp_path / "home", f"{secure.url}?ssl_ca_certs={other}")
    assert "missing.pem: " in told(tmp_path / "home", f"{secure.url}?ssl_ca_certs={tmp_path}/missing.pem")


def test_a_certificate_of_another_host(tmp_path: Path) -> None:
    """The authority's word for another address than the one that was dialled is none."""
    secure = Secure(tmp_path, "127.0.0.9")
    try:
        said = told(tmp_path / "home", f"{secure.url}?ssl_ca_certs={secure.authority.path}")
        assert "certificate verify failed: IP address mismatch" in said
    finally:
        secure.server.close()


def test_a_server_that_wants_a_certificate(secure: Secure, tmp_path: Path) -> None:
    """One that Redis asks for is named in the address, with its key."""
    assert speak(secure.server.port, "CONFIG", "SET", "tls-auth-clients", "yes") == b"+OK\r\n"
    named = f"{secure.url}?ssl_ca_certs={secure.authority.path}"
    home = tmp_path / "home"
    assert "the fleet's store can't be reached" in told(home, named)
    certificate, key = secure.authority.issue("engine")
    assert "no authorized keys" in told(home, f"{named}&ssl_certfile={certificate}&ssl_keyfile={key}")
    assert "ssl_certfile" in told(home, f"{named}&ssl_certfile={key}&ssl_keyfile={key}")


def listed_user() -> str:
    """The README's line that makes the user."""
    found = re.search(r"^    (ACL SETUSER engine (?:[^\n\\]|\\\n)+)$", (ROOT / "README.md").read_text(), re.MULTILINE)
    assert found is not None
    return found[1].replace("\\\n", " ")


def used(redis: RedisServer) -> set[str]:
    """Every command that somebody used, `config|get` for one of a family."""
    told = speak(redis.port, "INFO", "commandstats").decode()
    return set(re.findall(r"cmdstat_([a-z|]+):calls=[1-9]", told))


def test_a_user_of_the_store(tmp_path: Path) -> None:
    """A fleet works with the very user that the README makes: nothing is denied to it, and nothing granted idly."""
    redis = RedisServer(tmp_path / "redis").start()
    try:
        words = listed_user().split()
        assert speak(redis.port, *words) == b"+OK\r\n"
        newer = speak(redis.port, "ACL", "SETUSER", "engine", "+client|setinfo") == b"+OK\r\n"
        store = f"redis://engine:PASSWORD@127.0.0.1:{redis.port}/1"
        speak(redis.port, "CONFIG", "RESETSTAT")
        engines = [
            EngineProcess(tmp_path / name, HATCHWAY_STORE=store, HATCHWAY_KEYS="store", HATCHWAY_LIMITS_WRONG_CODES="9")
            for name in "ab"
        ]
        try:
            for engine in engines:
                engine.start()
            walk(*engines)
            lone = EngineProcess(tmp_path / "lone", HATCHWAY_STORE=store)
            engines.append(lone)
            lone.begin()
            assert lone.process.wait(30) == 1
            assert "setting `keys`" in lone.log()
            engines[0].terminate()
        finally:
            for engine in engines:
                engine.close()
        assert speak(redis.port, "ACL", "LOG") == b"*0\r\n"
        granted = {word[1:] for word in words if word.startswith("+")}
        ours = {"acl|setuser", "acl|log", "config|resetstat", "info"}
        elsewhere = {"wait"} | ({"client|setinfo"} if newer else set())  # with Sentinel; from Redis 7.2 on
        assert used(redis) - ours - elsewhere == granted - elsewhere
    finally:
        redis.close()


def walk(a: EngineProcess, b: EngineProcess) -> None:
    """Through all that a fleet asks of its store."""
    with closing(client(a)) as http:
        session = sign_in(http)
        assert http.post("/api/auth/verify/", json={"nonce": "a", "signature": "b"}).status_code == 401
    assert post(b, "/api/auth/renew/", session).status_code == 200
    a.command("key", "list")
    with desk(a) as operator:
        wrong = Console(b, "00000000")
        assert wrong.status == 401
        wrong.close()
        console = Console(b, operator.code)
        operator.wait("claimed")
        operator.answer("y")
        assert inspect(a, console.items()[-1]) == 200
        console.close()
    assert post(a, "/api/auth/logout/", session).status_code == 204

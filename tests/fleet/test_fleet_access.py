"""The way to a fleet's store: TLS under a private authority, and a user of Redis who may do no more than needed."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.readme import CHAPTERS
from tests.support.certificate_authority import Authority
from tests.support.command import process
from tests.support.fleet import client, fleet, insist, member, post, settled, signed_in
from tests.support.ports import free_port
from tests.support.processes import EngineProcess
from tests.support.real_pairings import Console, operator_at
from tests.support.redis_server import SERVER, RedisServer, speak
from tests.support.waits import until

pytestmark = [pytest.mark.redis, pytest.mark.process]


class Secure:
    """A Redis that speaks TLS, and the authority that vouches for it. `more` are its further arguments."""

    def __init__(self, folder: Path, address: str = "127.0.0.1", *more: str) -> None:
        self.authority, self.port = Authority(folder), free_port()
        certificate, key = self.authority.issue("server", address)
        self.files = {"tls-cert-file": certificate, "tls-key-file": key, "tls-ca-cert-file": self.authority.path}
        arguments = [part for name, path in self.files.items() for part in (f"--{name}", str(path))]
        tls = ("--tls-port", str(self.port), "--tls-auth-clients", "no")
        self.server = RedisServer(folder / "redis", *tls, *arguments, *more).start()
        self.url = f"rediss://127.0.0.1:{self.port}/0"


@pytest.fixture
def secure(tmp_path: Path) -> Iterator[Secure]:
    made = Secure(tmp_path)
    try:
        yield made
    finally:
        made.server.close()


def said(home: Path, url: str) -> str:
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
            session = signed_in(a)
            assert settled(b, session) == 200
            assert post(b, "/api/auth/logout/", session).status_code == 204
            until(lambda: settled(a, session) == 401)
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
    assert "certificate verify failed" in said(tmp_path / "home", f"{secure.url}?ssl_ca_certs={other}")
    assert "missing.pem: " in said(tmp_path / "home", f"{secure.url}?ssl_ca_certs={tmp_path}/missing.pem")


def test_a_certificate_of_another_host(tmp_path: Path) -> None:
    """The authority's word for another address than the one that was dialled is none."""
    secure = Secure(tmp_path, "127.0.0.9")
    try:
        words = said(tmp_path / "home", f"{secure.url}?ssl_ca_certs={secure.authority.path}")
        assert "certificate verify failed: IP address mismatch" in words
    finally:
        secure.server.close()


def test_a_server_that_wants_a_certificate(secure: Secure, tmp_path: Path) -> None:
    """One that Redis asks for is named in the address, with its key."""
    assert speak(secure.server.port, "CONFIG", "SET", "tls-auth-clients", "yes") == b"+OK\r\n"
    named = f"{secure.url}?ssl_ca_certs={secure.authority.path}"
    home = tmp_path / "home"
    assert "the fleet's store can't be reached" in said(home, named)
    certificate, key = secure.authority.issue("engine")
    assert "no authorized keys" in said(home, f"{named}&ssl_certfile={certificate}&ssl_keyfile={key}")
    assert "ssl_certfile" in said(home, f"{named}&ssl_certfile={key}&ssl_keyfile={key}")


def test_sentinel_over_tls(tmp_path: Path) -> None:
    """Sentinels, primary and replica all behind one authority's certificates; without it none is believed."""
    secure = Secure(tmp_path, "127.0.0.1", "--tls-replication", "yes")
    replicated = ("--tls-replication", "yes", "--replicaof", "127.0.0.1", str(secure.port))
    tls = ("--tls-port", str(free_port()), "--tls-auth-clients", "no")
    files = [part for name, path in secure.files.items() for part in (f"--{name}", str(path))]
    replica = RedisServer(tmp_path / "replica", *tls, *files, *replicated)
    watcher = Watcher(tmp_path / "watcher", secure)
    try:
        replica.start()
        until(lambda: secure.server.replicas() == 1, what="the replica")
        watcher.start()
        until(watcher.knows_all, 60, what="the sentinel")
        address = f"rediss+sentinel://127.0.0.1:{watcher.tls_port}/fleet"
        with fleet(tmp_path, f"{address}?ssl_ca_certs={secure.authority.path}") as (engine,):
            assert settled(engine, signed_in(engine)) == 200
        assert "No primary found" in said(tmp_path / "home", address)
    finally:
        for server in (watcher, replica, secure.server):
            server.close()


class Watcher(RedisServer):
    """The one sentinel of a store that speaks TLS."""

    def __init__(self, folder: Path, secure: Secure) -> None:
        super().__init__(folder)
        self._secure, self.tls_port = secure, free_port()

    def start(self) -> RedisServer:
        self.folder.mkdir()
        path = self.folder / "sentinel.conf"
        files = "".join(f"{name} {file}\n" for name, file in self._secure.files.items())
        path.write_text(
            f"port {self.port}\nbind 127.0.0.1\ndir {self.folder}\nlogfile {self.folder}/log\n"
            f"tls-port {self.tls_port}\ntls-auth-clients no\ntls-replication yes\n{files}"
            f"sentinel monitor fleet 127.0.0.1 {self._secure.port} 1\n"
        )
        self._process = subprocess.Popen([SERVER, str(path), "--sentinel"])
        until(lambda: speak(self.port, "PING").startswith(b"+PONG"), what="a sentinel")
        return self

    def knows_all(self) -> bool:
        told = speak(self.port, "INFO", "sentinel")
        return b"slaves=1" in told and b"status=ok" in told


def listed_user() -> str:
    """The handbook's line that makes the user."""
    found = re.search(r"^    (ACL SETUSER engine (?:[^\n\\]|\\\n)+)$", CHAPTERS["fleet"].read_text(), re.MULTILINE)
    assert found is not None
    return found[1].replace("\\\n", " ")


def used(redis: RedisServer) -> set[str]:
    """Every command that somebody used, `config|get` for one of a family."""
    told = speak(redis.port, "INFO", "commandstats").decode()
    return set(re.findall(r"cmdstat_([a-z|]+):calls=[1-9]", told))


def test_a_user_of_the_store(tmp_path: Path) -> None:
    """A fleet works with the very user that the handbook makes: nothing is denied to it, and nothing granted idly."""
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
    session = signed_in(a)
    with closing(client(a)) as http:
        wrong_one = {"nonce": "a", "signature": "b"}
        assert insist(lambda: http.post("/api/auth/verify/", json=wrong_one)).status_code == 401
    assert post(b, "/api/auth/renew/", session).status_code == 200
    a.command("key", "list")
    with operator_at(a) as operator:
        wrong = Console(b, "00000000")
        assert wrong.status == 401
        wrong.close()
        console = Console(b, operator.code)
        operator.wait("claimed")
        operator.answer("y")
        assert settled(a, console.items()[-1]) == 200
        console.close()
    assert post(a, "/api/auth/logout/", session).status_code == 204

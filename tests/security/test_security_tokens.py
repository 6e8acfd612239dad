"""Challenges, signatures and tokens against a real engine process: replay, forgery, oracles, restarts."""

from __future__ import annotations

import json
import statistics
import time
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import padding
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.hazmat.primitives.hashes import SHA1, SHA256, SHA512
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from hatchway.engine.base.base64url import decode, encode
from hatchway.engine.base.permissions import FIVE
from hatchway.engine.keys.authorized_keys import AuthorizedKeys
from tests.support.fakes import key, signed
from tests.support.hostile_requests import exchange, request, token_attacks
from tests.support.processes import EngineProcess, running_engine, sign_in
from tests.support.timing import kept

pytestmark = pytest.mark.process

CHALLENGE, VERIFY, INSPECT = "/api/auth/challenge/", "/api/auth/verify/", "/api/auth/inspect/"
INSTANCE = "/api/platform/singularity/instance/"


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EngineProcess]:
    """Whose limit of failed verifies is out of the way."""
    with running_engine(
        tmp_path_factory.mktemp("tokens") / "home", HATCHWAY_LIMITS_FAILED_VERIFIES="100000"
    ) as running:
        yield running


@pytest.fixture(scope="module")
def client(engine: EngineProcess) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=engine.url) as made:
        yield made


def nonce_of(client: httpx.Client, identity: str | None = None) -> str:
    """A fresh challenge."""
    nonce: str = client.get(CHALLENGE, params={"identity": identity} if identity else {}).json()["nonce"]
    return nonce


def test_a_signature_works_once(engine: EngineProcess, client: httpx.Client) -> None:
    """D1, B11: sent again it is refused; of fifty copies at once exactly one signs in."""
    body = signed(nonce_of(client), key())
    assert [client.post(VERIFY, json=body).status_code for _ in range(2)] == [200, 401]
    fresh = signed(nonce_of(client), key())
    with ThreadPoolExecutor(50) as pool:
        statuses = list(pool.map(lambda _: httpx.post(engine.url + VERIFY, json=fresh).status_code, range(50)))
    assert sorted(statuses) == [200] + [401] * 49


def test_a_bad_try_burns_nobodys_nonce(client: httpx.Client) -> None:
    """B11: whoever sends garbage on somebody's nonce locks nobody out; key B is no answer to A's challenge (D3)."""
    nonce = nonce_of(client, key().identity)
    assert client.post(VERIFY, json=signed(nonce, key("stranger"))).status_code == 401
    assert client.post(VERIFY, json=signed(nonce, key("own"))).status_code == 401
    assert client.post(VERIFY, json={"nonce": nonce, "signature": "AAAA"}).status_code == 401
    assert client.post(VERIFY, json=signed(nonce, key())).status_code == 200


def _raw(how: padding.AsymmetricPadding, digest: Any) -> Callable[[bytes], bytes]:
    return lambda message: key().rsa.sign(message, how, digest)


def _pss(salt: Any, mgf: Any = None) -> padding.PSS:
    return padding.PSS(padding.MGF1(mgf or SHA256()), salt)


SCHEMES: dict[str, Callable[[bytes], bytes]] = {
    "SHA-1": _raw(padding.PKCS1v15(), SHA1()),
    "SHA-512": _raw(padding.PKCS1v15(), SHA512()),
    "no salt": _raw(_pss(0), SHA256()),
    "salt 20": _raw(_pss(20), SHA256()),
    "longest salt": _raw(_pss(padding.PSS.MAX_LENGTH), SHA256()),
    "MGF1 with SHA-1": _raw(_pss(32, SHA1()), SHA256()),
    "zeros": lambda message: bytes(256),
    "one": lambda message: (1).to_bytes(256),
    "n - 1": lambda message: (_n() - 1).to_bytes(256),
    "n": lambda message: _n().to_bytes(256),
    "s + n": lambda message: (int.from_bytes(_good(message)) + _n()).to_bytes(257),
    "one byte short": lambda message: _good(message)[:-1],
    "one byte long": lambda message: _good(message) + b"\0",
    "a zero in front": lambda message: b"\0" + _good(message),
    "of another text": lambda message: _good(message + b"\n"),
}


def _n() -> int:
    private: RSAPrivateKey = key().rsa
    return private.public_key().public_numbers().n


def _good(message: bytes) -> bytes:
    return key().rsa.sign(message, padding.PKCS1v15(), SHA256())


SPELLINGS: dict[str, Callable[[bytes], str]] = {
    "line end": lambda raw: b64encode(raw).decode() + "\n",
    "line end inside": lambda raw: b64encode(raw).decode()[:76] + "\n" + b64encode(raw).decode()[76:],
    "space": lambda raw: " " + b64encode(raw).decode(),
    "padding too many": lambda raw: b64encode(raw).decode() + "=",
    "half the padding": lambda raw: b64encode(raw).decode()[:-1],
    "! inside": lambda raw: b64encode(raw).decode()[:8] + "!" + b64encode(raw).decode()[8:],
    "two alphabets": lambda raw: "-+" + b64encode(raw).decode()[2:],
    "spare bits": lambda raw: b64encode(raw).decode()[:-3] + "x==",
    "hex": lambda raw: raw.hex(),
    "twice": lambda raw: b64encode(b64encode(raw)).decode(),
}


def test_forged_signatures(client: httpx.Client) -> None:
    """D5, V3, V4: other padding, hash or salt, the ends of the range, another length: 401 under either algorithm."""
    nonce = nonce_of(client)
    for name, forge in SCHEMES.items():
        signature = b64encode(forge(nonce.encode())).decode()
        for algorithm in ("RS256", "PS256"):
            body = {"nonce": nonce, "signature": signature, "algorithm": algorithm}
            assert client.post(VERIFY, json=body).status_code == 401, name
    assert client.post(VERIFY, json=signed(nonce, key())).status_code == 200


def test_one_spelling_of_a_signature(client: httpx.Client) -> None:
    """D5, V5: what isn't strict base64 or base64url is 401 and burns nothing; both of those are taken."""
    nonce = nonce_of(client)
    good = _good(nonce.encode())
    for name, spell in SPELLINGS.items():
        answer = client.post(VERIFY, json={"nonce": nonce, "signature": spell(good)})
        assert answer.status_code == 401, name
    assert client.post(VERIFY, json={"nonce": nonce, "signature": b64encode(good).decode()}).status_code == 200
    again = nonce_of(client)
    text = urlsafe_b64encode(_good(again.encode())).decode().rstrip("=")
    assert client.post(VERIFY, json={"nonce": again, "signature": text}).status_code == 200


def test_nobody_learns_which_keys_exist(engine: EngineProcess, client: httpx.Client) -> None:
    """D6, C2, V9: a challenge for an unknown key looks and costs as one for a known key, in shape, length and time."""
    known, unknown = key().identity, "SHA256:" + "x" * 43
    shapes = set()

    def difference() -> float:
        """Between the two, of what it may be: half a millisecond, or a tenth of the faster where that is more."""
        times = {known: list[float](), unknown: list[float]()}
        for turn in range(400):
            identity = (known, unknown)[turn % 2]
            before = time.perf_counter()
            answer = client.get(CHALLENGE, params={"identity": identity})
            times[identity].append(time.perf_counter() - before)
            value = answer.json()
            names = tuple(name.lower() for name in answer.headers)
            shapes.add((answer.status_code, names, tuple(value), len(answer.content), len(value["nonce"])))
            assert value["identity"] == identity
        medians = [statistics.median(values) for values in times.values()]
        return abs(medians[0] - medians[1]) / max(0.0005, 0.1 * min(medians))

    kept(1, difference)
    assert len(shapes) == 1


def test_one_refusal_for_every_bad_verify(engine: EngineProcess, client: httpx.Client) -> None:
    """D6: unknown identity, bad signature, used nonce, foreign nonce, removed key: byte for byte the same 401."""
    keys = AuthorizedKeys(engine.home / "authorized_keys")
    keys.register(key("leaver").public, FIVE)
    leaver = signed(nonce_of(client, key("leaver").identity), key("leaver"))
    used = signed(nonce_of(client), key())
    assert client.post(VERIFY, json=used).status_code == 200
    engine.command("key", "unregister", key("leaver").identity)
    bad = [
        used,
        leaver,
        signed(nonce_of(client, "SHA256:" + "x" * 43), key()),
        signed(nonce_of(client), key("stranger")),
        signed("hatchway-auth-v1.a.b.c.d.e", key()),
    ]
    answers = [client.post(VERIFY, json=body) for body in bad]
    assert len({(answer.status_code, answer.content) for answer in answers}) == 1
    assert answers[0].status_code == 401


def test_the_93_attacks(engine: EngineProcess, client: httpx.Client, tmp_path: Path) -> None:
    """D14, B11: at inspect and at the instance endpoint each is 401 with the one body, and a sound token still works.

    What HTTP itself refuses never gets there: 431 where the header is over 16 KiB.
    """
    token = sign_in(client)["token"]
    public = tmp_path / "public.pem"
    public.write_bytes(key("own").public.pem())
    told: dict[str, set[tuple[int, bytes]]] = {INSPECT: set(), INSTANCE: set()}
    for name, authorization in token_attacks(token, (public,)):
        for target, method in ((INSPECT, "GET"), (INSTANCE, "POST")):
            answer = exchange(engine.port, request(method, target, f"Authorization: {authorization}", port=engine.port))
            if name.startswith("ok-"):
                assert answer.status in (200, 415), name
            elif answer.status != 431 or len(authorization) < 16_000:
                told[target].add((answer.status, answer.body))
    for bodies in told.values():
        assert [status for status, _ in bodies] == [401], bodies
        assert b"Traceback" not in next(iter(bodies))[1]
    assert client.get(INSPECT, headers={"Authorization": f"Bearer {token}"}).status_code == 200


@pytest.mark.parametrize("claim", ["iss", "aud", "exp", "iat", "jti", "sub", "sid", "permissions"])
def test_every_claim_counts(engine: EngineProcess, client: httpx.Client, claim: str) -> None:
    """D14: signed with the engine's own token key, and still no token where a claim is missing or of another type."""
    token = sign_in(client)["token"]
    private: Any = load_pem_private_key((engine.home / "token-key.pem").read_bytes(), None)
    header = jwt.get_unverified_header(token)
    payload = jwt.decode(token, options={"verify_signature": False})
    assert _status(client, _forged(private, header, payload)) == 200
    for wrong in (None, 1.5, True, {}, {"x": 1}):
        assert _status(client, _forged(private, header, payload | {claim: wrong})) == 401, wrong
    del payload[claim]
    assert _status(client, _forged(private, header, payload)) == 401
    if claim == "permissions":
        raised = _forged(private, header, payload | {"permissions": ["MASTER"]})
        held = client.get(INSPECT, headers={"Authorization": f"Bearer {raised}"}).json()["permissions"]
        assert held == list(FIVE), "what a session may is looked up, never read from its token"


def _forged(private: Any, header: dict[str, Any], payload: dict[str, Any]) -> str:
    text = ".".join(encode(json.dumps(part).encode()) for part in (header, payload))
    return f"{text}.{encode(private.sign(text.encode()))}"


def _status(client: httpx.Client, token: str) -> int:
    return client.get(INSPECT, headers={"Authorization": f"Bearer {token}"}).status_code


def test_restarts(tmp_path: Path) -> None:
    """D4, D16, B13: a nonce dies with the engine, a token lives, an ended one stays dead; no token key, no tokens."""
    with running_engine(tmp_path / "home") as engine:
        with httpx.Client(base_url=engine.url) as client:
            nonce, live, ended = nonce_of(client), sign_in(client)["token"], sign_in(client)["token"]
            assert client.post("/api/auth/logout/", headers={"Authorization": f"Bearer {ended}"}).status_code == 204
        assert decode(nonce.split(".")[1]).decode() == f"127.0.0.1:{engine.port}"
        port = engine.port
        engine.terminate()
        engine.start(port)
        with httpx.Client(base_url=engine.url) as client:
            assert client.post(VERIFY, json=signed(nonce, key())).status_code == 401
            assert [_status(client, token) for token in (live, ended)] == [200, 401]
        engine.terminate()
        (engine.home / "token-key.pem").unlink()
        engine.start(port)
        with httpx.Client(base_url=engine.url) as client:
            assert _status(client, live) == 401
            sign_in(client)

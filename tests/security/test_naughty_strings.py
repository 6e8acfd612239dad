"""The Big List of Naughty Strings, and more, through every text field of every endpoint of a real engine process."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import msgspec
import pytest

from hatchway.api.http.endpoint import Endpoint
from hatchway.api.http.table import ENDPOINTS
from hatchway.engine.journal.heads import HEADS
from tests.support.command import completed
from tests.support.fakes import key
from tests.support.hostile_requests import naughty_strings
from tests.support.plain_client import PlainAnswer, PlainClient
from tests.support.processes import EngineProcess, bearer, running_engine, sign_in
from tests.support.real_pairings import operator_at

pytestmark = [pytest.mark.process, pytest.mark.vectors]

QUERIES = {
    "/api/auth/challenge/": ("identity",),
    "/api/platform/singularity/instance/{identity}/log/": ("stream", "follow"),
}
SETTINGS = {"HATCHWAY_LIMITS_WRONG_CODES": "10000", "HATCHWAY_LIMITS_FAILED_VERIFIES": "100000"}
SETTINGS |= {"HATCHWAY_LIMITS_WRONG_CODES_TOTAL": "100000", "HATCHWAY_ALLOW_ROOT_INSTANCES": "true"}

JSON = {"Content-Type": "application/json"}


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EngineProcess]:
    with running_engine(tmp_path_factory.mktemp("naughty") / "home", **SETTINGS) as running:
        yield running


@pytest.fixture(scope="module")
def client(engine: EngineProcess) -> Iterator[PlainClient]:
    """Signed in with MASTER, so that no text is stopped for want of a permission."""
    with httpx.Client(base_url=engine.url, verify=False) as first:
        token = sign_in(first, key("own"))["token"]
    with PlainClient(engine, bearer(token)) as made:
        yield made


def texts() -> list[str]:
    """All of them; those with half a surrogate pair can't be sent as UTF-8 and are sent escaped, as the rest is too."""
    return [*naughty_strings(), "\ud800", "\udfffx"]


def state(engine: EngineProcess) -> tuple[Any, ...]:
    """What no naughty text may change: the files of the folder and what is in those that sign-ins don't write. The
    journal's own come and go by the clock: its first head is signed when the engine has run for a minute."""
    head = engine.home / "log" / HEADS
    found = (path for path in engine.home.rglob("*") if path.suffix != ".jsonl" and path != head)
    names = sorted(str(path.relative_to(engine.home)) for path in found)
    kept = ("authorized_keys", "private-key.pem", "token-key.pem")
    return [name for name in names if "engine.db" not in name], *((engine.home / name).read_bytes() for name in kept)


@pytest.fixture(autouse=True)
def unchanged(engine: EngineProcess) -> Iterator[None]:
    """Bad input never ends the engine, leaves a trace or changes a file; every line of its log is JSON."""
    before = state(engine)
    yield
    assert state(engine) == before
    assert engine.process.poll() is None
    log = engine.log()
    assert "Traceback" not in log
    assert all(json.loads(line) for line in log.splitlines())


def check(answer: PlainAnswer, text: str) -> None:
    """A refusal of the documented kind; nothing of the text comes back but inside JSON."""
    assert answer.status_code < 500 or answer.json()["code"] == "runtime_unavailable", (text, answer.text)
    assert answer.headers["content-type"] in ("application/problem+json", "application/json"), (text, answer.headers)
    assert answer.headers["x-content-type-options"] == "nosniff"
    json.loads(answer.content)


BODIED = [endpoint for endpoint in ENDPOINTS if endpoint.body is not None]
FIELDS = [(endpoint, field) for endpoint in BODIED for field in msgspec.structs.fields(endpoint.body or msgspec.Struct)]


@pytest.mark.parametrize(
    ("endpoint", "field"), FIELDS, ids=lambda part: getattr(part, "name", getattr(part, "path", ""))
)
def test_every_field(client: PlainClient, endpoint: Endpoint, field: msgspec.structs.FieldInfo) -> None:
    """Each text as the field's value, or in its list; the others as a sound request has them. None is ever taken."""
    sound = {"nonce": "a", "signature": "AAAA", "code": "00000000", "image": "absent.sif"}
    names = {known.name for known in msgspec.structs.fields(endpoint.body or msgspec.Struct)}
    listed = field.name in ("command", "env", "volume")
    for text in texts():
        body = {name: value for name, value in sound.items() if name in names} | {
            field.name: [text] if listed else text
        }
        answer = client.request("POST", endpoint.path, json.dumps(body).encode(), JSON)
        check(answer, text)
        assert answer.status_code >= 400, (text, answer.text)


def test_every_field_s_name(client: PlainClient) -> None:
    """Each text as the name of a field: unknown, and the refusal names no more than its beginning."""
    for endpoint in BODIED:
        for text in texts():
            answer = client.request("POST", endpoint.path, json.dumps({text: 1}).encode(), JSON)
            check(answer, text)
            assert answer.status_code in (400, 422)
            assert len(answer.content) < 3000


@pytest.mark.parametrize(
    "endpoint",
    [endpoint for endpoint in ENDPOINTS if "{" in endpoint.path],
    ids=lambda endpoint: f"{endpoint.method} {endpoint.path}",
)
def test_every_part_of_a_path(client: PlainClient, endpoint: Endpoint) -> None:
    """Each text percent-encoded in a path: nothing is found, nothing outside is served."""
    begin, _, rest = endpoint.path.partition("{")
    for text in texts():
        part = quote(text.encode("utf-8", "surrogatepass"), safe="")
        if not part.replace(".", "").replace("%2E", ""):
            continue  # nothing or dots: the client itself makes another path of it
        answer = client.request(endpoint.method, begin + part + rest.partition("}")[2])
        check(answer, text)
        assert answer.status_code in (400, 404), (text, answer.text)


@pytest.mark.parametrize(("path", "names"), QUERIES.items(), ids=QUERIES)
def test_every_query(client: PlainClient, path: str, names: tuple[str, ...]) -> None:
    """Each text as a query's value, a query's name, and the whole query."""
    for text in texts():
        part = quote(text.encode("utf-8", "surrogatepass"), safe="")
        for query in (*(f"{name}={part}" for name in names), f"{part}=1", part):
            answer = client.request("GET", f"{path.format(identity='none')}?{query}")
            check(answer, text)
            assert answer.status_code in (200, 404, 422)
            if answer.status_code == 200 and "identity=" in query and text:
                assert answer.json()["identity"] == text.replace(" ", "+"), (
                    "an identity comes back as it is, or not at all"
                )


def test_every_header(engine: EngineProcess, client: PlainClient) -> None:
    """Each text as a header that the engine reads, as bytes: refused or ignored, and never echoed raw."""
    for text in texts():
        value = (
            text.encode("utf-8", "surrogatepass").replace(b"\0", b"").replace(b"\r", b"").replace(b"\n", b"").strip()
        )
        for name in (
            "Authorization",
            "Origin",
            "Accept",
            "Content-Type",
            "User-Agent",
            "X-Forwarded-For",
            "If-None-Match",
        ):
            answer = client.request("POST", "/api/auth/pair/request/", b"{}", {name: value})
            assert answer.status_code < 500, (name, text)
            if answer.content:
                check(answer, text)


def test_the_operators_texts(engine: EngineProcess) -> None:
    """Each text as permission list, lifetime, name and comment at the operator socket: refused, or plain text."""
    for text in texts()[::5]:
        for asked in ({"permissions": [text]}, {"permissions": text}, {"lifetime": text}, {"op": text}):
            lines = engine.operator({"op": "pair", "permissions": ["SHELL"], "lifetime": 60} | asked)
            assert "error" in lines[-1], (text, lines)
    with operator_at(engine) as operator:
        assert len(operator.code) == 8


@pytest.mark.parametrize(
    "command", ["key generate", "key unregister", "key register", "engine pair --permissions", "config get"]
)
def test_the_command(engine: EngineProcess, tmp_path: Path, command: str) -> None:
    """Texts of each kind as a command's argument: a refusal in words, no trace, and nothing raw on the terminal."""
    odd = [text for text in naughty_strings() if "\0" not in text and (not text.isprintable() or "<" in text)]
    for text in odd[::25]:
        arguments = [*command.split(), *(() if "--" in command else ("--",)), text]
        ran = completed(engine.environ, *arguments, folder=tmp_path)
        assert ran.returncode in (1, 2), (text, ran)
        assert "Traceback" not in ran.stderr
        assert "\x1b" not in ran.stderr + ran.stdout
        assert list(tmp_path.iterdir()) == []

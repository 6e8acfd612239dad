"""`/openapi.json` tells the whole API and nothing but: checked by hand, by the endpoints, and by schemathesis."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
import trio
from jsonschema import Draft202012Validator

from hatchway.api.http.app import make_app
from hatchway.api.http.endpoints.platform import _described
from hatchway.api.http.problems import STATUS
from hatchway.api.http.schema.openapi import openapi
from hatchway.api.http.schema.shapes import InstanceShape
from hatchway.api.http.table import ENDPOINTS
from hatchway.engine.engine import Engine
from hatchway.engine.instances.all_instances import InstanceView
from hatchway.engine.instances.protocol import ConfirmedStart, ListedInstance
from hatchway.engine.instances.request import Image, InstanceRequest, Volume
from hatchway.engine.instances.supervisor import InstanceFacts
from tests.support.event_stream import Reader, read_events
from tests.support.fakes import Browser, effort, key
from tests.support.fakes import sign_in as sign_in_here
from tests.support.processes import EngineProcess, running_engine, sign_in
from tests.support.virtual_pairings import Host, claim

DOCUMENT = json.loads(json.dumps(openapi(ENDPOINTS)))


def operations() -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in DOCUMENT["paths"].items():
        for method, operation in methods.items():
            yield method.upper(), path, operation


def validator(schema: Any) -> Draft202012Validator:
    """Of a schema as it stands in the document, with the components it refers to."""
    return Draft202012Validator({"$ref": "#/wanted", "wanted": schema, "components": DOCUMENT["components"]})


def references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for name, inner in value.items():
            if name == "$ref":
                yield inner
            yield from references(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from references(inner)


def test_every_endpoint_is_described() -> None:
    """Each row of the table once: what it is for, what it asks, what it answers, how it refuses, who may."""
    assert [(method, path) for method, path, _ in operations()].sort() == [(d.method, d.path) for d in ENDPOINTS].sort()
    assert len({operation["operationId"] for *_, operation in operations()}) == len(ENDPOINTS)
    for endpoint in ENDPOINTS:
        operation = DOCUMENT["paths"][endpoint.path][endpoint.method.lower()]
        assert operation["summary"] == endpoint.summary
        assert operation["description"]
        assert {int(status) for status in operation["responses"] if status < "400"} == set(endpoint.answers)
        assert endpoint.answers
        assert ("requestBody" in operation) == (endpoint.body is not None)
        named = [param["name"] for param in operation["parameters"] if param["in"] == "path"]
        assert named == re.findall(r"\{(\w+)\}", endpoint.path)
        assert all(param["description"] for param in operation["parameters"])
        assert ("security" in operation) == (endpoint.access != "open" or "invalid_token" in endpoint.refusals)


def test_every_refusal_is_told_under_its_status() -> None:
    """Codes stand where the table of statuses puts them; an endpoint that wants a token tells 401, a permission 403."""
    for endpoint in ENDPOINTS:
        responses = DOCUMENT["paths"][endpoint.path][endpoint.method.lower()]["responses"]
        told = {
            code: int(status)
            for status, response in responses.items()
            if status >= "400"
            for code in response["content"]["application/problem+json"]["schema"]["allOf"][1]["properties"]["code"][
                "enum"
            ]
        }
        assert told.items() <= STATUS.items()
        assert set(endpoint.refusals) <= set(told)
        assert ("invalid_token" in told) == (endpoint.access != "open" or "invalid_token" in endpoint.refusals)
        assert ("not_json" in told) == (endpoint.body is not None)


def test_the_document_holds_together() -> None:
    """Every reference leads somewhere, every schema is one, and every component is used."""
    used = set(references(DOCUMENT))
    assert used == {f"#/components/schemas/{name}" for name in DOCUMENT["components"]["schemas"]}
    for name in DOCUMENT["components"]["schemas"]:
        Draft202012Validator.check_schema(DOCUMENT["components"]["schemas"][name])
    assert DOCUMENT["openapi"] == "3.1.0"


def test_an_instance_has_the_shape_that_is_told() -> None:
    """What the instance endpoints answer is exactly the described object, with everything set and with nothing set."""
    request = InstanceRequest(
        "box", Image("/srv/box.sif"), ("true",), 500, 1024, "all", ("A=1",), (Volume("/data", "/data", True),), False
    )
    entry = ListedInstance("box", 1, "/srv/box.sif", "", "/log/err", "/log/out")
    full = InstanceFacts(request, "SHA256:x", 1.0, ConfirmedStart(entry, "1", (0, 0)), 2.0, 3.0, 0, "none")
    for facts in (full, InstanceFacts(InstanceRequest("box", Image("docker://a", "a")), "", 1.0)):
        answer = _described(InstanceView("box", "running", None, facts, "host"))
        assert list(answer) == [field.name for field in msgspec.structs.fields(InstanceShape)]
        msgspec.convert(answer, InstanceShape, strict=True)
        validator({"$ref": "#/components/schemas/Instance"}).validate(json.loads(json.dumps(answer)))


def item_schema(method: str, path: str, media: str) -> Any:
    return DOCUMENT["paths"][path][method]["responses"]["200"]["content"][media]["x-itemSchema"]


@pytest.mark.virtual_time
async def test_items_of_a_pairing_are_as_told(engine: Engine, nursery: trio.Nursery) -> None:
    """Each line of the stream, whether it ends well or not, is one of the described items."""
    items = validator(item_schema("post", "/api/auth/pair/request/", "application/x-ndjson"))
    host, browser = Host(engine), Browser(make_app(engine))
    for approved in (True, False):
        issued = await host.print_code()
        reply = await claim(nursery, browser, issued.code)
        await host.answer(issued, approved)
        await reply.done.wait()
        assert len(reply.lines()) == 2
        for line in reply.lines():
            items.validate(line)
    assert not items.is_valid({"accepted": False})


@pytest.mark.virtual_time
async def test_events_are_as_told(engine: Engine, nursery: trio.Nursery) -> None:
    """The data of every event, a gap's included, is one of the described items."""
    items = validator(item_schema("get", "/api/events/", "text/event-stream"))
    browser = Browser(make_app(engine))
    reader = Reader(browser, (await sign_in_here(browser, key("own")))["token"], "999999")
    nursery.start_soon(reader.run)
    await trio.sleep(0.1)
    await sign_in_here(browser)
    await trio.sleep(0.1)
    reader.reply.hang_up.set()
    found = read_events(reader.reply.body)
    assert [event.name for event in found] == ["gap", "message"]
    for event in found:
        items.validate(event.data)


RAISED = {
    "HATCHWAY_MAX_INSTANCES": "0",
    "HATCHWAY_LIMITS_FAILED_VERIFIES": "100000",
    "HATCHWAY_LIMITS_WRONG_CODES": "10000",
    "HATCHWAY_LIMITS_WRONG_CODES_TOTAL": "100000",
}
"""Settings for the run: no limit of guesses in its way, and no container started by it."""

INSTANCE = "POST /api/platform/singularity/instance/"


def configuration(engine: EngineProcess) -> str:
    """MASTER for all but three endpoints: the token that ends sessions is another, and an endless stream is refused."""
    with httpx.Client(base_url=engine.url) as client:
        master = sign_in(client, key("own"), lifetime="24h")["token"]
        ended, other = (sign_in(client, lifetime="24h")["token"] for _ in range(2))
    tokens = {
        "POST /api/auth/logout/": ended,
        "DELETE /api/auth/sessions/{session}/": other,
        "GET /api/events/": other,
    }
    rows = [f'headers = {{ Authorization = "Bearer {master}" }}']
    for name, token in tokens.items():
        rows.append(f'[[operations]]\ninclude-name = "{name}"\nheaders = {{ Authorization = "Bearer {token}" }}')
    # A schema can't say which images there are, nor that there is room for none.
    accepted = '["2xx", "422", "429"]'
    rows.append(
        f'[[operations]]\ninclude-name = "{INSTANCE}"\nchecks.positive_data_acceptance.expected-statuses = {accepted}'
    )
    return "\n".join(rows)


@pytest.mark.process
@pytest.mark.fuzz
def test_schemathesis_finds_nothing(tmp_path: Path, home: Path) -> None:
    """2,000 cases and more, made from the document, good and bad: every check passes on a real engine."""
    with running_engine(home, **RAISED) as engine:
        (tmp_path / "schemathesis.toml").write_text(configuration(engine))
        arguments = [sys.executable, "-m", "schemathesis.cli", "--config-file", "schemathesis.toml", "run"]
        arguments += [f"{engine.url}/openapi.json", "--checks", "all", "--phases", "examples,coverage,fuzzing"]
        arguments += ["--max-examples", str(int(80 * effort())), "--max-response-time", "30", "--seed", "1"]
        done = subprocess.run(
            [*arguments, "--continue-on-failure", "--no-color"],
            cwd=tmp_path,
            timeout=1200 * effort(),
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
        counted = re.search(r"(\d+) generated, (\d+) passed", done.stdout)
        assert counted, done.stdout
        assert counted[1] == counted[2]
        assert int(counted[1]) >= 2000
        count = len(ENDPOINTS) - 1  # one of them is left to other tests
        assert f"{count}/{count}" in done.stdout or f"{count + 1}/{count + 1}" in done.stdout
        log = engine.log()
    assert "endpoint_failed" not in log
    assert "Traceback" not in log

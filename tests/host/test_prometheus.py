"""A real Prometheus scrapes an engine over TLS as the handbook says, answers the dashboard, and calls when it is to."""

from __future__ import annotations

import datetime
import re
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import httpx
import pytest

from hatchway.engine.keys import key_edits
from hatchway.engine.keys.authorized_keys import AuthorizedKeys
from tests.http.test_metrics import queries
from tests.readme import CHAPTERS
from tests.support.certificate_authority import Authority
from tests.support.fakes import ROOT, key, signed
from tests.support.processes import EngineProcess, prepare, sign_in
from tests.support.prometheus import Prometheus, running_prometheus
from tests.support.waits import until

pytestmark = [pytest.mark.prometheus, pytest.mark.process]

OPERATORS = CHAPTERS["operators"].read_text()


class Watched(NamedTuple):
    """An engine, a client of it that knows the authority, and the Prometheus that scrapes it."""

    engine: EngineProcess
    client: httpx.Client
    prometheus: Prometheus


def configuration(port: int, authority: Path, rules: Path) -> str:
    """The handbook's, with what it says of TLS and rules, for an engine at this port."""
    block: str
    (block,) = re.findall(r"^```yaml\n(scrape_configs:.*?)^```$", OPERATORS, re.DOTALL | re.MULTILINE)
    https = "    scheme: https\n    tls_config: {ca_file: /etc/prometheus/ca.pem}\n"
    for line in (*https.splitlines(), "rule_files: [alerts.yml]"):
        assert line.strip() in " ".join(OPERATORS.split()), "the handbook says so"
    block = block.replace("127.0.0.1:7420", f"127.0.0.1:{port}").replace(
        "    static_configs", https + "    static_configs"
    )
    return str(block).replace("/etc/prometheus/ca.pem", str(authority)) + f"rule_files: [{rules}]\n"


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    """The engine shows a certificate that ends in nine days, and has a key that is good from 10.0.0.0/8 alone."""
    folder = tmp_path_factory.mktemp("watched")
    authority = Authority(folder)
    ends = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=9)
    certificate, private = authority.issue("engine", until=ends)
    prepare(home := folder / "home")
    with_from = key_edits.register(b"", key("two").public, ("SHELL",), "alice", {"from": "10.0.0.0/8"})[0]
    AuthorizedKeys(home / "authorized_keys").edit(lambda data: (data + with_from, None))
    engine = EngineProcess(home, HATCHWAY_TLS_CERT=str(certificate), HATCHWAY_TLS_KEY=str(private))
    try:
        port = int(engine.start().url.rpartition(":")[2])
        settings = configuration(port, authority.path, ROOT / "api/dashboards/alerts.yml")
        context = ssl.create_default_context(cafile=authority.path)
        with httpx.Client(base_url=engine.url, verify=context) as client:
            sign_in(client)
            with running_prometheus(folder / "prometheus", settings) as prometheus:
                until(lambda: len(prometheus.query("hatchway_ready == 1")) == 1, what="a scrape")
                yield Watched(engine, client, prometheus)
    finally:
        engine.close()


@pytest.mark.parametrize("text", queries())
def test_every_query_of_the_dashboard_evaluates(watched: Watched, text: str) -> None:
    """Each gives a series, but for that of starts, of which there was none while Prometheus looked."""
    inner = re.sub(r"label_values\((\w+), \w+\)", r"\1", text)
    asked = inner.replace("$instance", ".*").replace("$__rate_interval", "30s")
    assert "$" not in asked
    if text.startswith("changes("):
        assert watched.prometheus.query(asked) == []
    else:
        until(lambda: bool(watched.prometheus.query(asked)), what=asked)


def test_a_query_says_what_is_so(watched: Watched) -> None:
    """The panel of sessions, after one more sign-in."""
    [asked] = {text for text in queries() if text.startswith("sum(") and 'chart="session"' in text}
    asked = asked.replace("$instance", ".*")

    def sessions() -> int:
        return int(watched.prometheus.query(asked)[0]["value"][1])

    before = sessions()
    sign_in(watched.client)
    until(lambda: sessions() == before + 1, what="the session")


def test_every_rule_evaluates_and_calls_when_it_should(watched: Watched) -> None:
    """A certificate that ends soon calls at once, a key from elsewhere by its first use; nothing else does, until the
    engine is gone."""
    prometheus = watched.prometheus
    until(lambda: all(rule["health"] == "ok" for rule in prometheus.alerts().values()), what="the rules")
    assert len(prometheus.alerts()) == (ROOT / "api/dashboards/alerts.yml").read_text().count("alert:")

    def calling() -> dict[str, str]:
        return {name: rule["state"] for name, rule in prometheus.alerts().items() if rule["state"] != "inactive"}

    until(lambda: calling() == {"HatchwayCertificateEnds": "firing"}, what="the certificate's end")
    [alert] = prometheus.alerts()["HatchwayCertificateEnds"]["alerts"]
    assert re.search(r"ends in 8d 2\dh", alert["annotations"]["summary"])
    nonce = watched.client.get("/api/auth/challenge/").json()["nonce"]
    assert watched.client.post("/api/auth/verify/", json=signed(nonce, key("two"))).status_code == 401
    until(lambda: calling().get("HatchwayForeignAddress") == "firing", what="the stolen key")
    watched.engine.kill()
    until(lambda: calling().get("HatchwayDown") == "pending", what="the engine's end")
    assert calling() == {"HatchwayForeignAddress": "firing", "HatchwayDown": "pending"}

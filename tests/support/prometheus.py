"""A real Prometheus that listens on loopback, and what it answers."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from tests.support.nginx import listens
from tests.support.ports import free_port
from tests.support.waits import until

QUICK = "global: {scrape_interval: 200ms, evaluation_interval: 200ms}\n"
"""A test waits for a few scrapes."""


class Prometheus:
    """Asked over its HTTP API."""

    def __init__(self, client: httpx.Client) -> None:
        self._client = client

    def query(self, text: str) -> list[dict[str, Any]]:
        """The series that a query gives now; the test fails where it can't be evaluated."""
        answer = self._client.get("query", params={"query": text}).json()
        assert answer["status"] == "success", (text, answer)
        found: list[dict[str, Any]] = answer["data"]["result"]
        return found

    def alerts(self) -> dict[str, dict[str, Any]]:
        """Each rule by its name; `state` is `inactive`, `pending` or `firing`."""
        groups = self._client.get("rules").json()["data"]["groups"]
        return {rule["name"]: rule for group in groups for rule in group["rules"]}


def _is_ready(port: int) -> bool:
    """It listens, and answers 503, before it has read what it stored."""
    return listens(port) and httpx.get(f"http://127.0.0.1:{port}/-/ready").status_code == 200


@contextmanager
def running_prometheus(folder: Path, configuration: str) -> Iterator[Prometheus]:
    """One whose configuration Prometheus's own tool has found good; gone at the end."""
    folder.mkdir()
    path, port = folder / "prometheus.yml", free_port()
    path.write_text(QUICK + configuration)
    checked = subprocess.run(["promtool", "check", "config", path], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stderr
    arguments = [
        f"--config.file={path}",
        f"--storage.tsdb.path={folder}/data",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(["prometheus", *arguments], stdout=log, stderr=log)
    try:
        until(lambda: _is_ready(port), what="Prometheus")
        with httpx.Client(base_url=f"http://127.0.0.1:{port}/api/v1/", timeout=30) as client:
            yield Prometheus(client)
    finally:
        process.terminate()
        process.wait(20)

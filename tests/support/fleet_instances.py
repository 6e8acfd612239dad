"""The instance endpoints of one engine of a fleet, over HTTP."""

from __future__ import annotations

import socket
from typing import Any

import httpx

from tests.support.processes import EngineProcess
from tests.support.waits import until

PATH = "/api/platform/singularity/instance/"
HOST = socket.gethostname()


class InstancesClient:
    """One engine of the fleet, and a client that is signed in to all of them."""

    def __init__(self, engine: EngineProcess, http: httpx.Client, token: str) -> None:
        self.engine, self.http = engine, http
        self.headers = {"Authorization": f"Bearer {token}"}

    def ask(self, method: str, path: str = "", **more: Any) -> httpx.Response:
        url = f"{self.engine.url}{PATH}{path}"
        return self.http.request(method, url, headers=self.headers, timeout=60, **more)

    def start(self, name: str, *command: str, **more: Any) -> httpx.Response:
        return self.ask("POST", json={"image": "box.sif", "identity": name, "command": list(command)} | more)

    def show(self, name: str) -> dict[str, Any]:
        shown: dict[str, Any] = self.ask("GET", f"{name}/").json()
        return shown

    def names(self, *among: str) -> list[str]:
        """Those of them that are listed, in the list's order."""
        return [row["identity"] for row in self.ask("GET").json()["instances"] if row["identity"] in among]

    def live(self) -> list[str]:
        """Those of the whole fleet that have not ended, once the store is there to tell."""
        until(lambda: self.ask("GET").status_code == 200, what="the list")
        return [row["identity"] for row in self.ask("GET").json()["instances"] if row["ended_at"] is None]

    def stop(self, name: str) -> None:
        """Until it is stopped: store and engines may just be coming back."""
        until(lambda: self.ask("DELETE", f"{name}/").status_code in (200, 404), 60, what=f"the end of {name}")

    def follow(self, name: str, came: list[bytes]) -> None:
        """The pieces of a followed log, until it ends or breaks off."""
        url = f"{self.engine.url}{PATH}{name}/log/?follow=true"
        with self.http.stream("GET", url, headers=self.headers, timeout=60) as answer:
            assert answer.status_code == 200
            for piece in answer.iter_raw():
                came.append(piece)

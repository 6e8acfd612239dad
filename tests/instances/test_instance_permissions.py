"""Who may call the instance endpoints: permission and license come before the body is looked at, root before all."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from hatchway.api.http.app import make_app
from hatchway.engine.base import files
from hatchway.engine.base.errors import RuntimeUnavailable
from hatchway.engine.engine import Engine
from hatchway.engine.instances.apptainer.apptainer import Apptainer
from hatchway.engine.instances.request import Image, InstanceRequest
from tests.support.containers import Place, place
from tests.support.fakes import Browser, key, sign_in, virtual_engine
from tests.support.licenses import PEM, issued

__all__ = ["place"]

PATH = "/api/platform/singularity/instance/"
ENDPOINTS = [("POST", ""), ("GET", ""), ("GET", "one/"), ("DELETE", "one/"), ("GET", "one/log/")]


async def browser_of(engine: Engine, *permissions: str) -> tuple[Browser, str]:
    """A browser, and the token of a session with these permissions."""
    engine.keys.register(key("other").public, permissions)
    browser = Browser(make_app(engine))
    return browser, (await sign_in(browser, key("other")))["token"]


@pytest.mark.parametrize("body", [b"not json", b'{"image":"-x"}', b"[" * 10_000])
async def test_who_may_only_look(autojump_clock: Any, home: Path, body: bytes) -> None:
    """`RUNTIME:READ` lists and reads; a start and a stop are refused before the body is looked at."""
    async with virtual_engine(home) as engine:
        browser, token = await browser_of(engine, "RUNTIME:READ")
        assert (await browser.get(PATH, token=token)).json()["instances"] == []
        assert (await browser.get(f"{PATH}one/", token=token)).json()["code"] == "instance_not_found"
        for method, path in (("POST", ""), ("DELETE", "one/")):
            reply = await browser.ask(method, PATH + path, token=token, body=body)
            assert (reply.status, reply.json()["code"]) == (403, "permission_denied")
            assert 'error="insufficient_scope"' in reply.headers["www-authenticate"]


@pytest.mark.parametrize(("method", "path"), ENDPOINTS)
async def test_who_may_not_look(autojump_clock: Any, home: Path, method: str, path: str) -> None:
    """Without RUNTIME every endpoint refuses, whatever else is held; without a token too."""
    async with virtual_engine(home) as engine:
        browser, token = await browser_of(engine, "SHELL", "ARTIFACT", "WORKFLOW", "AGENT")
        reply = await browser.ask(method, PATH + path, token=token, body=b"not json" if method == "POST" else None)
        assert (reply.status, reply.json()["code"]) == (403, "permission_denied")
        assert (await browser.ask(method, PATH + path)).status == 401


@pytest.mark.parametrize(("method", "path"), ENDPOINTS)
async def test_a_license_without_the_module(autojump_clock: Any, home: Path, method: str, path: str) -> None:
    """Refused with its own code, before the body is looked at."""
    files.make_private_dir(home)
    files.write_private(home / "license.jwt", issued(modules=["shell"], exp=1_900_000_000).encode())
    async with virtual_engine(home, vendor_key=PEM) as engine:
        browser, token = await browser_of(engine, "RUNTIME")
        reply = await browser.ask(method, PATH + path, token=token, body=b"not json" if method == "POST" else None)
        assert (reply.status, reply.json()["code"]) == (403, "module_not_licensed")
        files.write_private(home / "license.jwt", issued(modules=["runtime"], exp=1_900_000_000).encode())
        engine.reload()
        assert (await browser.get(PATH, token=token)).status == 200


async def test_root_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine that runs as root starts nothing, and names the setting that would let it."""
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    with pytest.raises(RuntimeUnavailable, match="allow_root_instances"):
        Apptainer(tmp_path, lambda: False).admit(InstanceRequest("one", Image("/i.sif")))


@pytest.mark.apptainer
async def test_root_that_is_let(place: Place) -> None:
    """With the setting, whoever runs the engine starts instances; root does in a user namespace."""
    platform = Apptainer(place.home / "instances", lambda: True)
    request = place.request(command=["sh", "-c", "cat /proc/self/uid_map"])
    platform.admit(request)
    started = await platform.start(request)
    assert await platform.wait_ended(request, started) == 0
    assert place.output(started).split() == [str(os.geteuid()), str(os.geteuid()), "1"]

"""`hatchway open` at a terminal of its own, with a browser that claims the code as the console does."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import ssl
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import trio

from tests.support.ssh_server import command_lines, descendants
from tests.support.terminal import Screen, terminal

UNVERIFIED = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""For a certificate that an engine has made itself; and no other authorities are loaded for each client."""
UNVERIFIED.check_hostname = False
UNVERIFIED.verify_mode = ssl.CERT_NONE


class Opening:
    """One run of the command. `folder` is the laptop's: its browser writes the link there."""

    def __init__(self, screen: Screen, folder: Path, runtime: Path, nursery: trio.Nursery) -> None:
        self.screen, self.folder, self.runtime = screen, folder, runtime
        self._nursery, self._answered = nursery, trio.Event()
        self.session: dict[str, Any] = {}
        self.url = ""

    @property
    def pid(self) -> int:
        """The command's."""
        return self.screen.process.pid

    @property
    def address(self) -> str:
        """Of the tunnel's near end, once the browser was sent there."""
        return self.url.partition("://")[2]

    @property
    def private_folders(self) -> list[Path]:
        """What it has made for its sockets."""
        return list(self.runtime.iterdir())

    async def link(self) -> tuple[str, str]:
        """Where the browser was sent: the console's address, and the code."""
        await self.screen.wait_for("opened the console with code")
        with trio.fail_after(30):
            while not (self.folder / "link").exists():
                await trio.sleep(0.01)
        url, _, code = (self.folder / "link").read_text().strip().partition("/#pair=")
        return url, code

    async def claim(self) -> None:
        """The browser claims, and waits for an answer as long as the command runs: the question is asked."""
        self.url, code = await self.link()
        self._nursery.start_soon(self._claims, code)
        await self.screen.wait_for("Approve? [y/N] ")

    async def sign_in(self, answer: bytes = b"y\n") -> str:
        """The browser claims, the person answers: the console's address, once it is signed in."""
        await self.claim()
        self.screen.type(answer)
        await self.screen.wait_for("approved: the console is signed in" if answer == b"y\n" else "rejected")
        if answer == b"y\n":
            await self._answered.wait()
            await self.screen.wait_for("Ctrl-C closes it.")
        return self.url

    async def _claims(self, code: str) -> None:
        with suppress(httpx.TransportError):  # the tunnel was cut meanwhile
            async with httpx.AsyncClient(timeout=120, verify=UNVERIFIED) as client:
                told = await client.post(f"{self.url}/api/auth/pair/request/", json={"code": code})
                self.session = json.loads(told.text.strip().splitlines()[-1])
        self._answered.set()

    async def inspect(self, url: str) -> int:
        """The status that the console's session has at the address; 0 where nobody answers."""
        headers = {"Authorization": f"Bearer {self.session['token']}"}
        try:
            async with httpx.AsyncClient(timeout=70, verify=UNVERIFIED) as client:
                return (await client.get(f"{url}/api/auth/inspect/", headers=headers)).status_code
        except httpx.TransportError:
            return 0

    async def close(self) -> int:
        """Ctrl-C; the exit code."""
        self.screen.type(b"\x03")
        return await self.screen.wait_end()

    def below(self) -> list[int]:
        """Every process that it has begun and that runs, the guards among them, which are nobody's children."""
        named = command_lines(str(self.runtime))
        return sorted({*descendants(self.pid), *named} - {self.pid})

    def kill(self) -> None:
        """kill -9."""
        os.kill(self.pid, signal.SIGKILL)


@asynccontextmanager
async def opening(
    folder: Path, host: str, config: Path, *flags: str, options: Any = (), **environ: Any
) -> AsyncIterator[Opening]:
    """`hatchway open HOST` of a laptop whose folder this is, with these flags, and these options of ssh's."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "link").unlink(missing_ok=True)
    runtime = tempfile.mkdtemp(prefix="hatchway-run-")  # a short path, as a login's own is
    browser = folder / "browser"
    browser.write_text(f'#!/bin/sh\nprintf "%s" "$1" > {folder}/link.part && mv {folder}/link.part {folder}/link\n')
    browser.chmod(0o755)
    variables: dict[str, Any] = {"BROWSER": f"{browser} %s", "XDG_RUNTIME_DIR": runtime} | environ
    ssh = ("--", "-F", str(config), *options)
    command = terminal("open", host, *flags, *ssh, home=folder / "laptop", **variables)
    try:
        async with command as screen, trio.open_nursery() as nursery:
            yield Opening(screen, folder, Path(runtime), nursery)
            nursery.cancel_scope.cancel()
    finally:
        shutil.rmtree(runtime)


async def refused(folder: Path, host: str, config: Path, *flags: str, **environ: Any) -> str:
    """What is said where it ends with exit code 1; nothing of it is left here."""
    async with opening(folder, host, config, *flags, **environ) as one:
        assert await one.screen.wait_end() == 1, one.screen.text
        assert one.private_folders == []
        assert one.below() == []
        return re.sub(r"\x1b\[[0-9;]*m", "", one.screen.text)

"""`ssh://[USER@]HOST[:PORT]` wherever an address is taken: the command and the Python client, by key and by code."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import trio

from hatchway import AsyncClient, Client
from hatchway.api.client.ssh.faults import SshFault
from hatchway.engine.base.errors import SettingRefused
from hatchway.engine.settings import kinds
from hatchway.engine.settings.sources import read_value
from tests.support.command import run
from tests.support.fakes import key, key_file
from tests.support.ssh_server import SshHost, command_lines, ssh_hosts

pytestmark = [pytest.mark.process, pytest.mark.sshd, pytest.mark.usefixtures("command_folder")]


@pytest.fixture
def runtime(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where this user's sockets are, and whatever ssh was left in the background there is ended."""
    folder = tempfile.mkdtemp(prefix="hatchway-run-")
    monkeypatch.setenv("XDG_RUNTIME_DIR", folder)
    try:
        yield Path(folder)
    finally:
        for control in Path(folder).glob("*/*/control"):
            subprocess.run(["ssh", "-F", "none", "-S", control, "-O", "exit", "x"], capture_output=True, check=False)
        shutil.rmtree(folder)


@contextmanager
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, listen: str = "unix") -> Iterator[SshHost]:
    """A host with a running engine, which knows the test key `one`."""
    host = SshHost(tmp_path)
    host.install_command()
    with ssh_hosts(host) as config:
        monkeypatch.setenv("HATCHWAY_SSH", f"ssh -F {config}")
        public = tmp_path / "one.pub"
        public.write_text(key().public.openssh())
        host.engine("key", "register", str(public))
        host.engine("engine", "start", "--detach", "--listen", listen, "--port", "0")
        yield host


@pytest.mark.usefixtures("runtime")
@pytest.mark.parametrize("listen", ["unix", "tcp"])
def test_commands_share_a_connection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, listen: str) -> None:
    """Sign in by key once, go on by the stored token; one ssh holds the connection for all of them."""
    with lab(tmp_path, monkeypatch, listen) as host:
        one = str(key_file(tmp_path / "one.pem"))
        assert "ssh://lab" in run("login", "--url", "ssh://lab", "--key", one).stdout
        began = time.monotonic()
        assert json.loads(run("--url", "ssh://lab", "session", "list", "--json").stdout)
        assert json.loads(run("--url", "ssh://lab", "engine", "ping", "--json").stdout)["url"] == "ssh://lab"
        quick = time.monotonic() - began
        assert len(host.connections()) == 1
        assert quick < 20
        run("--url", "ssh://lab", "logout")
        run("config", "set", "url", "ssh://nobody@lab:1")
        assert "nothing answers SSH" in run("engine", "ping", code=1).stderr


def test_a_killed_connection_is_dialled_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, runtime: Path) -> None:
    """And one that leads to an engine that was stopped says what to do."""
    with lab(tmp_path, monkeypatch) as host:
        one = str(key_file(tmp_path / "one.pem"))
        run("login", "--url", "ssh://lab", "--key", one)
        for pid in command_lines(str(runtime)):
            os.kill(pid, 9)
        run("--url", "ssh://lab", "engine", "ping")
        host.engine("engine", "stop")
        assert "hatchway open lab" in run("--url", "ssh://lab", "engine", "ping", code=1).stderr
        host.engine("engine", "start", "--detach", "--listen", "unix")
        run("--url", "ssh://lab", "engine", "ping")


@pytest.mark.usefixtures("runtime")
def test_the_python_client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sync and async; a host that can't be reached is a fault of the client's."""
    with lab(tmp_path, monkeypatch):
        ssh = os.environ["HATCHWAY_SSH"]
        with Client("ssh://lab", key=key().pem(), ssh=ssh) as client:
            client.sign_in()
            assert client.inspect().method == "key"

        async def asked() -> str:
            async with AsyncClient("ssh://lab", key=key().pem(), ssh=ssh) as client:
                await client.sign_in()
                return (await client.inspect()).method

        assert trio.run(asked) == "key"
        with pytest.raises(SshFault, match="not known here"), Client("ssh://no-such-host.invalid", ssh=ssh):
            pass


@pytest.mark.usefixtures("runtime")
def test_by_a_pairing_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`hatchway pair --url ssh://lab`: the code is the host's, and its operator says yes there."""
    with lab(tmp_path, monkeypatch) as host:
        with host.operator() as peer, peer.makefile("rb") as lines:
            peer.sendall(b'{"op": "pair", "lifetime": 3600}\n')
            code = json.loads(lines.readline())["code"]
            pairing = subprocess.Popen(
                [*host.command, "pair", "--url", "ssh://lab"], stdin=subprocess.PIPE, cwd=host.root, env=os.environ
            )
            assert pairing.stdin is not None
            pairing.stdin.write(f"{code}\n".encode())
            pairing.stdin.close()
            claimed = json.loads(lines.readline())
            assert (claimed["event"], claimed["by_socket"]) == ("claimed", True)
            peer.sendall(b'{"answer": "y"}\n')
            assert pairing.wait(60) == 0
        assert json.loads(run("--url", "ssh://lab", "engine", "ping", "--json").stdout)["method"] == "pairing"


@pytest.mark.parametrize(
    "words", ["engine stop", "engine pair", "engine status", "key list", "license info", "open lab"]
)
def test_a_command_of_this_machine_takes_no_address(words: str) -> None:
    """`hatchway --url ssh://lab engine stop` must not stop the engine here."""
    assert "acts on this machine" in run("--url", "ssh://lab", *words.split(), code=2).stderr


@pytest.mark.parametrize(
    "url", ["ssh://lab", "ssh://me@lab", "ssh://me@10.0.0.7:2222", "ssh://[::1]:22", "ssh://a-b.c/"]
)
def test_addresses_that_are_taken(url: str) -> None:
    """A user and a port, where they are given; a slash at the end goes."""
    assert kinds.url().read(url) == url.rstrip("/")


@pytest.mark.parametrize(
    "url",
    [
        "ssh://",
        "ssh://-oProxyCommand=x",
        "ssh://-l@lab",
        "ssh://lab/path",
        "ssh://me:secret@lab",
        "ssh://lab:x",
        "ssh://a b",
    ],
)
def test_addresses_that_are_refused(url: str) -> None:
    """Nothing that ssh could take for an option, no path and no password."""
    with pytest.raises(SettingRefused, match="an address such as"):
        read_value("url", url, "flags")

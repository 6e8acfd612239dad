"""`hatchway open` on a host where the user's services linger: systemd minds the engine."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from pathlib import Path

import pytest
import trio

from tests.support.booted_host import BootedHost
from tests.support.opening import opening, refused
from tests.support.ssh_server import command_line, ssh_hosts

pytestmark = [pytest.mark.process, pytest.mark.sshd, pytest.mark.boot, pytest.mark.nspawn]


def engines(host: BootedHost) -> list[int]:
    """The engine's processes in the container."""
    return [pid for pid in host.children() if b"\0engine\0start\0" in command_line(pid)]


async def test_systemd_minds_the_engine(tmp_path: Path) -> None:
    """It is a service of the user's own, and outlives the last logout on a host that kills what users leave behind. One
    that does not start is told at once."""
    with tempfile.TemporaryDirectory(prefix="hatchway-open-", ignore_cleanup_errors=True) as folder:
        os.chmod(folder, 0o711)
        host = BootedHost(Path(folder))
        with ssh_hosts(host) as config:
            async with opening(tmp_path / "laptop", "lab", config) as one:
                assert await one.inspect(await one.sign_in()) == 200
                (engine,) = engines(host)
                group = Path(f"/proc/{engine}/cgroup").read_text()
                assert "/user@" in group
                assert "/hatchway-" in group
                assert await one.close() == 0
            with trio.fail_after(30):
                while any(f"sshd: {host.user}".encode() in command_line(pid) for pid in host.children()):
                    await trio.sleep(0.1)
            assert (host.home / ".hatchway/log/engine.log").stat().st_size > 0
            async with opening(tmp_path / "laptop", "lab", config) as one:
                await one.sign_in()
                assert "was started" not in one.screen.text
                assert engines(host) == [engine]
                assert await one.close() == 0
            os.kill(engine, signal.SIGTERM)
            with trio.fail_after(30):
                while engines(host):
                    await trio.sleep(0.1)
            (host.home / ".hatchway/config.toml").write_text("no_such_setting = 1\n")
            (host.home / ".hatchway/config.toml").chmod(0o600)
            shutil.chown(host.home / ".hatchway/config.toml", host.user)
            assert "unknown setting 'no_such_setting'" in await refused(tmp_path / "laptop", "lab", config)

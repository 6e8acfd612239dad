"""A service of the system as the handbook sets it up: in a container with a systemd of its own, by its very lines."""

from __future__ import annotations

import json
import os
import re
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.readme import CHAPTERS
from tests.support import ordinary_user
from tests.support.booted_host import BootedHost
from tests.support.ports import free_port
from tests.support.ssh_server import command_line, ssh_hosts
from tests.support.waits import until

pytestmark = [pytest.mark.process, pytest.mark.sshd, pytest.mark.boot, pytest.mark.nspawn]

(BLOCK,) = re.findall(r"^```console\n(# useradd .*?)^```$", CHAPTERS["service"].read_text(), re.DOTALL | re.MULTILINE)
LINES = [line.removeprefix("# ") for line in BLOCK.splitlines()]

HATCHWAY = "/opt/hatchway/bin/hatchway"

INSTALLED = """\
set -e
mkdir -p /opt/hatchway/bin /etc/systemd/system/hatchway.service.d
ln -sf {python} /opt/hatchway/bin/python3
cat > {hatchway} <<'PROGRAM'
#!/bin/sh
cd {root}
export PYTHONPATH={imports}
exec /opt/hatchway/bin/python3 -c 'from hatchway.api.cli import main; main()' "$@"
PROGRAM
chmod 755 {hatchway}
printf '[Service]\\nEnvironment=HATCHWAY_PORT={port}\\n' > /etc/systemd/system/hatchway.service.d/port.conf
"""


class Host(BootedHost):
    """Somebody is root in it."""

    def as_root(self, line: str, code: int = 0) -> str:
        """What a line of the shell prints, and says of errors."""
        (own,) = [pid for pid in self.children() if command_line(pid).startswith(b"/usr/lib/systemd/systemd\0")][:1]
        words = [
            "nsenter",
            "-t",
            str(own),
            "-a",
            "env",
            "-i",
            f"PATH={ordinary_user.PATH}",
            "HOME=/root",
            "sh",
            "-c",
            line,
        ]
        done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == code, (line, done.stdout, done.stderr, self.wrote())
        return done.stdout + done.stderr


@contextmanager
def booted() -> Iterator[Host]:
    """With our program in /opt/hatchway."""
    with tempfile.TemporaryDirectory(prefix="hatchway-service-", ignore_cleanup_errors=True) as folder:
        os.chmod(folder, 0o711)
        host = Host(Path(folder))
        with ssh_hosts(host):
            root, imports = ordinary_user.readable()
            values = {"python": ordinary_user.python(), "root": root, "imports": imports, "port": free_port()}
            host.as_root(INSTALLED.format(hatchway=HATCHWAY, **values))
            yield host


def test_the_handbooks_lines() -> None:
    """The service runs, under a user who owns nothing else, and tells its life to systemd; what root asks without
    `runuser` is no engine's."""
    with booted() as host:
        *lines, status, journal = LINES
        for line in lines:
            host.as_root(line)
        assert "https" not in (told := host.as_root(status))
        assert "sessions     0" in told
        until(lambda: "engine.start" in host.as_root(f"{journal} --no-pager"), what="the journal")
        assert "no engine runs on /root/.hatchway" in host.as_root(f"{HATCHWAY} engine status", code=1)
        hatchway = f"runuser -u hatchway -- {HATCHWAY}"
        host.as_root(f"{hatchway} engine ping")
        host.as_root("systemctl reload hatchway")
        host.as_root("systemctl restart hatchway")
        records = [json.loads(line) for line in host.as_root(f"{hatchway} events --json --chart engine").splitlines()]
        assert [one["event"] for one in records] == ["start", "reload", "stop", "start"]
        shown = host.as_root("systemctl show hatchway -p User -p NRestarts -p Type -p ActiveState").split()
        assert set(shown) == {"User=hatchway", "NRestarts=0", "Type=notify", "ActiveState=active"}

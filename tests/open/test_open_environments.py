"""`hatchway open` by a password, and on a host whose engine's folder is on a file system without Unix sockets."""

from __future__ import annotations

import os
import shlex
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support import ordinary_user
from tests.support.opening import opening, refused
from tests.support.ssh_server import SshHost, ssh_hosts

pytestmark = [pytest.mark.process, pytest.mark.sshd, pytest.mark.mount]

PASSWORD = "correct horse"


@contextmanager
def public_folder() -> Iterator[Path]:
    """A folder that every user may pass."""
    with tempfile.TemporaryDirectory(prefix="hatchway-open-", ignore_cleanup_errors=True) as folder:
        os.chmod(folder, 0o711)
        yield Path(folder)


def with_a_password(folder: Path) -> SshHost:
    """A host of an ordinary user's, who has a password: its sshd sees an /etc/shadow of its own."""
    somebody = ordinary_user.user()
    host = SshHost(folder)
    _, imports = ordinary_user.readable()
    program = [
        "env",
        f"PYTHONPATH={imports}",
        ordinary_user.python(),
        "-c",
        "from hatchway.api.cli import main; main()",
    ]
    host.install_command(program=program)
    host.folder.chmod(0o711)
    subprocess.run(["chown", "-R", somebody.pw_name, host.home], check=True)
    asked = ["openssl", "passwd", "-6", "-stdin"]
    hashed = subprocess.run(asked, input=PASSWORD, capture_output=True, text=True, check=True).stdout.strip()
    lines = Path("/etc/shadow").read_text().splitlines()
    shadow = host.folder / "shadow"
    shadow.touch(mode=0o600)
    kept = [line for line in lines if not line.startswith(f"{somebody.pw_name}:")]
    shadow.write_text("\n".join([*kept, f"{somebody.pw_name}:{hashed}:20000:0:99999:7:::"]) + "\n")
    host.sees(f"mount --bind {shlex.quote(str(shadow))} /etc/shadow")
    host.user = somebody.pw_name
    (host.folder / "known_hosts").touch()
    host.client_settings.append("StrictHostKeyChecking ask")
    host.settings += ["PasswordAuthentication yes", "PubkeyAuthentication no"]
    host.client_settings.append("PreferredAuthentications password")
    return host


async def test_by_a_password(tmp_path: Path) -> None:
    """Which is typed at the terminal, as is the yes to a new host key, or comes from an askpass; once, since
    there is one connection."""
    with public_folder() as folder:
        host = with_a_password(folder)
        with ssh_hosts(host) as config:
            async with opening(tmp_path / "laptop", "lab", config) as one:
                await one.screen.wait_for("continue connecting (yes/no/[fingerprint])? ")
                one.screen.type(b"yes\n")
                await one.screen.wait_for("password: ")
                one.screen.type(PASSWORD.encode() + b"\n")
                assert await one.inspect(await one.sign_in()) == 200
                assert one.screen.text.count("password: ") == 1
                assert PASSWORD not in one.screen.text
                assert await one.close() == 0
            askpass = tmp_path / "askpass"
            askpass.write_text(f"#!/bin/sh\necho {PASSWORD}\n")
            askpass.chmod(0o755)
            environ = {"SSH_ASKPASS": str(askpass), "SSH_ASKPASS_REQUIRE": "force", "DISPLAY": ":0"}
            async with opening(tmp_path / "laptop", "lab", config, **environ) as one:
                assert await one.inspect(await one.sign_in()) == 200
                assert await one.close() == 0
            askpass.write_text("#!/bin/sh\necho something else\n")
            said = await refused(tmp_path / "laptop", "lab", config, **environ)
            assert "refused the sign-in by SSH" in said
            assert host.children() == []


@pytest.mark.fuse
@pytest.mark.sshfs
async def test_a_file_system_without_sockets(tmp_path: Path) -> None:
    """One sentence that names the way out, and nothing is left of the folder that was begun."""
    host = SshHost(tmp_path)
    host.install_command()
    host.settings.append("Subsystem sftp internal-sftp")
    far, place = host.folder / "far", host.home / "place"
    far.mkdir()
    place.mkdir()
    with (host.home / ".profile").open("a") as profile:
        profile.write(f'export HATCHWAY_HOME="{place}/engine"\n')
    with ssh_hosts(host) as config:
        subprocess.run(["sshfs", "-F", config, f"lab:{far}", place], check=True)
        try:
            children = host.children()
            said = await refused(tmp_path / "laptop", "lab", config)
            assert "http.sock can't be made: Operation not permitted; where its file system has no sockets" in said
            assert "HATCHWAY_HOME" in said
            assert '"event"' not in said
            assert list(place.iterdir()) == []
            assert host.children() == children
        finally:
            subprocess.run(["umount", place], check=True)

"""A host with a systemd of its own: a container (systemd-nspawn) with this machine's files, where an ordinary user
signs in by SSH."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from tests.support import ordinary_user
from tests.support.ssh_server import SSHD, SshHost, command_line

TARGET = """
[Unit]
Requires=basic.target
After=basic.target
Wants=dbus.service systemd-logind.service systemd-user-sessions.service lab-sshd.service
AllowIsolate=yes
"""

SERVICE = """
[Unit]
After=systemd-logind.service systemd-user-sessions.service
[Service]
RuntimeDirectory=sshd
ExecStart={sshd} -D -e -f {config}
"""

LOGIND = """
[Login]
KillUserProcesses=yes
"""


class BootedHost(SshHost):
    """Its user's services linger (loginctl(1)), and whatever else the user runs is killed at the last logout."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        somebody = ordinary_user.user()
        self.user = somebody.pw_name
        self._root, imports = ordinary_user.readable()
        self._bound = {self.folder.parent, self._root, *map(Path, imports.split(":"))}
        python = Path(ordinary_user.python())
        if not python.is_relative_to("/usr"):
            self._bound.add(Path(sys.base_prefix))
        program = ["env", f"PYTHONPATH={imports}", str(python), "-c", "from hatchway.api.cli import main; main()"]
        self.install_command(program=program)
        self.folder.chmod(0o755)
        subprocess.run(["chown", "-R", self.user, self.home], check=True)
        shutil.copy(f"{self.user_key}.pub", self.folder / "authorized")
        self.settings += ["UsePAM yes", f"AuthorizedKeysFile {self.folder}/authorized"]
        tree, below = self.folder / "tree", self.folder / "below"
        below.mkdir()
        for name, text in (
            ("etc/systemd/system/lab.target", TARGET),
            ("etc/systemd/system/lab-sshd.service", SERVICE.format(sshd=SSHD, config=self.folder / "sshd_config")),
            ("etc/systemd/logind.conf.d/lab.conf", LOGIND),
            (f"var/lib/systemd/linger/{self.user}", ""),
        ):
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            (tree / name).write_text(text)
        self.sees(
            "mount -t tmpfs tmpfs /run",
            f"mount -t tmpfs tmpfs {below}",
            f"mkdir {below}/upper {below}/work {below}/root",
            f"cp -r {tree}/. {below}/upper",
            f"mount -t overlay -o lowerdir=/,upperdir={below}/upper,workdir={below}/work overlay {below}/root",
        )

    def program(self, config: Path) -> list[str]:
        bound = [f"--bind={path}" for path in sorted(self._bound)]
        own = ["--register=no", "--keep-unit", "--machine=lab", "--quiet", f"--directory={self.folder}/below/root"]
        return ["systemd-nspawn", *own, *bound, "--boot", "systemd.unit=lab.target", "systemd.show_status=no"]

    def wrote(self) -> str:
        """What its systemd still waits for, its processes, and its journal."""
        own = [pid for pid in self.children() if command_line(pid).startswith(b"/usr/lib/systemd/systemd\0")]
        if not own:
            return super().wrote()
        inside = ["nsenter", "-t", str(own[0]), "-a"]
        asked = (
            ["systemctl", "list-jobs", "--no-pager"],
            ["ps", "-e", "--forest", "-o", "pid,stat,wchan:20,etime,time,args"],
            ["journalctl", "--no-pager", "--lines=60"],
        )
        return "\n".join(
            subprocess.run([*inside, *words], capture_output=True, text=True, timeout=60, check=False).stdout
            for words in asked
        )

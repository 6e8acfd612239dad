"""`hatchway engine pair` on a terminal that is another user's by name, or has no name here: what is open is used."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.command import HATCHWAY
from tests.support.ordinary_user import PATH, as_user, python, readable, user
from tests.support.processes import running_engine
from tests.support.terminal import terminal

pytestmark = [pytest.mark.mount, pytest.mark.process]


class Service:
    """An engine that a service account runs, and how that account is called."""

    def __init__(self, home: Path) -> None:
        root, imports = readable()
        self.home, self.root = home, root
        self.environment = {"HOME": user().pw_dir, "PATH": PATH, "PYTHONPATH": imports}
        self.program = [python(), "-c", "from hatchway.api.cli import main; main()"]

    def call(self, *arguments: str) -> str:
        done = subprocess.run(
            as_user([*self.program, *arguments]),
            env=self.environment | {"HATCHWAY_HOME": str(self.home)},
            cwd=self.root,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        return done.stdout + done.stderr


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    with tempfile.TemporaryDirectory(prefix="hatchway-service-") as folder:
        Path(folder).chmod(0o755)
        home = Path(folder) / "home"
        home.mkdir(0o700)
        shutil.chown(home, user().pw_name, user().pw_gid)
        service = Service(home)
        engine = subprocess.Popen(
            as_user([*service.program, "engine", "start", "--port", "0"]),
            env=service.environment | {"HATCHWAY_HOME": str(home)},
            cwd=service.root,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        assert engine.stderr is not None
        engine.stderr.readline()  # its first record: it runs
        try:
            yield service
        finally:
            service.call("engine", "stop")
            engine.kill()
            engine.wait()
            engine.stderr.close()


@pytest.mark.parametrize("before", [[], ["setsid", "--wait"]], ids=["runuser", "su -c"])
async def test_another_users_terminal(service: Service, before: list[str]) -> None:
    """After runuser and su the terminal's name is the first user's; the account pairs at it all the same. Without a
    controlling terminal too, as `su -c` has it."""
    program = [*before, *as_user(service.program)]
    async with terminal(
        "engine", "pair", home=service.home, folder=service.root, program=program, **service.environment
    ) as screen:
        await screen.wait_for("Pairing code  ")
        await screen.wait_for("Waiting for a console")


async def test_a_terminal_of_another_container(home: Path) -> None:
    """In a mount namespace with terminals of its own the name leads nowhere, or to somebody else's."""
    space = ["unshare", "--mount", "--propagation", "private", "sh", "-c"]
    own = 'mount -t devpts -o newinstance,ptmxmode=0666 devpts /dev/pts && exec "$@"'
    program = [*space, own, "sh", *HATCHWAY]
    with running_engine(home):
        async with terminal("engine", "pair", home=home, program=program) as screen:
            await screen.wait_for("Pairing code  ")
            await screen.wait_for("Waiting for a console")

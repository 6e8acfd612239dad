"""`hatchway open` on a host that has no Hatchway, and no package index to get it from; versions, and ways out."""

from __future__ import annotations

import os
import platform
import shlex
import shutil
import signal
import sys
from pathlib import Path

import pytest
import trio
from playwright.sync_api import Browser, expect

from hatchway.api.open.install import RemotePython, fetch_wheels
from hatchway.engine.base.version import installed_version
from tests.support.opened_page import opened, sign_in
from tests.support.opening import Opening, opening, refused
from tests.support.processes import HATCHWAY
from tests.support.ssh_server import SshHost, ssh_hosts

pytestmark = [pytest.mark.process, pytest.mark.sshd]

PYTHON = os.path.realpath(sys.executable)

NEWER = ("3.11", "3.12", "3.13", "3.14")

PROGRAMS = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
"""Where this machine's uv is."""


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What this machine fetches for a host with this very Python, once for all tests."""
    folder = tmp_path_factory.mktemp("wheels")
    libc = platform.libc_ver()
    fetch_wheels(folder, RemotePython(PYTHON, sys.version_info[1], sys.platform, platform.machine(), libc))
    return folder


def laptop(wheels: Path) -> dict[str, str]:
    """A laptop whose pip gets its wheels from that folder alone."""
    return {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(wheels)}


def bare(tmp_path: Path) -> SshHost:
    """A host without Hatchway, that reaches no package index."""
    host = SshHost(tmp_path)
    host.environ |= {"PIP_INDEX_URL": "http://127.0.0.1:1/", "PIP_RETRIES": "0"}
    return host


def runtime(host: SshHost) -> list[str]:
    """What is in the host's `~/.hatchway/runtime`."""
    folder = host.home / ".hatchway/runtime"
    return sorted(os.listdir(folder)) if folder.exists() else []


@pytest.mark.browser
def test_a_cold_host(tmp_path: Path, wheels: Path, chromium: Browser) -> None:
    """The command, and `y` twice: installed, started, signed in in Chromium. The next time nothing is installed."""
    host = bare(tmp_path)
    with (host.home / ".profile").open("a") as profile:
        profile.write(f'export PATH="{Path(PYTHON).parent}:$PATH"\n')
    with ssh_hosts(host) as config:
        with opened(tmp_path / "laptop", "lab", config, **laptop(wheels)) as (terminal, link):
            terminal.wait_for("Install", 60)
            terminal.type("y\n")
            terminal.wait_for("wheels for", 60)
            terminal.wait_for("installed", 60)
            page = sign_in(chromium, terminal, link)
            expect(page.locator("#view-home")).to_be_visible()
            page.context.close()
        assert runtime(host) == [installed_version()]
        with opened(tmp_path / "laptop", "lab", config) as (terminal, link):
            sign_in(chromium, terminal, link).context.close()
            assert "Install" not in terminal.shown


async def test_an_engine_of_an_environment_in_no_path(tmp_path: Path) -> None:
    """As the README starts one: its own command is found by its lock, and nothing is to be installed."""
    host = bare(tmp_path)
    with ssh_hosts(host) as config:
        host.engine("engine", "start", "--detach", "--port", "0")
        async with opening(tmp_path / "laptop", "lab", config) as one:
            assert await one.inspect(await one.sign_in()) == 200
            assert "Install" not in one.screen.text
            assert await one.close() == 0
        assert runtime(host) == []


async def test_a_no_leaves_nothing(tmp_path: Path) -> None:
    """Neither a wheel nor a folder; and it is said that nothing was done."""
    host = bare(tmp_path)
    with ssh_hosts(host) as config:
        async with opening(tmp_path / "laptop", "lab", config, "--python", PYTHON) as one:
            await one.screen.wait_for("Install")
            one.screen.type(b"n\n")
            assert await one.screen.wait_end() == 1
            assert "lab: nothing was installed; a hatchway elsewhere is named by" in one.screen.text
        assert not (host.home / ".hatchway").exists()


def _old(host: SshHost) -> str:
    old = host.home / "python3.9"
    old.write_text("#!/bin/sh\nexit 1\n")
    old.chmod(0o755)
    return str(old)


async def test_a_host_without_a_python_that_will_do(tmp_path: Path) -> None:
    """Too old, or none: the ways out, and nothing left."""
    host = bare(tmp_path)
    with ssh_hosts(host) as config:
        for named in (_old(host), "/nowhere/python3"):
            said = await refused(tmp_path / "laptop", "lab", config, "--install", "yes", "--python", named)
            assert "no Python 3.11 to 3.13" in said
            assert "uv python install" in said
        assert not (host.home / ".hatchway").exists()


def with_an_old_python(folder: Path) -> SshHost:
    """A host whose programs are this machine's, but for Python, which is 3.9."""
    host = bare(folder)
    old = host.folder / "python3.9"
    old.write_text('#!/bin/sh\n[ "$1" = -V ] && echo "Python 3.9.2" && exit\nexit 1\n')
    old.chmod(0o755)
    names = [f"{place}/python{version}" for place in ("/usr/local/bin", "/usr/bin") for version in ("", "3", *NEWER)]
    found = {os.path.realpath(name) for name in names if os.path.exists(name)}
    host.sees(*(f"mount --bind {shlex.quote(str(old))} {shlex.quote(one)}" for one in sorted(found)))
    return host


def copied_python(folder: Path) -> Path:
    """This very Python under another path, which is in no PATH."""
    folder.mkdir(parents=True)
    return Path(shutil.copy(os.path.realpath(sys.executable), folder / f"python3.{sys.version_info[1]}"))


@pytest.mark.modules
@pytest.mark.mount
async def test_a_python_by_environment_modules(tmp_path: Path) -> None:
    """Nothing in PATH will do before `module load python/3.N`, which is found by itself."""
    host = with_an_old_python(tmp_path)
    found = copied_python(host.folder / "software/bin")
    module = host.home / f"modules/python/3.{sys.version_info[1]}"
    module.parent.mkdir(parents=True)
    module.write_text(f"#%Module1.0\nprepend-path PATH {found.parent}\n")
    with (host.home / ".profile").open("a") as profile:
        profile.write('module use "$HOME/modules"\n')
    with ssh_hosts(host) as config:
        async with opening(tmp_path / "laptop", "lab", config) as one:
            await one.screen.wait_for(f"there, with {found}? [y/N] ")
            one.screen.type(b"\n")
            assert await one.screen.wait_end() == 1
        assert not (host.home / ".hatchway").exists()


@pytest.mark.mount
@pytest.mark.uv
async def test_a_python_of_uv(tmp_path: Path) -> None:
    """uv is asked where it keeps its own; it is not made to fetch one: where it has none, the person is told how."""
    host = with_an_old_python(tmp_path)
    (host.home / "bin").mkdir()
    (host.home / "bin/uv").symlink_to(str(shutil.which("uv", path=PROGRAMS)))
    kept = host.folder / "pythons"
    with (host.home / ".profile").open("a") as profile:
        profile.write(f'export PATH="$HOME/bin:$PATH" UV_PYTHON_INSTALL_DIR="{kept}"\n')
    host.environ |= {"UV_PYTHON_INSTALL_DIR": str(kept)}
    with ssh_hosts(host) as config:
        said = await refused(tmp_path / "laptop", "lab", config)
        assert "no Python 3.11 to 3.13 to install it with: there is none (Python 3.9.2)" in said
        assert "uv python install 3.12" in said
        assert not (host.home / ".hatchway").exists()
        assert not kept.exists()
        found = copied_python(kept / f"cpython-{platform.python_version()}-linux-x86_64-gnu/bin")
        async with opening(tmp_path / "laptop", "lab", config) as one:
            await one.screen.wait_for(f"there, with {found}? [y/N] ")
            one.screen.type(b"\n")
            assert await one.screen.wait_end() == 1
        assert not (host.home / ".hatchway").exists()


async def test_an_installation_that_fails(tmp_path: Path, wheels: Path) -> None:
    """Where the folder can't be made, or neither side has the wheels: one sentence, and nothing left."""
    host = bare(tmp_path)
    flags = ("--install", "yes", "--python", PYTHON)
    with ssh_hosts(host) as config:
        nothing = tmp_path / "nothing"
        nothing.mkdir()
        said = await refused(tmp_path / "laptop", "lab", config, *flags, **laptop(nothing))
        assert "could not fetch the wheels" in said
        assert "nothing of it is left there" in said
        assert runtime(host) == []
        shutil.rmtree(host.home / ".hatchway")
        (host.home / ".hatchway").write_text("")
        said = await refused(tmp_path / "laptop", "lab", config, *flags, **laptop(wheels))
        assert "the installation on lab failed" in said
        assert "mkdir" in said


def _the_command(host: SshHost, one: Opening) -> list[int]:
    return [one.pid]


def _sshds(host: SshHost, one: Opening) -> list[int]:
    return host.connections()


@pytest.mark.parametrize("killed", [_the_command, _sshds], ids=["the command", "sshd's child"])
async def test_killed_while_it_installs(tmp_path: Path, wheels: Path, killed: object) -> None:
    """Nothing half-installed stays: what was not said to be kept is removed."""
    host = bare(tmp_path)
    flags = ("--install", "yes", "--python", PYTHON)
    with ssh_hosts(host) as config:
        async with opening(tmp_path / "laptop", "lab", config, *flags, **laptop(wheels)) as one:
            await one.screen.wait_for("wheels for")
            with trio.fail_after(60):
                while not runtime(host):
                    await trio.sleep(0.05)
            for pid in killed(host, one):  # type: ignore[operator]
                os.kill(pid, signal.SIGKILL)
            with trio.fail_after(30):
                while runtime(host) or host.children() or one.private_folders:
                    await trio.sleep(0.2)


async def test_upgrade_replaces_and_removes_the_old(tmp_path: Path, wheels: Path) -> None:
    """This machine's version is installed, and no other is left."""
    host = bare(tmp_path)
    host.install_command(host.home / ".hatchway/runtime/0.0.1/bin")
    (host.home / ".hatchway").chmod(0o700)
    flags = ("--upgrade", "--install", "yes", "--python", PYTHON)
    with ssh_hosts(host) as config:
        async with opening(tmp_path / "laptop", "lab", config, *flags, **laptop(wheels)) as one:
            assert await one.inspect(await one.sign_in()) == 200
            assert await one.close() == 0
        assert runtime(host) == [installed_version()]


async def test_another_version_there(tmp_path: Path) -> None:
    """Said, and gone on with, where the two understand each other; where they don't, what to do."""
    host = SshHost(tmp_path)
    words = " ".join(f"'{word}'" for word in HATCHWAY)
    newer = f'{words} "$@" | sed -u \'s/"version": "{installed_version()}"/"version": "9.9.9"/\''
    command = host.install_command()
    command.write_text(command.read_text().rpartition("exec ")[0] + newer + "\n")
    with ssh_hosts(host) as config:
        async with opening(tmp_path / "laptop", "lab", config) as one:
            assert await one.inspect(await one.sign_in()) == 200
            assert f"lab has version 9.9.9, this machine {installed_version()}" in one.screen.text
            assert await one.close() == 0
        command.write_text("#!/bin/sh\necho 'Error: No such command' >&2; exit 2\n")
        assert "hatchway open --upgrade lab" in await refused(tmp_path / "laptop", "lab", config)
        command.write_text('#!/bin/sh\necho \'{"event": "attached", "protocol": 99, "version": "99"}\'\n')
        assert "is version 99" in await refused(tmp_path / "laptop", "lab", config)

"""What is published: the sdist makes the wheel, the wheel runs by itself on every Python that is here."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx
import pytest

from tests.support.fakes import ROOT
from tests.support.ports import free_port
from tests.support.processes import wait_answering
from tests.support.project_files import copy_project, project_files
from tests.support.waits import PATIENCE

pytestmark = [pytest.mark.process, pytest.mark.tools]

VERSIONS = ("3.11", "3.12", "3.13")
HERE = f"{sys.version_info[0]}.{sys.version_info[1]}"
CONSOLE = sorted(path.name for path in (ROOT / "api/console").iterdir() if path.is_file())
CHAPTERS = sorted(path.stem for path in (ROOT / "api/handbook").glob("*.md"))


def is_python(program: str, version: str) -> bool:
    """Whether it runs and is that version: a name on PATH may be a shim of something that isn't installed."""
    ask = [program, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]
    with suppress(OSError):
        return subprocess.run(ask, capture_output=True, text=True, check=False).stdout.strip() == version
    return False


def pythons() -> dict[str, str]:
    """Version and interpreter: the one that runs the tests, those on PATH, those of pyenv."""
    found = {HERE: sys.executable}
    for version in VERSIONS:
        kept = Path("~/.pyenv/versions").expanduser().glob(f"{version}.*/bin/python")
        for program in (shutil.which(f"python{version}"), *map(str, kept)):
            if version not in found and program is not None and is_python(program, version):
                found[version] = program
    return found


PYTHONS = pythons()


def environment() -> dict[str, str]:
    """Nothing of the checkout or of this run, and every warning is an error."""
    kept = {name: text for name, text in os.environ.items() if not name.startswith(("HATCHWAY_", "PYTHON"))}
    return kept | {"PYTHONWARNINGS": "error"}


def run(*command: str | Path, cwd: Path) -> str:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Made of a copy of the project's files, as a tag of them would be."""
    folder = tmp_path_factory.mktemp("sdist")
    copy_project(folder / "copy")
    run(sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", folder, cwd=folder / "copy")
    (made,) = folder.glob("*.tar.gz")
    return made


@pytest.fixture(scope="module")
def wheel(sdist: Path) -> Path:
    """Made of the sdist, by pip, in an environment of its own."""
    run(sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", sdist.parent, sdist, cwd=sdist.parent)
    (made,) = sdist.parent.glob("*.whl")
    return made


@pytest.fixture(scope="module")
def installed(wheel: Path) -> Iterator[dict[str, Future[Path]]]:
    """A fresh environment for each Python with the wheel and what it asks for, all made side by side."""

    def install(version: str) -> Path:
        place = wheel.parent / version
        run(PYTHONS[version], "-m", "venv", "--without-pip", place, cwd=wheel.parent)
        # One pip for all, and nothing compiled that is never imported: two thirds of the work of an environment.
        pip = (sys.executable, "-m", "pip", "--python", place / "bin/python", "--disable-pip-version-check")
        run(*pip, "install", "-q", "--no-compile", wheel, cwd=wheel.parent)
        return place / "bin"

    with ThreadPoolExecutor(len(PYTHONS)) as pool:
        yield {version: pool.submit(install, version) for version in PYTHONS}


def test_the_sdist_is_whole(sdist: Path) -> None:
    """Program, tests and the gate: whoever has the sdist can run them."""
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    wanted = {
        name
        for name in project_files()
        if name.startswith((".packages/", "statecharts/", "engine/", "api/", "tests/", ".ci/"))
    }
    assert wanted <= names
    assert {"README.md", "CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "pyproject.toml"} <= names


def test_what_the_wheel_holds(wheel: Path) -> None:
    """One package, typed, with the console, the handbook and the dashboard; no tests, nothing beside it."""
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {name.partition("/")[0] for name in names if ".dist-info" not in name} == {"hatchway"}
    files = {name for name in project_files() if name.startswith(("statecharts/", "engine/", "api/"))}
    assert {name.removeprefix("hatchway/") for name in names if ".dist-info" not in name} == {
        "__init__.py",
        "charts.py",
        "py.typed",
        *files,
    }


@pytest.mark.parametrize("version", PYTHONS)
def test_it_runs(version: str, installed: dict[str, Future[Path]], tmp_path: Path) -> None:
    """Outside the checkout: help, the handbook, an engine, all files of its console, a sign-in, an end; no warning."""
    bin_folder, port = installed[version].result(), free_port()
    env = environment() | {"HATCHWAY_HOME": str(tmp_path / "home"), "HATCHWAY_PORT": str(port)}

    def hatchway(*arguments: str) -> str:
        done = subprocess.run(
            [bin_folder / "hatchway", *arguments], env=env, cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
        return done.stdout

    assert "hatchway engine pair" in hatchway("--help")
    assert [line.split()[0] for line in hatchway("help").splitlines()] == CHAPTERS
    assert hatchway("help", CHAPTERS[0]).startswith("# ")
    with running_engine(bin_folder, port, env, tmp_path):
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=PATIENCE) as client:
            check_console(client)
        assert str(port) in hatchway("engine", "ping")
        assert hatchway("engine", "stop") == "stopped\n"


@contextmanager
def running_engine(bin_folder: Path, port: int, env: dict[str, str], cwd: Path) -> Iterator[None]:
    """An engine from start to end, which it comes to by itself, having warned of nothing."""
    log = cwd / "engine.log"
    with log.open("wb") as file:
        engine = subprocess.Popen(
            [bin_folder / "hatchway", "engine", "start"], env=env, cwd=cwd, stdout=file, stderr=file
        )
    try:
        wait_answering(engine, f"http://127.0.0.1:{port}", log)
        yield
        assert engine.wait(20) == 0
    finally:
        engine.kill()
        engine.wait()
    assert "Warning" not in log.read_text()


def check_console(client: httpx.Client) -> None:
    """Page and files as they are in the checkout."""
    assert "Hatchway" in client.get("/").text
    for name in CONSOLE:
        if name != "index.html":
            assert client.get(f"/console/{name}").content == (ROOT / "api/console" / name).read_bytes()


OWN = ("api.py", "engine/__init__.py", "statecharts.py", "client.py", "server.py", "tests/__init__.py")
"""Modules of a user's own, named as folders of ours are. None may be imported by what isn't the user's."""

PROGRAM = """
import sys
import api, client, engine, server, statecharts, tests
import trio
from hatchway import AsyncClient, Client

url, key = sys.argv[1:]
with Client(url, key=key) as found:
    assert found.sign_in().permissions
    assert found.inspect().valid

async def inspect():
    async with AsyncClient(url, key=key) as found:
        await found.sign_in()
        return (await found.inspect()).valid

assert trio.run(inspect)
assert {one.WHOSE for one in (api, client, engine, server, statecharts, tests)} == {"mine"}
print("both worked")
"""


def test_it_runs_beside_modules_of_the_users_own(installed: dict[str, Future[Path]], tmp_path: Path) -> None:
    """Where an `api.py` and an `engine/` of his stand on the path: client, command, console, engine and workers work,
    and import none of his."""
    bin_folder, port, own = installed[HERE].result(), free_port(), tmp_path / "own"
    for name in OWN:
        (own / name).parent.mkdir(parents=True, exist_ok=True)
        (own / name).write_text('import os\nassert "MINE" in os.environ, "this is not yours"\nWHOSE = "mine"\n')
    (own / "program.py").write_text(PROGRAM)
    home = tmp_path / "home"
    settings = {"HATCHWAY_HOME": str(home), "HATCHWAY_PORT": str(port), "HATCHWAY_WORKERS": "2"}
    env, url = environment() | settings | {"PYTHONPATH": str(own)}, f"http://127.0.0.1:{port}"

    def done(*command: str | Path, **more: str) -> str:
        ended = subprocess.run(
            command, env=env | more, cwd=own, capture_output=True, text=True, timeout=60, check=False
        )
        assert ended.returncode == 0, ended.stdout + ended.stderr
        return ended.stdout

    hatchway = bin_folder / "hatchway"
    with running_engine(bin_folder, port, env, own):
        with httpx.Client(base_url=url, timeout=PATIENCE) as client:
            check_console(client)
        done(hatchway, "login", "--url", url)
        assert "this one" in done(hatchway, "session", "list")
        program = (bin_folder / "python", own / "program.py", url, home / "private-key.pem")
        assert done(*program, MINE="1") == "both worked\n"
        assert done(hatchway, "engine", "stop") == "stopped\n"

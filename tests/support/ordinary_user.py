"""Runs the tests of a module as an ordinary user when the run itself is root's: containers are no root's business.

A module asks for it by `AS_ORDINARY_USER = True` and `pytest_plugins = ["tests.support.ordinary_user"]`.
"""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import xml.etree.ElementTree as ET
from functools import cache
from pathlib import Path

import pytest

from hatchway.engine.base.file_locks import locked
from tests.support.fakes import ROOT
from tests.support.spread import group

USER = "hatchway-test"
PATH = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """As root, a test of such a module passes or fails as it did for the ordinary user."""
    if os.geteuid() != 0 or not getattr(pyfuncitem.module, "AS_ORDINARY_USER", False):
        return None
    told = outcomes(tuple(item.nodeid for item in pyfuncitem.session.items if _runs_with(item, pyfuncitem)))
    name = _name(pyfuncitem.nodeid)
    assert name in told, f"did not run as {USER}: {told.get('')}"
    assert told[name] is None, told[name]
    return True


def _runs_with(item: pytest.Item, other: pytest.Item) -> bool:
    """One run as the user is for all files that this process has, as each run loads everything anew."""
    module = getattr(item, "module", None)
    return getattr(module, "AS_ORDINARY_USER", False) and group(item.nodeid) == group(other.nodeid)


def _name(nodeid: str) -> str:
    """As JUnit's report has it."""
    path, _, name = nodeid.partition("::")
    return f"{path.removesuffix('.py').replace('/', '.')}::{name}"


@cache
def outcomes(wanted: tuple[str, ...]) -> dict[str, str | None]:
    """By test: None where it passed, else why not; under the empty name, what the run printed."""
    with tempfile.TemporaryDirectory(prefix="hatchway-ordinary-") as folder:
        os.chmod(folder, 0o711)
        report = Path(folder) / "told" / "report.xml"
        report.parent.mkdir()
        shutil.chown(report.parent, user().pw_name)
        arguments = [*wanted, "-p", "no:cacheprovider", "-q", "--tb=short", f"--junitxml={report}"]
        done = run_as_user(["-m", "pytest", *arguments], timeout=1800)
        told: dict[str, str | None] = {"": done.stdout[-4000:] + done.stderr[-4000:]}
        for case in ET.parse(report).iter("testcase") if report.exists() else ():
            faults = [child for child in case if child.tag in ("failure", "error", "skipped")]
            # A test that fails and then leaves something behind has two cases.
            name = f"{case.attrib['classname']}::{case.attrib['name']}"
            words = [told.get(name) or "", *(fault.text or fault.tag for fault in faults)]
            told[name] = "\n".join(filter(None, words)) or None
        return told


@cache
def user() -> pwd.struct_passwd:
    """The ordinary user, made where there is none: by one of the processes that run tests, the others wait for it."""
    with locked(Path(tempfile.gettempdir()) / f"{USER}.lock"):
        try:
            return pwd.getpwnam(USER)
        except KeyError:
            subprocess.run(["useradd", "--create-home", USER], check=True)
            return pwd.getpwnam(USER)


def run_as_user(arguments: list[str], timeout: float) -> subprocess.CompletedProcess[str]:
    """Python with these arguments, as the ordinary user, in a checkout that it can read."""
    root, imports = readable()
    # What a machine must have under CI=true, this process has judged: the user has no programs of its environment.
    env = {name: os.environ[name] for name in ("HATCHWAY_EFFORT",) if name in os.environ}
    env |= {"HOME": user().pw_dir, "PATH": PATH, "PYTHONPATH": imports, "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(
        as_user([python(), *arguments]),
        env=env,
        cwd=root,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
        umask=0o022,  # an engine that this process held before has narrowed its own
    )


def as_user(command: list[str]) -> list[str]:
    return ["runuser", "-u", user().pw_name, "--", *command]


@cache
def python() -> str:
    """An interpreter of this very version that the user may run."""
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    for found in (sys.executable, f"/usr/bin/python{version}", shutil.which("python3", path=PATH) or ""):
        ask = as_user([found, "-c", f"import sys; assert sys.version_info[:2] == {sys.version_info[:2]}"])
        if found and subprocess.run(ask, capture_output=True, check=False).returncode == 0:
            return found
    raise AssertionError(f"no Python {version} that an ordinary user may run: install Debian's python3")


@cache
def readable() -> tuple[Path, str]:
    """The checkout, and PYTHONPATH for it and what it needs: copied to where the user may read them if they are not."""
    packages = Path(sysconfig.get_path("purelib"))
    if all(
        subprocess.run(as_user(["test", "-r", f"{path}/."]), check=False).returncode == 0 for path in (ROOT, packages)
    ):
        return ROOT, import_path(ROOT, packages)
    folder = Path(tempfile.mkdtemp(prefix="hatchway-readable-"))
    folder.chmod(0o755)
    shutil.copytree(
        ROOT,
        folder / "root",
        symlinks=True,
        ignore=shutil.ignore_patterns(".git", ".venv", ".*_cache", ".hypothesis", "node_modules"),
    )
    shutil.copytree(packages, folder / "packages")
    subprocess.run(["chmod", "-R", "go+rX", folder], check=True)
    return folder / "root", import_path(folder / "root", folder / "packages")


def import_path(root: Path, packages: Path) -> str:
    """PYTHONPATH of the checkout at `root`: hatchway, tests, and the installed packages."""
    return os.pathsep.join(map(str, (root / ".packages", root, packages)))

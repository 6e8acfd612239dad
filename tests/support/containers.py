"""A real container runtime for tests: a host's folders, an image, and the promise that nothing is left behind."""

from __future__ import annotations

import json
import os
import pwd
import secrets
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest

from hatchway.engine.instances import processes
from hatchway.engine.instances.apptainer.apptainer import Apptainer
from hatchway.engine.instances.apptainer.host import Host, this_host
from hatchway.engine.instances.confinement import confine
from hatchway.engine.instances.request import InstanceFields, InstanceRequest, Policy

IMAGE = Path("/tmp/busybox.sif")
"""Where tests/data/install-apptainer builds it."""

NAMES = f"t{secrets.token_hex(3)}-"
"""How the names of this run begin: another run of the same user's is none of ours."""

LONG = str(10_000 + secrets.randbelow(80_000))
"""Seconds that a command of this run sleeps when it is to be ended by somebody else; also its mark in /proc."""


class Place:
    """A host's folders as an engine has them, and its real runtime."""

    def __init__(self, base: Path) -> None:
        self.home, self.images, self.volumes = base / "engine", base / "images", base / "volumes"
        for folder in (self.home, self.images, self.volumes):
            folder.mkdir(mode=0o700)
        shutil.copy(IMAGE, self.images / "box.sif")
        self.platform = self.runtime()

    def runtime(self, host: Host | None = None) -> Apptainer:
        """A backend anew, as after a restart; on a host of other means where one is given."""
        return Apptainer(self.home / "instances", lambda: False, lambda: host or this_host())

    @property
    def policy(self) -> Policy:
        return Policy(self.home, (str(self.images),), (), (str(self.volumes),), True)

    def request(self, policy: Policy | None = None, **fields: Any) -> InstanceRequest:
        fields = {"image": "box.sif", "identity": new_name(), **fields}
        return confine(msgspec.convert(fields, InstanceFields, strict=True), policy or self.policy)

    def output(self, started: Any, stream: Any = "out") -> str:
        path, begin = self.platform.log(started, stream)
        return path.read_bytes()[begin:].decode()


class Gate:
    """What a command in an instance waits for, so that no test has to be quick: put `wait` into its script."""

    wait = "until [ -e /gate/open ]; do sleep 0.1; done"

    def __init__(self, place: Place) -> None:
        self._folder = place.volumes / new_name()
        self._folder.mkdir()
        self.volume = f"{self._folder}:/gate"

    def open(self) -> None:
        (self._folder / "open").touch()


def new_name() -> str:
    return NAMES + secrets.token_hex(4)


def listed() -> dict[str, Any]:
    """The runtime's own list, asked by hand; again where it gives none, as while a record of another run's instance is
    half written."""
    env = {"PATH": os.environ["PATH"], "HOME": pwd.getpwuid(os.geteuid()).pw_dir}
    for _ in range(20):
        done = subprocess.run(["apptainer", "instance", "list", "--json"], env=env, capture_output=True, check=False)
        if done.returncode == 0:
            return {entry["instance"]: entry for entry in json.loads(done.stdout)["instances"]}
        time.sleep(0.1)
    raise AssertionError(done.stderr)


def living() -> dict[str, list[int]]:
    """Every instance of this run that has a process, listed or not; its watchers and the runtime's own calls too."""
    found: dict[str, list[int]] = {}
    for process in processes.own():
        words = process.argv[0].rstrip() if process.argv[0].startswith("Apptainer instance") else process.argv[-1]
        parts = words.rpartition("[")[2].rstrip("]").split("/")
        for name in {part for part in parts[-2:] if part.startswith(NAMES)}:
            found.setdefault(name, []).append(process.pid)
    return found


def principals(folder: Path) -> list[int]:
    """Processes that have a file under the folder open, as a container's file system has its image."""
    found = []
    for process in processes.own():
        with suppress(OSError):
            links = [os.readlink(link) for link in Path(f"/proc/{process.pid}/fd").iterdir()]
            if any(link.startswith(f"{folder}/") for link in links):
                found.append(process.pid)
    return found


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    """A place that has to be left with no instance of ours, listed or not."""
    with left_clean(tmp_path) as here:
        yield here


@contextmanager
def left_clean(base: Path) -> Iterator[Place]:
    """The same, in a folder of the caller's."""
    here = Place(base)
    yield here
    left = [pid for pids in living().values() for pid in pids] + principals(here.images)
    names = list(living())
    for pid in processes.in_sessions({processes.session(pid) for pid in left} - {os.getsid(0)}):
        processes.kill(pid, processes.since(pid))
    assert not left, f"left behind: {names} {left}"
    assert not [name for name in listed() if name.startswith(NAMES)]

"""The handbook's recipe of an image, and its quadlet: what they set is what the engine takes."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tarfile
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest

from hatchway.engine.settings.settings import TABLE
from tests.readme import CHAPTERS
from tests.support.ordinary_user import PATH, python, readable
from tests.support.ports import free_port
from tests.support.processes import START_SECONDS

TEXT = CHAPTERS["service"].read_text()
(RECIPE,) = re.findall(r"^```dockerfile\n(.*?)^```$", TEXT, re.DOTALL | re.MULTILINE)
(QUADLET,) = re.findall(r"^```ini\n(.*?)^```$", TEXT, re.DOTALL | re.MULTILINE)
VARIABLES = dict(re.findall(r"\b(HATCHWAY_\w+)=(\S+)", RECIPE))


def words(instruction: str) -> list[str]:
    """The list that ENTRYPOINT or CMD has in its form without a shell."""
    (found,) = re.findall(rf"^{instruction} (\[.*\])$", RECIPE, re.MULTILINE)
    return list(json.loads(found))


def test_variables_are_settings() -> None:
    """Every HATCHWAY_ variable of both is the home or a setting."""
    named = {name for name, _ in re.findall(r"\b(HATCHWAY_\w+)=(\S+)", TEXT)}
    known = {"HATCHWAY_HOME", *(f"HATCHWAY_{name.upper().replace('.', '_')}" for name in TABLE)}
    assert named
    assert named <= known


def test_the_volume_is_the_home() -> None:
    """What the image writes is in its volume, and the quadlet keeps that one."""
    home = VARIABLES["HATCHWAY_HOME"]
    assert f"VOLUME {home}\n" in RECIPE
    assert f"-o 10001 -g 10001 {home}\n" in RECIPE
    assert re.search(rf"^Volume=\w+:{home}$", QUADLET, re.MULTILINE)


(CREATED,) = re.findall(r"^\$ (podman create .*?)^\$ (podman generate .*?) > ", TEXT, re.DOTALL | re.MULTILINE)


@pytest.mark.podman
@pytest.mark.systemd
def test_podman_writes_a_unit_where_it_knows_no_quadlets() -> None:
    """By the handbook's two commands: systemd takes the unit, which says what the quadlet says."""
    create, generate = CREATED
    entry = create.replace("localhost/hatchway:latest", "localhost/hatchway:latest hatchway")  # the image here has none
    with tempfile.TemporaryDirectory(prefix="podman-") as made:  # Podman wants short paths
        folder, program = Path(made), Path(made, "bin/podman")
        # Images and containers are kept in there, and no systemd is asked for a control group.
        options = f"--root {made}/images --runroot {made}/run --storage-driver vfs --cgroup-manager cgroupfs"
        program.parent.mkdir()
        program.write_text(f'#!/bin/sh\nexec {shutil.which("podman")} {options} "$@"\n')
        program.chmod(0o755)
        tarfile.open(folder / "empty.tar", "w").close()
        environ = {"PATH": f"{program.parent}:{PATH}", "HOME": made, "XDG_RUNTIME_DIR": made}
        image = "podman import empty.tar localhost/hatchway:latest"
        for line in (image, entry, f"{generate} > hatchway.service"):
            done = subprocess.run(
                ["sh", "-ec", line], env=environ, capture_output=True, text=True, cwd=made, check=False
            )
            assert done.returncode == 0, done.stderr
        unit = (folder / "hatchway.service").read_text()
        verify = ["systemd-analyze", "--user", "verify", f"{made}/hatchway.service"]
        done = subprocess.run(verify, env=environ, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")
    for words, of_the_quadlet in (
        ("Type=notify", "Notify=true"),
        ("-p 127.0.0.1:7420:7420", "PublishPort=127.0.0.1:7420:7420"),
        ("-e HATCHWAY_ADDRESSES=127.0.0.1:7420", "Environment=HATCHWAY_ADDRESSES=127.0.0.1:7420"),
        ("-v hatchway:/var/lib/hatchway", "Volume=hatchway:/var/lib/hatchway"),
        ("--read-only", "ReadOnly=true"),
        ("--security-opt no-new-privileges", "NoNewPrivileges=true"),
        ("--cap-drop all", "DropCapability=all"),
    ):
        assert words in unit
        assert f"{of_the_quadlet}\n" in QUADLET


@pytest.mark.process
@pytest.mark.mount
def test_its_command() -> None:
    """By a user that is a number alone, with the image's variables: it answers, and SIGTERM ends it with 0."""
    assert words("ENTRYPOINT") == ["/opt/hatchway/bin/hatchway"]
    root, imports = readable()
    with tempfile.TemporaryDirectory(prefix="hatchway-image-") as folder:
        os.chmod(folder, 0o711)
        home = Path(folder, "home")
        home.mkdir(mode=0o700)
        os.chown(home, 10001, 10001)
        changed = {"HATCHWAY_HOME": str(home), "HATCHWAY_PORT": str(free_port()), "PATH": PATH, "PYTHONPATH": imports}
        called: dict[str, Any] = {"env": VARIABLES | changed, "cwd": root}
        called |= {"user": 10001, "group": 10001, "extra_groups": []}
        program = (python(), "-c", "from hatchway.api.cli import main; main()")
        engine = subprocess.Popen([*program, *words("CMD")], **called)
        try:
            ping = [*program, "engine", "ping"]
            until = time.monotonic() + START_SECONDS
            while subprocess.run(ping, **called, capture_output=True, check=False).returncode:
                assert engine.poll() is None
                assert time.monotonic() < until
            engine.terminate()
            assert engine.wait(20) == 0
        finally:
            engine.kill()
            engine.wait()

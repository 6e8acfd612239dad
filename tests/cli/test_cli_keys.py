"""`hatchway key`: keys made, authorized and taken out, with no engine running."""

from __future__ import annotations

import json
import os
import re
import stat
from pathlib import Path

import pytest

from hatchway.engine.base.permissions import FIVE
from tests.support.command import run

pytestmark = pytest.mark.usefixtures("command_folder")

BAD_PERMISSIONS = (
    "",
    ",",
    "SHELL,",
    " SHELL",
    "shell",
    "MASTER",
    "SHELL,MASTER",
    "*",
    "ALL",
    "SHELL;RUNTIME",
    "SHELL:WRITE",
    "X" * 10_240,
)


def test_generate_register_list_unregister(home: Path) -> None:
    """The way of a key through the commands of section 4.6, no engine running."""
    made = json.loads(run("key", "generate", "--json").stdout)
    assert made == {"identity": made["identity"], "private": "rsa.pem", "public": "rsa.pub"}
    assert "hatchway key register laptop.pub" in run("key", "generate", "laptop").stderr
    run("key", "register", "rsa.pub")
    run("key", "register", "laptop.pub", "--permissions", "RUNTIME:READ,SHELL", "--comment", "the lap")
    shown = run("key", "list").stdout.splitlines()
    assert [len(re.split(r" {2,}", line)) for line in shown] == [8, 8, 8]  # what is missing is a dash, never a blank
    rows = json.loads(run("key", "list", "--json").stdout)
    assert [(row["comment"], row["permissions"], row["bits"]) for row in rows] == [
        ("rsa", list(FIVE), 3072),
        ("the lap", ["SHELL", "RUNTIME:READ"], 3072),
    ]
    first = run("key", "list").stdout.splitlines()[1].split()
    assert first[:4] == [made["identity"], ",".join(FIVE), "3072", "rsa"], "the columns that scripts cut out of it"
    assert "SHELL, before: SHELL, RUNTIME:READ" in run("key", "register", "laptop.pub", "--permissions", "SHELL").stdout
    assert "already" in run("key", "register", "laptop.pub", "--permissions", "SHELL").stdout
    run("key", "unregister", "the lap")
    run("key", "unregister", made["identity"][:20])
    assert json.loads(run("key", "list", "--json").stdout) == []
    assert "no authorized key" in run("key", "unregister", made["identity"], code=1).stderr
    assert stat.S_IMODE((home / "authorized_keys").stat().st_mode) == 0o600


def test_generated_files_have_their_modes_and_overwrite_nothing() -> None:
    """D34: the private key is 0600 under any umask, and neither file is ever written over."""
    before = os.umask(0)
    try:
        run("key", "generate")
    finally:
        os.umask(before)
    assert stat.S_IMODE(Path("rsa.pem").stat().st_mode) == 0o600
    assert not Path("rsa.pub").stat().st_mode & 0o022
    kept = Path("rsa.pem").read_bytes(), Path("rsa.pub").read_bytes()
    assert "not overwritten" in run("key", "generate", code=1).stderr
    Path("rsa.pem").rename("other.pem")
    assert "rsa.pub is there already" in run("key", "generate", code=1).stderr
    assert (Path("other.pem").read_bytes(), Path("rsa.pub").read_bytes()) == kept
    assert not Path("rsa.pem").exists()


@pytest.mark.parametrize("suffix", [".pem", ".pub"])
def test_a_planted_link_is_not_followed(suffix: str, tmp_path: Path) -> None:
    """D34: a symlink in a shared folder gets nobody's key written elsewhere."""
    target = tmp_path / "target"
    Path(f"rsa{suffix}").symlink_to(target)
    run("key", "generate", code=1)
    assert not target.exists()
    assert sorted(path.name for path in Path().iterdir()) == [f"rsa{suffix}"]


@pytest.mark.parametrize("name", ["../x", "-rf", ".x", "", "a/b", "a\nb", "a b", "x" * 65, "é"])
def test_key_names(name: str) -> None:
    """D34: a name is letters, digits, dots, underscores, hyphens, and no path or option."""
    run("key", "generate", "--", name, code=2)
    assert list(Path().iterdir()) == []


@pytest.mark.parametrize("text", BAD_PERMISSIONS, ids=lambda text: repr(text[:16]))
def test_d19_nothing_but_the_names_is_a_permission(text: str, home: Path) -> None:
    """D19: an empty, unknown or lower-case name, and MASTER, are usage errors that list the names; nothing is done."""
    run("key", "generate")
    for arguments in (("key", "register", "rsa.pub"), ("engine", "pair")):
        result = run(*arguments, f"--permissions={text}", code=2)
        assert "SHELL, ARTIFACT, RUNTIME, WORKFLOW, AGENT" in result.stderr.replace("\n", " ")
        assert len(result.stderr) < 1000
    assert not (home / "authorized_keys").exists()


def test_bad_lines_are_named(home: Path) -> None:
    """A line that grants nothing is told with its number, and the others are listed."""
    run("key", "generate")
    run("key", "register", "rsa.pub")
    with (home / "authorized_keys").open("a") as file:
        file.write("command=true ssh-rsa AAAA\n")
    result = run("key", "list", "--json")
    assert len(json.loads(result.stdout)) == 1
    assert "line 2 grants nothing" in result.stderr


def test_a_register_of_what_is_no_key_says_why() -> None:
    """One reason, exit code 1, and no file is touched."""
    run("key", "generate")
    assert "private key" in run("key", "register", "rsa.pem", code=1).stderr
    assert "nothing.pub" in run("key", "register", "nothing.pub", code=1).stderr
    os.mkfifo("pipe.pub")
    assert "not a plain file" in run("key", "register", "pipe.pub", code=1).stderr


def test_rotation_wants_a_started_engine() -> None:
    """There is nothing to rotate before the first start."""
    for name in ("rotate-engine", "rotate-token"):
        assert "first start" in run("key", name, code=1).stderr

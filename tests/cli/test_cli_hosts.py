"""How the command shows instances of several hosts: what an engine of a fleet answers, without one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hatchway.api.cli.host import store_token
from hatchway.engine.base.files import make_private_dir
from tests.support.command import run
from tests.support.false_engine import answer, false_engine, stored

pytestmark = pytest.mark.usefixtures("command_folder")

HERE = {"identity": "one", "state": "running", "host": "ash", "host_answers": True, "image": "box.sif"}
AWAY = HERE | {"identity": "two", "host": "elm", "host_answers": False}


def said(home: Path, value: object, *arguments: str) -> list[str]:
    """The lines that the command prints where the engine answers so."""
    make_private_dir(home)
    with false_engine(lambda _: answer(200, json.dumps(value).encode(), "Content-Type: application/json")) as (url, _):
        store_token(home, stored(url))
        return run("instance", *arguments).output.splitlines()


def test_a_list_of_one_host(home: Path) -> None:
    """Its name is not worth a column."""
    lines = said(home, {"instances": [HERE, HERE | {"identity": "three"}]}, "list")
    assert lines[0].split() == ["NAME", "STATE", "WHY", "EXIT", "AGE", "IMAGE"]
    assert not any("ash" in line for line in lines)


def test_a_list_of_several(home: Path) -> None:
    """Each with its host; one that does not answer is named as the reason why no more is known."""
    head, one, two = said(home, {"instances": [HERE, AWAY]}, "list")
    assert head.split() == ["NAME", "STATE", "WHY", "EXIT", "AGE", "HOST", "IMAGE"]
    assert one.split()[-2:] == ["ash", "box.sif"]
    assert "elm does not answer" in two
    assert two.split()[-2:] == ["elm", "box.sif"]


def test_one_that_does_not_answer(home: Path) -> None:
    """The host's line says what the others are worth."""
    facts = dict(line.split(maxsplit=1) for line in said(home, AWAY, "show", "two"))
    assert facts["host"] == "elm (does not answer: the rest is what it told last)"
    assert "host_answers" not in facts
    assert ["host", "ash"] in [line.split() for line in said(home, HERE, "show", "one")]

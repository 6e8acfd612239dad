"""`hatchway events check` and `head`: what an operator is told of the journal, with the engine up or down."""

from __future__ import annotations

import json
from pathlib import Path

import httpx
import pytest
from click.testing import CliRunner, Result

from hatchway.api.cli import cli
from tests.support.processes import EngineProcess, running_engine, sign_in

pytestmark = [pytest.mark.usefixtures("command_folder"), pytest.mark.process]


def run(*arguments: str, code: int = 0) -> Result:
    done = CliRunner().invoke(cli, ["events", *arguments])
    assert done.exit_code == code, done.output
    return done


def used(engine: EngineProcess) -> None:
    with httpx.Client(base_url=engine.url) as client:
        for _ in range(3):
            sign_in(client)


def test_a_journal_is_checked(home: Path, tmp_path: Path) -> None:
    """While the engine runs and after; a printed head is found again; a changed line is named, and ends in 1."""
    with running_engine(home) as engine:
        used(engine)
        assert "sessions" not in run("check").output
        head = run("head").output.strip()
        (tmp_path / "kept").write_text(f"Nov 28 host hatchway: head={head}\n")
        used(engine)
        told = json.loads(run("check", "--head", head, "--json").stdout)
        assert (told["ok"], told["witnessed"], told["last"]) == (True, 4, 7)
        kept = tmp_path / "jwks.json"
        kept.write_bytes(httpx.get(engine.url + "/.well-known/jwks.json").content)
        engine.terminate()
    found = run("check", "--head", str(tmp_path / "kept")).output
    assert "7 session" not in found
    assert "witnessed  up to record 4," in found
    told = json.loads(run("head", "--json").stdout)
    assert (told["seq"], told["why"]) == (8, "stop")
    path = home / "log" / "events.jsonl"
    assert "up to record 8," in run("check", "--keys", str(kept), str(path)).output
    whole = path.read_bytes()
    path.write_bytes(whole.replace(b'"target":"active"', b'"target":"ended"', 1))
    assert f"{path}:2: record 2: its hash is not that of this line" in run("check", code=1).output
    fault = json.loads(run("check", "--json", code=1).stdout)["fault"]
    assert (fault["line"], fault["seq"]) == (2, 2)
    path.write_bytes(whole)


def test_what_is_wrong_with_a_question_is_said(home: Path, tmp_path: Path) -> None:
    """No journal, no head, a time that is none or to come, options in the wrong place: each in words that lead on."""
    assert run().stderr.startswith("no records yet")
    assert "there is no journal in" in run("check", code=1).output
    assert "there is no head yet" in run("head", code=1).output
    (tmp_path / "kept").write_text("nothing\n")
    with running_engine(home):
        assert "there is no head in it" in run("check", "--head", str(tmp_path / "kept"), code=2).output
        assert "is no point in time" in run("check", "--since", "yesterday", code=2).output
        assert "is still to come" in run("at", "2099-01-01", code=2).output
        assert run("--chart", "instance").stderr == "no such records\n"
        assert "options go after the command" in run("--since", "1h", "check", code=2).output
        assert "--since" in run("check", "--help").output

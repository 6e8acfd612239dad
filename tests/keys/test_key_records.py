"""What becomes of keys is on record, whoever did it, under the names that people gave them."""

from __future__ import annotations

import ast
import json
import os
import time
from pathlib import Path
from typing import Any

import pytest
import structlog.testing
import trio
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from hatchway.api.http.app import make_app
from hatchway.engine.base.clock import TrioClock
from hatchway.engine.base.files import write_private
from hatchway.engine.engine import Engine
from hatchway.engine.journal.replay import NotSo, Replay
from hatchway.engine.keys import key_edits
from hatchway.engine.keys.keys import read_token_key
from hatchway.engine.keys.rotation import rotate_token_key
from hatchway.engine.runtime.records import NOTICES, Record, Saw
from tests.support.checked_journal import check_journal
from tests.support.fakes import ROOT, Browser, jump, key, sign_in, signed, virtual_engine, watch_of
from tests.support.live_engine import command, live_engine

Told = list[tuple[str, str, str | None, Any]]


def journal(home: Path, chart: str) -> list[dict[str, Any]]:
    """The journal's records of a chart, as they stand in the file."""
    lines = (home / "log" / "events.jsonl").read_text().splitlines()
    return [record for line in lines if (record := json.loads(line))["chart"] == chart]


def news(home: Path) -> Told:
    """Event, key, who did it, and the key's comment, of each notice about a key."""
    found = journal(home, "key")
    return [(one["event"], one["actor"], one["identity"], one.get("comment")) for one in found]


@pytest.mark.process
async def test_a_command_is_recorded_once_with_the_comment(home: Path, tmp_path: Path) -> None:
    """Registered, edited, taken out: by the operator, and not once more by whoever watches the file."""
    (tmp_path / "two.pub").write_bytes(key("two").public.pem())
    two, did = key("two").identity, "operator"
    async with live_engine(home):
        await trio.sleep(3.5)  # what the test's own helper has put into the file is on record by then
        before = len(news(home))
        await command(home, "key", "register", str(tmp_path / "two.pub"), "--comment", "the lab's")
        await command(home, "key", "edit", "the lab's", "--permissions", "SHELL", "--comment", "the attic's")
        await trio.sleep(3.5)
        await command(home, "key", "unregister", two)
        await trio.sleep(3.5)
        told = [
            ("register", two, did, "the lab's"),
            ("register", two, did, "the attic's"),
            ("unregister", two, did, "the attic's"),
        ]
        assert news(home)[before:] == told
        shown = (await command(home, "events", "--chart", "key")).stdout.decode()
    assert f"{two}  operator  the attic's" in shown


@pytest.mark.virtual_time
async def test_what_a_hand_did_is_recorded_within_three_seconds(home: Path) -> None:
    """A line that came, one that says something else, one that went: by nobody, with the comment, and with what it
    grants. One that only moved is no news."""
    async with virtual_engine(home) as engine:
        await trio.sleep(3)
        before = len(news(home))
        path, two = home / "authorized_keys", key("two").identity
        kept = path.read_bytes()
        path.write_bytes(kept + key_edits.register(b"", key("two").public, ("SHELL",), "night shift")[0])
        await trio.sleep(3)
        path.write_bytes(
            kept + key_edits.register(b"", key("two").public, ("AGENT",), "night shift", {"from": "10.*"})[0]
        )
        await trio.sleep(3)
        path.write_bytes(b"# moved\n" + path.read_bytes())
        await trio.sleep(3)
        path.write_bytes(kept)
        await trio.sleep(3)
        events = ["register", "register", "unregister"]
        assert news(home)[before:] == [(event, two, None, "night shift") for event in events]
        causes = [one["cause"] for one in journal(home, "key")[before:]]
        assert causes == ['permissions="SHELL"', 'permissions="AGENT",from="10.*"', None]
        assert engine.keys.find(two) is None


@pytest.mark.virtual_time
async def test_a_sign_in_is_recorded_under_the_keys_comment(engine: Engine, browser: Browser) -> None:
    """So that who it was is known without authorized_keys. The session's label is another thing."""
    engine.keys.register(key("two").public, ("SHELL",), "alice's laptop")
    await sign_in(browser, key("two"), label="big screen")
    [began] = (one for one in watch_of(engine).records if one.event == "start" and one.chart == "session")
    assert (began.identity, began.comment, began.label) == (key("two").identity, "alice's laptop", "big screen")


@pytest.mark.virtual_time
async def test_a_refusal_names_the_key_that_has_proven_itself(engine: Engine) -> None:
    """A stolen key that signs in from elsewhere is named; whom an unproven signature claims to be is not."""
    engine.keys.edit(lambda data: key_edits.register(data, key("two").public, ("SHELL",), "alice", {"from": "10.*"}))
    thief = Browser(make_app(engine), address="192.0.2.66")
    for private, named in ((key("two"), key("two").identity), (key("three"), key("two").identity)):
        nonce = (await thief.get("/api/auth/challenge/")).json()["nonce"]
        reply = await thief.post("/api/auth/verify/", signed(nonce, private) | {"identity": named})
        assert reply.status == 401
    stolen, guessed = (one for one in watch_of(engine).records if one.kind == "refusal")
    assert (stolen.cause, stolen.identity, stolen.comment) == ("foreign_address", key("two").identity, "alice")
    assert (stolen.saw, guessed.saw) == (Saw(proof="signature"), Saw(proof=None))
    assert (stolen.address, guessed.address) == ("192.0.2.66", "192.0.2.66")
    assert (guessed.cause, guessed.identity, guessed.comment or None) == ("wrong_signature", None, None)


@pytest.mark.virtual_time
async def test_a_token_that_was_carried_elsewhere_is_recorded(engine: Engine) -> None:
    """Each use from where its key may not be used: under the key's names, and with the address."""
    engine.keys.edit(lambda data: key_edits.register(data, key("two").public, ("SHELL",), "alice", {"from": "10.*"}))
    owner, thief = (Browser(make_app(engine), address=address) for address in ("10.0.0.1", "192.0.2.66"))
    token = (await sign_in(owner, key("two")))["token"]
    uses = [(await one.get("/api/auth/inspect/", token=token)).status for one in (owner, thief, owner)]
    assert uses == [200, 401, 200]
    [told] = (one for one in watch_of(engine).records if one.kind == "refusal")
    assert (told.event, told.cause) == ("use", "foreign_address")
    assert (told.identity, told.comment, told.address) == (key("two").identity, "alice", "192.0.2.66")


@pytest.mark.virtual_time
async def test_a_rotation_of_the_token_key_is_recorded(home: Path) -> None:
    """By its public names: while the engine runs, and at the next start where none ran. A start or a reload without one
    says nothing."""

    def rotations() -> list[tuple[str, str]]:
        return [(one["actor"], one["cause"]) for one in journal(home, "key") if one["event"] == "rotate_token"]

    def rotate(clock: TrioClock) -> None:
        rotate_token_key(home, clock, force=True)

    async with virtual_engine(home, clock := TrioClock()) as engine:
        first = engine.tokens.key_ids()[0]
        engine.reload()
        assert rotations() == []
        rotate(clock)
        engine.reload()
        second = engine.tokens.key_ids()[0]
        assert rotations() == [(second, f"replaces {first}")]
        engine.reload()
    await jump(1)
    async with virtual_engine(home, clock):
        assert len(rotations()) == 1
    rotate(clock)
    async with virtual_engine(home, clock) as engine:
        third = engine.tokens.key_ids()[0]
        assert rotations()[1:] == [(third, f"replaces {second}")]
    check_journal(home)
    texts = [(home / name).read_text() for name in ("token-key.pem", "token-key-old.pub")]
    assert not any(
        line in (home / "log" / "events.jsonl").read_text() for text in texts for line in text.split("\n")[1:2]
    )


@pytest.mark.virtual_time
async def test_a_rotated_key_goes_with_its_last_token(home: Path) -> None:
    """A day after the rotation it verifies nothing more, in an engine that ran all the time too. Where the file can't
    be read, that is said once."""
    async with virtual_engine(home, clock := TrioClock()) as engine:
        await trio.sleep(3)
        rotate_token_key(home, clock, force=True)
        engine.reload()
        await trio.sleep(3)
        assert len(engine.tokens.key_ids()) == 2
        old = home / "token-key-old.pub"
        sound = old.read_bytes()
        old.write_bytes(b"no key")
        with structlog.testing.capture_logs() as lines:
            await trio.sleep(5)
        assert [line["event"] for line in lines] == ["token_key_not_read"]
        old.write_bytes(sound)
        os.utime(old, (time.time() - 25 * 3600,) * 2)
        await trio.sleep(3)
        assert len(engine.tokens.key_ids()) == 1


@pytest.mark.virtual_time
async def test_a_rotation_that_was_cut_off_is_taken_up_once(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The key that signs stands in both files then, for a day; in a folder that a fleet shares they are looked at each
    second."""
    async with virtual_engine(home, TrioClock()) as engine:
        monkeypatch.setattr(engine.key_watch, "_common", True)
        taken: list[tuple[str, ...]] = []
        engine.key_watch.on_token_keys.append(lambda: taken.append(engine.tokens.key_ids()))
        present = read_token_key((home / "token-key.pem").read_bytes()).public_key()
        write_private(home / "token-key-old.pub", present.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
        await trio.sleep(10)
        assert taken == []
        assert len(engine.tokens.key_ids()) == 1


def test_every_notice_is_in_the_table() -> None:
    """The handbook draws it: what the code records is there, and nothing else."""
    found = set()
    for path in (*(ROOT / "engine").rglob("*.py"), *(ROOT / "api").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "notice":
                chart, _, event = node.args[:3]
                assert isinstance(chart, ast.Constant), path
                assert isinstance(event, ast.Constant), path
                found.add((chart.value, event.value))
    assert found == set(NOTICES)


def test_a_notice_takes_no_step() -> None:
    """`events check` says so of one that claims to."""
    replay = Replay(complete=True)
    replay.take(Record(1.0, 1, "notice", "key", "kid", "rotate_token", cause="replaces another"))
    with pytest.raises(NotSo, match="a notice that leads somewhere"):
        replay.take(Record(1.0, 2, "notice", "session", "s1", "start", "none", "active"))


@pytest.mark.virtual_time
async def test_a_file_that_is_refused_is_said_once(home: Path) -> None:
    """The log has a line when authorized_keys is open to others, no more while that lasts, and one when it is again."""
    async with virtual_engine(home, TrioClock()) as engine:
        with structlog.testing.capture_logs() as lines:
            for _ in range(2):
                engine.keys.path.chmod(0o666)
                await trio.sleep(5)
                engine.keys.path.chmod(0o600)
                await trio.sleep(3)
        said = [line["why"] for line in lines if line["event"] == "keys_not_followed"]
        assert len(said) == 2
        assert "chmod 600" in said[0]

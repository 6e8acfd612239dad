"""`hatchway key register`, `edit` and `list`: a key's options by flags, written as OpenSSH has them."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

import pytest

from hatchway.engine.keys.key_options import expiry_of
from tests.support.command import run
from tests.support.fakes import key
from tests.support.live_engine import command, live_engine, told

ALL = ("--expires", "90d", "--from", "10.0.0.0/8,!10.0.0.9", "--instances", "4", "--lifetime", "8h")


@pytest.fixture(autouse=True)
def public(command_folder: None) -> None:
    """A public key where the test stands."""
    Path("rsa.pub").write_bytes(key().public.pem())


def line(home: Path) -> str:
    """What stands before the key."""
    return (home / "authorized_keys").read_text().partition(" ssh-rsa")[0]


def test_register_writes_what_list_tells(home: Path) -> None:
    """Each flag is an option of the line; the same again changes nothing, and what is not named stays."""
    before = int(time.time())
    made = json.loads(run("key", "register", "rsa.pub", *ALL, "--json").stdout)
    (row,) = json.loads(run("key", "list", "--json").stdout)
    assert {name: row[name] for name in ("from", "instances", "lifetime")} == {
        "from": "10.0.0.0/8,!10.0.0.9",
        "instances": 4,
        "lifetime": 8 * 3600,
    }
    assert before + 90 * 86_400 <= row["expires_at"] - 1 <= time.time() + 90 * 86_400
    assert (made["outcome"], made["expires_at"]) == ("added", row["expires_at"])
    assert 'from="10.0.0.0/8,!10.0.0.9",instances="4",lifetime="8h"' in line(home)
    assert "already" in run("key", "register", "rsa.pub", "--instances", "4").stdout
    run("key", "register", "rsa.pub", "--permissions", "SHELL")
    assert json.loads(run("key", "list", "--json").stdout) == [row | {"permissions": ["SHELL"]}]
    shown = run("key", "list").stdout
    assert "from=10.0.0.0/8,!10.0.0.9 instances=4 lifetime=8h" in shown


def test_edit_changes_what_is_named(home: Path) -> None:
    """By identity, the beginning of one, or the comment; `none` takes an option out."""
    run("key", "register", "rsa.pub", *ALL, "--comment", "laptop", "--permissions", "SHELL")
    run("key", "edit", "laptop", "--expires", "2099-01-31", "--from", "none", "--instances", "none")
    assert line(home) == 'permissions="SHELL",expiry-time="20990131",lifetime="8h"'
    run("key", "edit", key().identity[:20], "--lifetime", "none", "--expires", "209901311200Z", "--comment", "other")
    run("key", "edit", "other", "--permissions", "AGENT")
    assert line(home) == 'permissions="AGENT",expiry-time="209901311200Z"'
    (row,) = json.loads(run("key", "list", "--json").stdout)
    assert (row["expires_at"], row["comment"]) == (expiry_of("209901311200Z") + 1, "other")
    narrowed = run("key", "edit", "other", "--from", "10.0.0.0/8").stdout
    assert re.search(r"^only +from=10\.0\.0\.0/8$", narrowed, re.MULTILINE), narrowed
    run("key", "edit", "other", "--from", "none", "--expires", "3d")
    assert re.search(r" in (3d|2d 23h) ", run("key", "list").stdout)
    run("key", "edit", "other", "--expires", "20200101Z")
    assert "expired 2020-01-01" in run("key", "list").stdout


@pytest.mark.parametrize(
    ("flags", "why"),
    [
        (("--expires", "banana"), "is no time"),
        (("--expires", "20270230"), "write a span as 90d, a day as 2027-01-31"),
        (("--expires", "2027-13-01"), "write a span as 90d, a day as 2027-01-31"),
        (("--expires", "5s"), "is no time"),
        (("--expires", "0d"), "wants a whole number"),
        (("--expires", ""), "the option expiry-time wants a value"),
        (("--from", "10.0.0.1", "--from", "10.0.0.2"), "give --from once, with commas"),
        (("--from", ""), "the option from wants a value"),
        (("--instances", ""), "the option instances wants a value"),
        (("--lifetime", ""), "the option lifetime wants a value"),
        (("--lifetime", "4000d"), "from 1m to 3660d"),
        (("--from", "10.0.0.1/8"), "bits set behind its mask"),
        (("--from", 'a"b'), "neither an address"),
        (("--instances", "many"), "instances wants a number"),
        (("--lifetime", "8"), "lifetime wants a whole number"),
        ((), "say what to change"),
    ],
)
def test_what_cannot_be_meant_is_a_usage_error(home: Path, flags: tuple[str, ...], why: str) -> None:
    """Exit code 2, the reason, and nothing is changed."""
    run("key", "register", "rsa.pub")
    before = (home / "authorized_keys").read_bytes()
    assert why in " ".join(run("key", "edit", "rsa", *flags, code=2).stderr.split())
    assert (home / "authorized_keys").read_bytes() == before


def test_what_an_edit_refuses(home: Path) -> None:
    """The engine's own key, one that nobody has, and a line that grants nothing, which is told why."""
    run("key", "register", "rsa.pub")
    assert "no authorized key" in run("key", "edit", "nobody", "--instances", "1", code=1).stderr
    path = home / "authorized_keys"
    path.write_text(f'permissions="MASTER" {key("own").public.openssh()} engine\nno-pty {key().public.openssh()} rsa\n')
    assert "this is the engine's own key" in run("key", "edit", "engine", "--instances", "1", code=1).stderr
    assert "option no-pty is not known here" in run("key", "edit", "rsa", "--instances", "1", code=1).stderr


@pytest.mark.process
async def test_sign_in_and_ping_say_when_the_key_expires(home: Path, tmp_path: Path) -> None:
    """From a week before, on standard error; an edit is told to the engine that runs."""
    (tmp_path / "one.pem").touch(0o600)
    (tmp_path / "one.pem").write_bytes(key().pem())
    login = ("login", "--key", str(tmp_path / "one.pem"), "--url")
    async with live_engine(home) as at:
        away = tmp_path / "away"
        assert (await command(away, *login, at.url)).stderr == b""
        await told(home, "key", "edit", "one", "--expires", "3d")
        for words in ((*login, at.url), ("engine", "ping")):
            said = (await command(away, *words)).stderr
            assert re.search(rb"^this key expires in (3d|2d 23h), at 20", said)

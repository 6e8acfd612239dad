"""Keys from elsewhere: a program of the site is asked for keys that authorized_keys has not, and fails closed."""

from __future__ import annotations

import errno
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import trio

from hatchway.api.http.app import make_app
from hatchway.engine.base.errors import TooManyRequests
from hatchway.engine.keys import key_command
from hatchway.engine.keys.key_command import KeyCommand
from hatchway.engine.sessions import orphans
from tests.support.fakes import Browser, SetClock, key, sign_in, signed
from tests.support.live_engine import Live, live_engine
from tests.support.timing import Share

LINE = key("far").public.openssh()
OTHER = key("other").public.openssh()


def program(folder: Path, text: str, name: str = "keys") -> tuple[str, ...]:
    """A script of sh, whose argv has a word of its own before the fingerprint."""
    path = folder / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return (str(path), "argument")


def answering(folder: Path, line: str = LINE) -> tuple[str, ...]:
    """One that prints that line, and notes what it was asked."""
    return program(folder, f'echo "$@" >> {folder}/asked\ncat {folder}/lines') if _wrote(folder, line) else ()


def _wrote(folder: Path, line: str) -> bool:
    return (folder / "lines").write_text(f"{line}\n") > 0


def asked(folder: Path) -> list[str]:
    path = folder / "asked"
    return path.read_text().splitlines() if path.exists() else []


def browser_of(at: Live) -> Browser:
    return Browser(make_app(at.engine), host=at.url.partition("//")[2])


async def verify(browser: Browser, **more: Any) -> int:
    """A sign-in by the far key, which names itself."""
    private = key("far")
    nonce = (await browser.get("/api/auth/challenge/")).json()["nonce"]
    reply = await browser.post("/api/auth/verify/", signed(nonce, private) | {"identity": private.identity} | more)
    return reply.status


async def test_a_key_that_the_file_has_not_is_asked_for(home: Path, tmp_path: Path) -> None:
    """Once in a minute, with the fingerprint as the last argument; the line's options count as in the file."""
    command = answering(tmp_path, f'permissions="SHELL",lifetime="90m" {LINE} far')
    async with live_engine(home, authorized_keys_command=command) as at:
        browser = browser_of(at)
        for _ in range(3):
            session = await sign_in(browser, key("far"), identity=key("far").identity, lifetime="24h")
            assert session["permissions"] == ["SHELL"]
            assert session["expires_at"] <= at.clock.wall() + 5400
        await sign_in(browser)
        assert (await browser.get("/api/auth/inspect/", token=session["token"])).status == 200
        assert asked(tmp_path) == [f"argument {key('far').identity}"]
        assert await verify(browser, signature="AAAA") == 401


BAD = {
    "fails": f"echo '{LINE}'; exit 1",
    "prints nothing": "true",
    "other people's keys": f"echo '{OTHER}'; echo 'permissions=\"MASTER\" {OTHER}'",
    "no line": "echo hello; head -c 1000 /dev/urandom",
    "MASTER": f"echo 'permissions=\"MASTER\" {LINE}'",
    "a foreign option": f"echo 'no-pty {LINE}'",
    "expired": f"echo 'expiry-time=\"20200101Z\" {LINE}'",
    "from elsewhere": f"echo 'from=\"10.0.0.0/8\" {LINE}'",
    "floods": f"echo '{LINE}'; yes '{OTHER}'",
    "killed": f"echo '{LINE}'; kill -9 $$",
}


@pytest.mark.parametrize("how", BAD)
async def test_what_goes_wrong_authorizes_nobody(home: Path, tmp_path: Path, how: str) -> None:
    """Whatever the program does, nobody signs in, the answer is the 401 of any key, and the engine goes on."""
    async with live_engine(home, authorized_keys_command=program(tmp_path, BAD[how])) as at:
        browser = browser_of(at)
        assert await verify(browser) == 401
        await sign_in(browser)


async def test_a_program_that_hangs_hurts_nobody(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is ended with all that it started, in its time; meanwhile inspections take as long as ever, and no more than a
    few programs run at once."""
    monkeypatch.setattr(key_command, "ANSWER_WITHIN", 2.0)
    hanging = program(tmp_path, f"echo $$ >> {tmp_path}/pids; sleep 1000 & sleep 1000")
    async with live_engine(home, authorized_keys_command=hanging) as at:
        browser = browser_of(at)
        token = (await sign_in(browser))["token"]
        took: list[float] = []
        statuses: list[int] = []

        async def guess(number: int) -> None:
            nonce = (await browser.get("/api/auth/challenge/")).json()["nonce"]
            body = signed(nonce, key("far")) | {"identity": f"SHA256:{number:043d}"}
            statuses.append((await browser.post("/api/auth/verify/", body)).status)

        async with trio.open_nursery() as nursery:
            for number in range(20):
                nursery.start_soon(guess, number)
            share, until = Share(), time.monotonic() + 3
            while time.monotonic() < until:
                began = time.perf_counter()
                assert (await browser.get("/api/auth/inspect/", token=token)).status == 200
                took.append(time.perf_counter() - began)
                await trio.sleep(0.005)
            assert len((tmp_path / "pids").read_text().split()) <= 2 * key_command.AT_ONCE
            nursery.cancel_scope.cancel()
        took.sort()
        print(f"p99 of an inspection beside it: {took[int(len(took) * 0.99)] * 1000:.1f} ms of {len(took)}")
        assert took[len(took) // 2] * share.now() < 0.1
    for pid in (tmp_path / "pids").read_text().split():
        assert not alive(int(pid))


def alive(group: int) -> list[str]:
    """Processes of a group that run. (Nobody may have fetched the exit code of one that has ended.)"""
    stats = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            stats.append(path.read_text().rpartition(")")[2].split())
    return [words[0] for words in stats if int(words[2]) == group and words[0] != "Z"]


async def test_sessions_are_asked_for_again_and_end_when_the_key_is_gone(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before each minute is over, whether they are used or not; a program that fails then is as one that says no."""
    monkeypatch.setattr(key_command, "REMEMBERED", 4.0)
    monkeypatch.setattr(orphans, "REMEMBERED", 4.0)
    monkeypatch.setattr(orphans, "ASKED_AGAIN_AFTER", 1.0)
    monkeypatch.setattr(orphans, "CONFIRM_INTERVAL", 0.5)
    async with live_engine(home, authorized_keys_command=answering(tmp_path)) as at:
        browser = browser_of(at)
        token = (await sign_in(browser, key("far"), identity=key("far").identity))["token"]
        with trio.fail_after(30):
            while len(asked(tmp_path)) < 4:
                await trio.sleep(0.1)
                assert (await browser.get("/api/auth/inspect/", token=token)).status == 200
        (tmp_path / "lines").write_text("")
        with trio.fail_after(30):
            while any(actor.facts.identity == key("far").identity for actor in at.engine.runtime.actors("session")):
                await trio.sleep(0.1)
        (tmp_path / "lines").write_text(f"{LINE}\n")
        assert (await browser.get("/api/auth/inspect/", token=token)).status == 401


async def test_a_restart_asks_before_it_ends_a_session(home: Path, tmp_path: Path) -> None:
    """An engine that has just begun does not know the key: the first use of the session asks for it."""
    command = answering(tmp_path)
    async with live_engine(home, authorized_keys_command=command) as at:
        token = (await sign_in(browser_of(at), key("far"), identity=key("far").identity))["token"]
        port = at.url.rpartition(":")[2]
    async with live_engine(home, authorized_keys_command=command) as at:
        assert (await browser_of(at).get("/api/auth/inspect/", token=token)).status == 200
        assert len(asked(tmp_path)) == 2
    async with live_engine(home) as at:
        assert (await browser_of(at).get("/api/auth/inspect/", token=token)).status == 401
    assert port


async def test_a_key_of_the_file_is_not_asked_for(home: Path, tmp_path: Path) -> None:
    """What the file says of a key counts, also where it grants nothing."""
    async with live_engine(home, authorized_keys_command=answering(tmp_path)) as at:
        path = at.engine.keys.path
        path.write_text(path.read_text() + f"no-pty {LINE} far\n")
        assert await verify(browser_of(at)) == 401
        assert asked(tmp_path) == []


async def test_a_program_that_others_may_write_is_not_run(tmp_path: Path) -> None:
    """Nor one that is not there, or has no absolute path; those who ask for one key at once share the answer."""
    identity = key("far").identity
    for argv in ((program(tmp_path, f"echo '{LINE}'")[0],), (str(tmp_path / "none"),), ("keys",)):
        if argv[0].startswith("/") and Path(argv[0]).exists():
            Path(argv[0]).chmod(0o777)
        assert await KeyCommand(lambda argv=argv: argv, SetClock()).ask(identity) is None  # type: ignore[misc]
    elsewhere = KeyCommand(lambda: answering(tmp_path), SetClock())
    async with trio.open_nursery() as nursery:
        for _ in range(10):
            nursery.start_soon(elsewhere.ask, identity)
    assert len(asked(tmp_path)) == 1
    assert elsewhere.find(identity) is not None
    assert not elsewhere.must_be_asked("--help")


async def test_whoever_asks_first_may_go_away(tmp_path: Path) -> None:
    """Others who wait for that answer ask themselves: a client that hangs up makes nobody's key a key of nothing."""
    elsewhere = KeyCommand(lambda: program(tmp_path, f"sleep 0.3; echo '{LINE}'"), SetClock())
    granted: list[object] = []

    async def ask() -> None:
        granted.append(await elsewhere.ask(key("far").identity))

    async with trio.open_nursery() as nursery:
        with trio.move_on_after(0.1):
            nursery.start_soon(ask)
            await elsewhere.ask(key("far").identity)
    assert granted != [None]


@pytest.mark.parametrize("number", [errno.EMFILE, errno.EAGAIN])
async def test_a_host_that_cannot_ask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """For want of files or processes: the program has not said no, so nothing is remembered and no session ends."""

    async def fails(*arguments: object, **options: object) -> None:
        raise OSError(number, os.strerror(number))

    elsewhere = KeyCommand(lambda: answering(tmp_path), SetClock())
    with monkeypatch.context() as short:
        short.setattr("trio.lowlevel.open_process", fails)
        with pytest.raises(TooManyRequests) as refused:
            await elsewhere.ask(key("far").identity)
    assert refused.value.retry_after == 5
    assert elsewhere.must_be_asked(key("far").identity)
    assert await elsewhere.ask(key("far").identity) is not None


async def test_too_many_look_ups_at_once_are_refused(tmp_path: Path) -> None:
    """A flood of keys starts few programs at once, and the rest are told to come again."""
    elsewhere = KeyCommand(lambda: program(tmp_path, "sleep 1000"), SetClock())
    async with trio.open_nursery() as nursery:
        for number in range(key_command.WAITING + key_command.AT_ONCE):
            nursery.start_soon(elsewhere.ask, f"SHA256:{number:043d}")
        await trio.testing.wait_all_tasks_blocked(0.05)
        with pytest.raises(TooManyRequests):
            await elsewhere.ask(f"SHA256:{10**6:043d}")
        nursery.cancel_scope.cancel()

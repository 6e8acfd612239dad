"""`hatchway engine pair` on a real terminal: what it shows, and which keystrokes approve (D26, D27)."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest
import trio

from hatchway.api.cli.pairing import ssh_hint
from hatchway.api.host.operator_socket import OperatorSocket
from hatchway.engine.access.principal import IssuedSession
from hatchway.engine.base.errors import PairingCodeRefused, PairingExpired, Refusal
from hatchway.engine.base.files import make_private_dir, write_private
from hatchway.engine.engine import Engine, open_engine
from hatchway.engine.pairings.pairings import Claim, Claimant
from hatchway.engine.runtime.records import Origin
from hatchway.engine.settings.settings import SessionMaxAge, Settings
from tests.support.command import HATCHWAY
from tests.support.fakes import ROOT, MovedClock, added_addresses, key, vectors
from tests.support.terminal import Screen, terminal

pytestmark = pytest.mark.process

AGENT = b"Mozilla/5.0 (X11; Linux x86_64)"
PROMPT = "Approve? [y/N] "


class Host:
    """An engine with its operator socket, and consoles that claim its codes."""

    def __init__(self, engine: Engine, clock: MovedClock, nursery: trio.Nursery) -> None:
        self.engine, self.clock, self._nursery = engine, clock, nursery
        self.answer: IssuedSession | Refusal | None = None
        self.answered = trio.Event()
        self.claimed: Claim | None = None

    async def claim(
        self, screen: Screen, agent: bytes = AGENT, forwarded: str | None = None, shown: Path | None = None
    ) -> Claim:
        """A console claims the code on the screen, or in the file `shown`, and waits for the operator."""
        await screen.wait_for("Waiting for a console")
        text = shown.read_text() if shown else screen.text
        code = text.split("Pairing code  ")[1].split("\n")[0]
        claimant = Claimant("127.0.0.1", forwarded, agent, local=True)
        self.claimed = await self.engine.pairings.claim(code, claimant, Origin(None, "127.0.0.1"))
        self._nursery.start_soon(self._wait)
        return self.claimed

    async def _wait(self) -> None:
        assert self.claimed is not None
        try:
            self.answer = await self.claimed.wait_answer()
        except Refusal as refused:
            self.answer = refused
        self.answered.set()

    async def outcome(self) -> IssuedSession | Refusal | None:
        """What the console was answered."""
        with trio.fail_after(20):
            await self.answered.wait()
        return self.answer


@asynccontextmanager
async def host(home: Path) -> AsyncIterator[Host]:
    clock = MovedClock()
    make_private_dir(home)
    write_private(home / "private-key.pem", key("engine").pem())  # one key for all: making one takes a while
    async with open_engine(home, Settings, clock) as engine, trio.open_nursery() as nursery:
        told = {"url": "http://127.0.0.1:7420"}
        operator_socket = OperatorSocket(engine, lambda: told, lambda: None, engine.reload, added_addresses())
        await nursery.start(operator_socket.serve)
        yield Host(engine, clock, nursery)
        nursery.cancel_scope.cancel()


def signed_in(engine: Engine) -> int:
    return sum(actor.state == "active" for actor in engine.runtime.actors("session"))


async def test_no_lifetime_is_told_that_no_session_reaches(home: Path) -> None:
    """Where sessions may last half an hour, that is what an hour comes to."""
    async with host(home) as at:
        at.engine.settings = msgspec.structs.replace(at.engine.settings, session_max_age=SessionMaxAge(pairing=1800))
        async with terminal("engine", "pair", "--lifetime", "1h", home=home) as screen:
            await screen.wait_for("Lifetime      30m, renewed while used, 30m at most")


async def test_yes_signs_the_console_in(home: Path) -> None:
    """Code, permissions and lifetime first; then address, agent, number, question; `y` approves and exits with 0."""
    async with (
        host(home) as at,
        terminal("engine", "pair", "--permissions", "SHELL,RUNTIME:READ", "--lifetime", "2h", home=home) as screen,
    ):
        claim = await at.claim(screen)
        assert "Permissions   SHELL, RUNTIME:READ\n" in screen.text
        assert "Lifetime      2h, renewed while used, 24h at most\n" in screen.text
        code = screen.text.split("Pairing code  ")[1].split("\n")[0]
        assert f"Console       http://127.0.0.1:7420/#pair={code}\n" in screen.text
        await screen.wait_for(PROMPT)
        assert "Claimed from  127.0.0.1 (this host or a tunnel)\n" in screen.text
        assert f'User agent    "{AGENT.decode()}"\n' in screen.text
        assert f"Number        {at.engine.runtime.peek('pairing', claim.id).facts.match}," in screen.text  # type: ignore[union-attr]
        screen.type(b"y\n")
        assert await screen.wait_end() == 0
        answer = await at.outcome()
        assert isinstance(answer, IssuedSession)
        assert answer.permissions == ("SHELL", "RUNTIME:READ")
        assert screen.text.endswith("approved: the console is signed in\n")


@pytest.mark.parametrize("keys", [b"Y\n", b"yes\n", b"YES\n"])
async def test_other_spellings_of_yes(home: Path, keys: bytes) -> None:
    """D26: `y` and `yes`, in either case."""
    async with host(home) as at, terminal("engine", "pair", home=home) as screen:
        await at.claim(screen)
        await screen.wait_for(PROMPT)
        screen.type(keys)
        assert await screen.wait_end() == 0


@pytest.mark.parametrize("keys", [b"\n", b"n\n", b" y\n", b"yn\n", b"ye\n", b"y y\n", b"\x04", b"y\x04", b"\xff\n"])
async def test_all_else_is_a_no(home: Path, keys: bytes) -> None:
    """D26: Enter, anything but the two words, and end of file reject; the console gets the one 401."""
    async with host(home) as at, terminal("engine", "pair", home=home) as screen:
        await at.claim(screen)
        await screen.wait_for(PROMPT)
        screen.type(keys)
        assert await screen.wait_end() == 1
        assert isinstance(await at.outcome(), PairingCodeRefused)
        assert "rejected" in screen.text
        assert signed_in(at.engine) == 0


async def test_what_was_typed_before_the_question_is_no_answer(home: Path) -> None:
    """D26: a `y` typed before the claim does not approve; one typed after the question does."""
    async with host(home) as at, terminal("engine", "pair", home=home) as screen:
        await screen.wait_for("Waiting for a console")
        screen.type(b"y\nyes\ny")
        await trio.sleep(0.1)
        await at.claim(screen)
        await screen.wait_for(PROMPT)
        await trio.sleep(0.3)
        assert screen.process.poll() is None
        assert not at.answered.is_set()
        screen.type(b"y\n")
        assert await screen.wait_end() == 0


async def test_a_late_yes_is_too_late(home: Path) -> None:
    """Section 3.1: a `y` at or after 30 s prints `pairing expired on approval`, exits with 1, and makes no session."""
    async with host(home) as at, terminal("engine", "pair", home=home) as screen:
        await at.claim(screen)
        await screen.wait_for(PROMPT)
        at.clock.elapsed_ahead += 30
        screen.type(b"y\n")
        assert await screen.wait_end() == 1
        assert screen.text.endswith("pairing expired on approval\n")
        assert isinstance(await at.outcome(), PairingExpired)
        assert signed_in(at.engine) == 0


async def test_an_unanswered_question_ends_by_itself(home: Path) -> None:
    """The decision window ends the command too, and what is typed afterwards is not left for the shell."""
    async with host(home) as at, terminal("engine", "pair", home=home) as screen:
        await at.claim(screen)
        await screen.wait_for(PROMPT)
        screen.type(b"y")
        at.clock.elapsed_ahead += 30
        assert await screen.wait_end() == 1
        assert screen.text.endswith("\npairing expired on approval\n")


async def test_an_unclaimed_code_expires(home: Path) -> None:
    """30 s without a claim: the terminal says so, exit code 1, and the code is consumed."""
    async with host(home) as at, terminal("engine", "pair", home=home) as screen:
        await screen.wait_for("Waiting for a console: 30 s")
        assert re.findall(r"console: (\d+) s", screen.text)[0] == "30"
        at.clock.elapsed_ahead += 30
        assert await screen.wait_end() == 1
        assert "expired" in screen.text.splitlines()[-1]
        assert len(at.engine.pairings) == 0


async def test_ctrl_c_withdraws(home: Path) -> None:
    """Ctrl-C takes the code back, before and after the claim."""
    for claimed in (False, True):
        async with host(home) as at, terminal("engine", "pair", home=home) as screen:
            await screen.wait_for("Waiting for a console")
            if claimed:
                await at.claim(screen)
                await screen.wait_for(PROMPT)
            screen.type(b"\x03")
            assert await screen.wait_end() == 1
            assert screen.text.endswith("withdrawn\n")
            if claimed:
                assert isinstance(await at.outcome(), PairingCodeRefused)
            await gone(at)


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM, signal.SIGHUP])
async def test_a_killed_command_withdraws(home: Path, end: signal.Signals) -> None:
    """kill -9, a plain kill and a lost terminal take the code back as well."""
    async with host(home) as at, terminal("engine", "pair", home=home) as screen:
        await at.claim(screen)
        await screen.wait_for(PROMPT)
        screen.process.send_signal(end)
        assert isinstance(await at.outcome(), PairingCodeRefused)
        await gone(at)
        assert signed_in(at.engine) == 0


async def gone(at: Host) -> None:
    """No code is out any more."""
    with trio.fail_after(20):
        while len(at.engine.pairings):
            await trio.sleep(0.01)


async def test_a_console_that_hangs_up_is_told(home: Path) -> None:
    """The terminal says that the console has gone, exits with 1, and a `y` then makes no session."""
    async with host(home) as at, terminal("engine", "pair", home=home) as screen:
        claim = await at.claim(screen)
        await screen.wait_for(PROMPT)
        await at.engine.pairings.leave(claim)
        screen.type(b"y\n")
        assert await screen.wait_end() == 1
        assert signed_in(at.engine) == 0


@pytest.mark.vectors
async def test_d27_no_agent_moves_the_terminal(home: Path) -> None:
    """D27: whatever the user agent is, the screen gets printable ASCII and the same address line."""
    cases = json.loads((vectors() / "own" / "user_agents.json").read_text())["cases"]
    agents = [
        bytes.fromhex(case.get("hex", "")) or bytes.fromhex(case["hex_repeat"][0]) * case["hex_repeat"][1]
        for case in cases
        if case.get("hex") or case.get("hex_repeat")
    ]
    async with host(home) as at:
        for agent in agents:
            async with terminal("engine", "pair", home=home) as screen:
                await at.claim(screen, agent)
                await screen.wait_for(PROMPT)
                assert set(screen.shown) <= {*range(0x20, 0x7F), 0x0A, 0x0D}
                lines = screen.text.splitlines()
                shown = next(line for line in lines if line.startswith("User agent"))
                assert len(shown) <= len('User agent    ""') + 200
                assert lines[lines.index(shown) - 1].endswith("Claimed from  127.0.0.1 (this host or a tunnel)")
                screen.type(b"n\n")
                await screen.wait_end()


async def test_a_forwarded_address_is_shown_as_such(home: Path) -> None:
    """What a proxy says stands beside the peer, never in its place."""
    async with host(home) as at, terminal("engine", "pair", home=home) as screen:
        await at.claim(screen, forwarded="192.0.2.7")
        await screen.wait_for(PROMPT)
        assert "127.0.0.1 (this host or a tunnel), forwarded for 192.0.2.7 as that proxy says\n" in screen.text


async def test_wrong_codes_are_told(home: Path) -> None:
    """Guesses made while the code is out show on its terminal, and the fiftieth withdraws it."""
    async with host(home) as at, terminal("engine", "pair", home=home) as screen:
        await screen.wait_for("Waiting for a console")
        for number in range(50):
            if number == 1:
                await screen.wait_for("1 wrong code has been tried")
            with pytest.raises(PairingCodeRefused):
                await at.engine.pairings.claim(
                    f"0000{number:04d}",
                    Claimant(f"127.0.0.{number}", None, b""),
                    Origin(None, f"127.0.0.{number}"),
                )
        assert await screen.wait_end() == 1
        assert "50 wrong codes have been tried" in screen.text


@pytest.mark.parametrize("options", [(), ("--json",)])
async def test_without_a_terminal_there_is_no_code(home: Path, options: tuple[str, ...]) -> None:
    """Where nobody could approve, no code is issued and none is shown: it is refused before, and says what to do."""
    async with host(home) as at:
        with trio.fail_after(60):
            done = await trio.run_process(
                [*HATCHWAY, "engine", "pair", *options],
                cwd=ROOT,
                env={**os.environ, "HATCHWAY_HOME": str(home)},
                stdin=b"y\n" * 10,
                capture_stdout=True,
                capture_stderr=True,
                check=False,
                start_new_session=True,  # and so without the terminal that the tests may be run from
            )
        assert done.returncode == 1
        assert done.stdout == b""
        assert b"there is no terminal to approve a code at\n" in done.stderr
        assert b"ssh -t" in done.stderr
        assert not list(at.engine.runtime.actors("pairing"))
        assert b'"chart":"pairing"' not in (home / "log/events.jsonl").read_bytes()


@pytest.mark.parametrize(
    "redirected",
    [
        'yes | "$@"',
        '"$@" </dev/null 2>/dev/null',
        '"$@" </dev/null >"$HATCHWAY_HOME/out" 2>&1',
        'exec setsid --wait "$@" </dev/null',  # no controlling terminal: standard output is it
        'exec setsid --wait "$@" 2>/dev/null',
    ],
)
async def test_the_terminal_that_is_open_is_asked(home: Path, redirected: str) -> None:
    """Whatever input and output are, the terminal is asked and answers, and a `y` from a pipe is no answer."""
    program = ["/bin/sh", "-c", redirected, "sh", *HATCHWAY]
    async with host(home) as at, terminal("engine", "pair", home=home, program=program) as screen:
        await at.claim(screen, shown=home / "out" if "/out" in redirected else None)
        await screen.wait_for(PROMPT)
        await trio.sleep(0.2)
        assert at.answer is None
        screen.type(b"y\n")
        assert isinstance(await at.outcome(), IssuedSession)
        await screen.wait_end()


async def test_a_long_folder_is_reached(tmp_path: Path) -> None:
    """A socket path over 107 bytes is opened through its folder."""
    home = tmp_path / ("deep" * 30)
    async with host(home) as at, terminal("engine", "pair", home=home) as screen:
        await at.claim(screen)
        await screen.wait_for(PROMPT)


async def test_the_engine_gone_is_told(home: Path) -> None:
    """An engine that ends takes its codes along; the terminal says so."""
    async with host(home) as at, terminal("engine", "pair", home=home) as screen:
        await screen.wait_for("Waiting for a console")
        at._nursery.cancel_scope.cancel()
        assert await screen.wait_end() == 1
        assert "hung up" in screen.text


async def test_qr(home: Path) -> None:
    """`--qr` draws the console's address, for a phone."""
    async with host(home), terminal("engine", "pair", "--qr", home=home) as screen:
        await screen.wait_for("Waiting for a console")
        assert screen.text.count("\u2580") > 50


AS_YOU_CAME = ", with HOST and all else as you came here"


@pytest.mark.parametrize(
    ("connection", "console", "hint"),
    [
        ("192.0.2.1 5 192.0.2.2 22", "http://127.0.0.1:7420/", "ssh -L 7420:127.0.0.1:7420 me@192.0.2.2"),
        ("192.0.2.1 5 192.0.2.2 2222", "http://[::1]:80/", "ssh -L 80:[::1]:80 -p 2222 me@192.0.2.2"),
        ("198.51.100.7 5 2001:db8::5 22", "http://127.0.0.1:7420/", "ssh -L 7420:127.0.0.1:7420 me@2001:db8::5"),
        *(
            (f"10.0.0.1 5 {inner} 2222", "http://127.0.0.1:7420/", "ssh -L 7420:127.0.0.1:7420 HOST" + AS_YOU_CAME)
            for inner in ("10.0.0.5", "172.31.0.5", "192.168.1.5", "100.64.0.5", "fd00::5", "fe80::5%eth0")
        ),
        ("", "http://127.0.0.1:7420/", None),
        ("garbage", "http://127.0.0.1:7420/", None),
    ],
)
def test_under_ssh_the_tunnel_is_told(connection: str, console: str, hint: str | None) -> None:
    """The line that brings the console to the operator's own machine; an address that a jump host knows, and nobody
    outside, is not named in it."""
    assert ssh_hint(console, {"SSH_CONNECTION": connection, "USER": "me"}) == hint

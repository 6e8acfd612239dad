"""The command against a real engine: signing in, staying so, and what is printed where that can't be."""

from __future__ import annotations

import json
import re
import stat
from pathlib import Path

import msgspec
import pytest
import trio

from hatchway.api.cli.host import load_stored, store_token
from hatchway.api.client import AsyncClient
from hatchway.engine.base.errors import FileRefused, TokenRefused
from hatchway.engine.base.permissions import FIVE
from hatchway.engine.runtime.records import NOBODY
from tests.support.fakes import key, key_file
from tests.support.false_engine import answer, false_engine, nonce
from tests.support.live_engine import Live, command, live_engine, told
from tests.support.terminal import terminal

pytestmark = pytest.mark.process

RECIPE = b"401 Unauthorized; take a fresh token:\n  hatchway config unset connection-token\n  hatchway engine ping\n"


@pytest.fixture
def away(tmp_path: Path) -> Path:
    """The folder of a command on another machine, with the key `one` beside it."""
    key_file(tmp_path / "one.pem")
    return tmp_path / "away"


async def test_ping_signs_in_with_the_engines_own_key(home: Path) -> None:
    """Contract 4.6: ping signs in and stores the token; the next one uses it; unset, it takes a fresh one."""
    async with live_engine(home) as at:
        first = await told(home, "engine", "ping")
        assert (first["identity"], first["permissions"], first["url"]) == (key("engine").identity, ["MASTER"], at.url)
        assert stat.S_IMODE((home / "connection-token").stat().st_mode) == 0o600
        assert (await told(home, "engine", "ping"))["session"] == first["session"]
        await command(home, "config", "unset", "connection-token")
        assert (await told(home, "engine", "ping"))["session"] != first["session"]


async def test_ping_says_what_its_time_holds(home: Path) -> None:
    """The first answer's time is the sign-in's too; on the host a signed-out command is told who it is next."""
    async with live_engine(home) as at:
        first, second = [(await command(home, "engine", "ping")).stdout.decode().splitlines()[0] for _ in range(2)]
        assert first.endswith(" ms, a sign-in or renewal included")
        assert second.endswith(" ms")
        done = await command(home, "logout")
        assert done.stdout.decode() == f"signed out of {at.url}\n"
        assert done.stderr == b"on this host the next command signs in with the engine's own key\n"


@pytest.mark.parametrize("columns", ["80", "300"])
async def test_a_terminal_that_is_too_narrow_gets_paragraphs(home: Path, columns: str) -> None:
    """The table of sessions is wide: where its lines would be broken, each session is told fact by fact."""
    async with live_engine(home):
        session = (await told(home, "engine", "ping"))["session"]
        async with terminal("session", "list", home=home, COLUMNS=columns, NO_COLOR="1") as screen:
            assert await screen.wait_end() == 0
        lines = screen.text.splitlines()
        assert all(len(line) <= int(columns) for line in lines)
        if columns == "300":
            assert [lines[0][:7], lines[1].split()[:2]] == ["SESSION", [session, "key"]]
        else:
            assert lines[0] == session
            assert ["method", "key"] in [line.split() for line in lines]
            assert any(line.split()[-2:] == ["this", "one"] for line in lines)


async def test_a_dead_token_heals_itself(home: Path) -> None:
    """A stored token that has ended is replaced with the configured key, once, without a word."""
    async with live_engine(home) as at:
        first = await told(home, "engine", "ping")
        await at.engine.sessions.end_all_of({key("engine").identity})
        done = await command(home, "session", "list", "--json")
        assert done.stderr == b""
        (row,) = json.loads(done.stdout)
        assert row["session"] != first["session"]


async def test_login_elsewhere_and_logout(home: Path, away: Path) -> None:
    """A key, an address and a lifetime sign in from another machine; later commands go there; logout ends it all."""
    async with live_engine(home) as at:
        pem = str(away.parent / "one.pem")
        signed_in = await told(away, "login", "--url", at.url, "--key", pem, "--lifetime", "2h")
        assert signed_in["permissions"] == list(FIVE)
        stored = load_stored(away)
        assert stored is not None
        assert (stored.lifetime, stored.key, stored.url) == (7200, pem, at.url)
        assert (await told(away, "session", "list"))[0]["identity"] == key().identity
        for here in (("--url", at.url, "engine", "ping"), ("engine", "ping", "--url", at.url)):
            assert (await told(away, *here))["url"] == at.url
        elsewhere = "http://127.0.0.1:1"
        for there in (("--url", elsewhere, "session", "list"), ("session", "list", "--url", elsewhere)):
            assert b"no key to sign in with" in (await command(away, *there, code=1)).stderr
        for wrong in (("--url", at.url, "engine", "ping", "--url", elsewhere), ("engine", "ping", "--url", "")):
            assert b"Invalid value for '--url'" in (await command(away, *wrong, code=2)).stderr
        refused = await command(away, "--url", elsewhere, "logout", code=1)
        assert refused.stderr.decode() == f"not signed in to {elsewhere}: the token that is stored is of {at.url}\n"
        await at.engine.sessions.end_all_of({key().identity})
        assert (await told(away, "engine", "ping"))["identity"] == key().identity
        stored = load_stored(away)
        assert stored is not None
        done = await command(away, "logout")
        assert (done.stdout.decode(), done.stderr) == (f"signed out of {at.url}\n", b"")
        assert load_stored(away) is None
        with pytest.raises(TokenRefused):
            at.engine.sessions.authenticate(stored.token)
        store_token(away, msgspec.structs.replace(stored, url=elsewhere))
        gone = await command(away, "logout", code=1)
        assert gone.stderr.endswith(b"or forget the token all the same: hatchway config unset connection-token\n")
        await command(away, "config", "unset", "connection-token")
        assert (await command(away, "logout")).stderr == b"not signed in\n"


async def test_pair_from_elsewhere(home: Path, away: Path) -> None:
    """Two real commands: the code printed on the host, typed elsewhere in any spelling, approved at the terminal."""
    async with live_engine(home) as at, terminal("engine", "pair", "--permissions", "AGENT", home=home) as screen:
        await screen.wait_for("Waiting for a console")
        code = screen.text.split("Pairing code  ")[1].split("\n")[0]
        typed = f"{code[:4].lower()}-{code[4:]}"
        async with terminal("pair", typed, "--url", at.url, home=away) as other:
            await other.wait_for("The number there must be ")
            number = other.text.split("must be ")[1][:2]
            await screen.wait_for(f"Number        {number},")
            await screen.wait_for("Approve? [y/N] ")
            screen.type(b"y\n")
            assert await screen.wait_end() == 0
            assert await other.wait_end() == 0
        assert 'User agent    "hatchway (Linux)"' in screen.text
        assert (await told(away, "engine", "ping"))["permissions"] == ["AGENT"]
        await at.engine.sessions.end_all_of({row.facts.identity for row in at.engine.runtime.actors("session")})
        done = await command(away, "engine", "ping", code=1)
        assert done.stderr.endswith(RECIPE)
        assert done.stderr.startswith(b"sign in again: the session token is missing, expired or no longer valid\n")


async def test_a_wrong_code_is_told_verbatim(home: Path, away: Path) -> None:
    """Section 3.1, rule 2: the message is `invalid pairing code`, the exit code 1, and nothing is stored."""
    async with live_engine(home) as at:
        done = await command(away, "pair", "--url", at.url, code=1, typed=b"00000000\n")
        assert done.stderr == b"invalid pairing code\n"
        assert load_stored(away) is None


async def test_a_key_that_is_not_registered(home: Path, away: Path) -> None:
    """The engine's detail, and where to look."""
    key_file(away.parent / "two.pem", key("two").pem())
    async with live_engine(home) as at:
        done = await command(away, "login", "--url", at.url, "--key", str(away.parent / "two.pem"), code=1)
        assert b"does not verify" in done.stderr
        assert b"hatchway key list" in done.stderr


@pytest.mark.parametrize(("ahead", "words"), [(95.0, "95 s behind"), (-95.0, "95 s ahead"), (20.0, None)])
async def test_a_wrong_clock_is_named(home: Path, away: Path, ahead: float, words: str | None) -> None:
    """Section 5, rule 2: past 30 s a 401 says by how much this machine's clock is wrong."""
    key_file(away.parent / "two.pem", key("two").pem())
    async with live_engine(home, wall_ahead=ahead) as at:
        done = await command(away, "login", "--url", at.url, "--key", str(away.parent / "two.pem"), code=1)
        said = done.stderr.decode()
        assert ("this machine's clock is" in said) == (words is not None)
        # The header tells whole seconds, and on a busy machine some may pass on the way.
        assert words is None or any(words.replace("95", str(n)) in said for n in range(85, 106))


async def test_what_is_left_is_told_by_the_engines_clock(home: Path, away: Path) -> None:
    """A session of an hour has an hour left, however wrong this machine's clock is; and it was used just now."""
    async with live_engine(home, wall_ahead=86_400.0) as at:
        flags = ("--url", at.url, "--key", str(away.parent / "one.pem"))
        for asked in (("login", *flags), ("engine", "ping"), ("session", "list")):
            said = (await command(away, *asked, HATCHWAY_URL=at.url)).stdout.decode()
            assert re.search(r"\b59m \d+s|\b1h\b", said), said
        assert re.search(r"\b\d+s ago", said), said


async def test_d12_the_command_signs_nothing_for_a_stranger(away: Path) -> None:
    """D12: a false engine that hands on the real one's nonce gets no signature, and the exit code is not 0."""
    body = json.dumps({"identity": "x", "nonce": nonce("127.0.0.1:7420"), "lifetime": "1m0s"}).encode()
    with false_engine(lambda _: answer(200, body)) as (url, requests):
        done = await command(away, "login", "--url", url, "--key", str(away.parent / "one.pem"), code=1)
    assert b"refused to sign" in done.stderr
    assert len(requests) == 1
    assert load_stored(away) is None


async def test_the_stored_token_goes_nowhere_else(home: Path, away: Path) -> None:
    """Another address, set or given, never sees the token of this one."""
    async with live_engine(home) as at:
        await command(away, "login", "--url", at.url, "--key", str(away.parent / "one.pem"))
        with false_engine(lambda _: answer(404, b"")) as (url, requests):
            await command(away, "engine", "ping", code=1, HATCHWAY_URL=url)
        assert all(b"authorization" not in request.lower() for request in requests)


async def test_revoking(home: Path) -> None:
    """By id, by key and all; ours last, so that the others are ended by it."""
    async with live_engine(home) as at:
        for _ in range(2):
            await at.engine.sessions.start("key", key().identity, FIVE, 600, proof="signature", origin=NOBODY)
        rows = await told(home, "session", "list")
        assert [row["identity"] for row in rows].count(key().identity) == 2
        other = next(row["session"] for row in rows if row["identity"] == key().identity)
        assert (await command(home, "session", "revoke", other)).stdout.decode() == f"revoked {other}\n"
        at.engine.keys.register(key().public, comment="one")
        at.engine.keys.register(key("two").public, comment="one")
        await at.engine.sessions.start("key", key("two").identity, FIVE, 600, proof="signature", origin=NOBODY)
        twice = await command(home, "session", "revoke", "--key", "one", code=2)
        assert key("two").identity in twice.stderr.decode()
        await command(home, "session", "revoke", "--key", key("two").identity[:20])
        await command(home, "session", "revoke", "--key", "one")
        assert {row["identity"] for row in await told(home, "session", "list")} == {key("engine").identity}
        await command(home, "session", "revoke", "--key", key().identity, code=1)
        await at.engine.sessions.start("key", key().identity, FIVE, 600, proof="signature", origin=NOBODY)
        name = next(row["session"] for row in await told(home, "session", "list") if row["identity"] == key().identity)
        done = await command(home, "session", "revoke", "nothing", name, "neither", code=1)
        assert done.stdout.decode() == f"revoked {name}\n"
        assert done.stderr.decode().startswith("no such session: nothing, neither\n")
        await at.engine.sessions.start("key", key().identity, FIVE, 600, proof="signature", origin=NOBODY)
        await command(home, "session", "revoke", "--all")
        assert live(at) == 0


def live(at: Live) -> int:
    return sum(actor.state == "active" for actor in at.engine.runtime.actors("session"))


async def test_unregistering_ends_sessions_at_once(home: Path) -> None:
    """The command tells the running engine, and says how many sessions ended."""
    async with live_engine(home) as at:
        await at.engine.sessions.start("key", key().identity, FIVE, 600, proof="signature", origin=NOBODY)
        done = await told(home, "key", "unregister", "one")
        assert done == {"identity": key().identity, "sessions_ended": 1}
        assert live(at) == 0


async def test_unregistering_without_an_engine_ends_sessions_in_the_store(home: Path) -> None:
    """Registered again before the next start, the key does not bring its old sessions back."""
    async with live_engine(home) as at:
        token = (await at.engine.sessions.start("key", key().identity, FIVE, 600, proof="signature", origin=NOBODY))[0]
    assert (await told(home, "key", "unregister", "one"))["sessions_ended"] == 1
    async with live_engine(home) as at:
        with pytest.raises(TokenRefused):
            at.engine.sessions.authenticate(token)


async def test_rotating_the_engines_key(home: Path) -> None:
    """A new key with MASTER, the old one gone with its sessions; the running engine and the command go on with it."""
    async with live_engine(home) as at:
        before = await told(home, "engine", "ping")
        rotated = await told(home, "key", "rotate-engine")
        assert (rotated["old"], rotated["sessions_ended"]) == (before["identity"], 1)
        rows = {row["identity"]: row["permissions"] for row in await told(home, "key", "list")}
        assert rows == {rotated["identity"]: ["MASTER"], key().identity: list(FIVE)}
        assert (await told(home, "engine", "ping"))["identity"] == rotated["identity"] == at.engine.own_key.identity


async def test_rotating_the_token_key(home: Path) -> None:
    """New tokens are signed with the new key while the old ones stay good; a second rotation would end those."""
    async with live_engine(home) as at:
        session = (await told(home, "engine", "ping"))["session"]
        old = load_stored(home)
        await command(home, "key", "rotate-token")
        assert (await told(home, "engine", "ping"))["session"] == session
        fresh = await at.engine.sessions.start("key", key().identity, FIVE, 600, proof="signature", origin=NOBODY)
        assert old is not None
        assert old.token.split(".")[0] != fresh.token.split(".")[0]
        assert b"--force" in (await command(home, "key", "rotate-token", code=1)).stderr
        assert b"verifies none any more" in (await command(home, "key", "rotate-token", "--force")).stdout
        with pytest.raises(TokenRefused):
            at.engine.sessions.authenticate(old.token)
        assert at.engine.sessions.authenticate(fresh.token)


async def test_a_passphrase_is_asked_for_at_the_terminal(home: Path, away: Path) -> None:
    """An encrypted key is asked for without echo; without a terminal it is refused with its reason."""
    from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, PrivateFormat

    locked = away.parent / "locked.pem"
    key_file(
        locked, key().key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"open sesame"))
    )
    async with live_engine(home) as at:
        login = ("login", "--url", at.url, "--key", str(locked))
        async with terminal(*login, home=away) as screen:
            await screen.wait_for("Passphrase of")
            await trio.sleep(0.1)
            screen.type(b"open sesame\n")
            assert await screen.wait_end() == 0
            assert "sesame" not in screen.text
        assert b"passphrase" in (await command(away, *login, code=1)).stderr


@pytest.mark.parametrize("mode", [0o666, 0o644, 0o640, 0o604, 0o620, 0o602])
async def test_a_private_key_open_to_others_signs_nothing(home: Path, away: Path, mode: int) -> None:
    """E11: a key that others may read or write is refused with the command that mends it; the Python client does so
    too, before anything is sent. A public key given for it is told as what it is, whatever its mode."""
    path = away.parent / "one.pem"
    path.chmod(mode)
    async with live_engine(home) as at:
        done = await command(away, "login", "--url", at.url, "--key", str(path), code=1)
        assert f"open to other users (mode {mode:04o}); mend it with: chmod 600 {path}\n" in done.stderr.decode()
        async with AsyncClient(at.url, key=path) as client:
            with pytest.raises(FileRefused, match="chmod 600"):
                await client.sign_in()
        path.chmod(0o400)
        await command(away, "login", "--url", at.url, "--key", str(path))
        public = away.parent / "one.pub"
        public.write_bytes(key().public.pem())
        public.chmod(mode)
        assert b"public key" in (await command(away, "login", "--url", at.url, "--key", str(public), code=1)).stderr


async def test_the_code_is_taken_where_nobody_sees_it(home: Path, away: Path) -> None:
    """E11: the code, or the link printed with it, comes from a prompt or from standard input; as an argument it works
    too, with a warning."""
    async with live_engine(home) as at, terminal("engine", "pair", home=home) as screen:
        await screen.wait_for("Waiting for a console")
        link = screen.text.split("Console       ")[1].split("\n")[0]
        assert link.startswith(f"{at.url}/#pair=")
        async with terminal("pair", home=away) as other:
            await other.wait_for("Pairing code: ")
            other.type(link.encode() + b"\n")
            await screen.wait_for("Approve? [y/N] ")
            screen.type(b"y\n")
            assert await other.wait_end() == 0
        stored = load_stored(away)
        assert stored is not None
        assert stored.url == at.url
    async with live_engine(home) as at:
        for given, typed, warned in (
            (["00000000", "--url", at.url], b"", True),
            ([f"{at.url}/#pair=00000000"], b"", True),
            ([], f"{at.url}/#pair=0000-0000\n".encode(), False),
            (["-", "--url", at.url], b" 00000000 \n", False),
        ):
            done = await command(away, "pair", *given, code=1, typed=typed)
            *warning, last = done.stderr.splitlines()
            assert last == b"invalid pairing code"
            assert (b"list of processes" in b"".join(warning)) == warned
        for given, typed in (([], b""), ([f"{at.url}/"], b""), (["http://[/#pair=00000000"], b"")):
            assert b"Usage" in (await command(away, "pair", *given, code=2, typed=typed)).stderr

"""Sessions that people can tell apart: a label, what asked for them, and when they were used last."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hatchway.engine.access.devices import LONGEST_AGENT, device_of
from hatchway.engine.base.errors import InvalidRequest
from hatchway.engine.engine import Engine
from tests.support.fakes import Browser, jump, key, key_file, sign_in, signed, watch_of
from tests.support.live_engine import command, live_engine, told

AGENTS = {
    "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0": "Firefox on Linux",
    "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/140.0.0.0 Safari/537.36": (
        "Chrome on Windows"
    ),
    "Mozilla/5.0 (Windows NT 10.0) AppleWebKit/537.36 Chrome/140.0.0.0 Safari/537.36 Edg/140.0.0.0": "Edge on Windows",
    "Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/605.1.15 Version/18.0 Safari/605.1.15": (
        "Safari on macOS"
    ),
    "Mozilla/5.0 (iPhone; CPU iPhone OS 18_0 like Mac OS X) AppleWebKit/605.1.15 Version/18.0 Safari/604.1": (
        "Safari on iOS"
    ),
    "Mozilla/5.0 (Linux; Android 15) AppleWebKit/537.36 Chrome/140.0.0.0 Mobile Safari/537.36": "Chrome on Android",
    "hatchway (Linux)": "hatchway on Linux",
    "hatchway (Darwin)": "hatchway on macOS",
    "curl/8.5.0": "curl",
    "python-httpx/0.28.1": "python-httpx",
    "": "",
    "\x1b[2J": "",
}


@pytest.mark.parametrize("agent", AGENTS, ids=AGENTS.values())
def test_a_session_is_called_by_its_program_and_system(agent: str) -> None:
    """Where nobody gives it a label."""
    assert device_of(None, agent.encode()).label == AGENTS[agent]


@given(st.binary(max_size=500), st.none() | st.text(max_size=80))
def test_whatever_is_sent_is_kept_short_and_printable(agent: bytes, label: str | None) -> None:
    """A label that is not is refused; a User-Agent is cut, and all but ASCII in it replaced."""
    try:
        device = device_of(label, agent)
    except InvalidRequest:
        assert label is not None
        assert not label.strip() or not label.isprintable() or len(label) > 64
        return
    assert label is None or device.label == label
    assert len(device.agent) <= LONGEST_AGENT
    assert device.agent.isascii()
    assert device.agent.isprintable()


@pytest.mark.virtual_time
async def test_the_list_tells_sessions_apart(browser: Browser, engine: Engine) -> None:
    """Label, program, last use and key's comment of each; the record of its beginning has the label."""
    nonce = (await browser.get("/api/auth/challenge/")).json()["nonce"]
    agent = {"user-agent": "Mozilla/5.0 (X11; Linux x86_64) Firefox/140.0"}
    first = (await browser.post("/api/auth/verify/", signed(nonce, key()), headers=agent)).json()
    await jump(1)
    labelled = await sign_in(browser, label="the big screen")
    await jump(100)
    assert (await browser.get("/api/auth/inspect/", token=labelled["token"])).status == 200
    await jump(50)
    engine.keys.register(key().public, comment="big screen's key")
    rows = (await browser.get("/api/auth/sessions/", token=first["token"])).json()["sessions"]
    began = rows[0]["started_at"]
    assert [(row["label"], row["agent"], row["used_at"] - began, row["comment"]) for row in rows] == [
        ("Firefox on Linux", agent["user-agent"], 151, "big screen's key"),
        ("the big screen", "", 101, "big screen's key"),
    ]
    records = [record for record in watch_of(engine).records if record.event == "start" and record.chart == "session"]
    assert [record.label for record in records] == ["Firefox on Linux", "the big screen"]


@pytest.mark.virtual_time
@pytest.mark.parametrize("label", ["", " ", "x" * 65, "a\nb", "\x1b[2J", 7])
async def test_a_label_that_is_none(browser: Browser, label: object) -> None:
    """422 that names the field; nobody is signed in."""
    nonce = (await browser.get("/api/auth/challenge/")).json()["nonce"]
    reply = await browser.post("/api/auth/verify/", signed(nonce, key()) | {"label": label})
    assert (reply.status, list(reply.json()["errors"])) == (422, ["label"])


@pytest.mark.process
async def test_the_command_gives_a_label(home: Path, tmp_path: Path) -> None:
    """`login --label`; without it the command and the system are the label."""
    pem = str(key_file(tmp_path / "one.pem"))
    async with live_engine(home) as at:
        for flags in (("--label", "big screen"), ()):
            await told(tmp_path / "away", "login", "--url", at.url, "--key", pem, *flags)
        rows = await told(tmp_path / "away", "session", "list")
        assert [row["label"] for row in rows] == ["big screen", "hatchway on Linux"]
        shown = (await command(tmp_path / "away", "session", "list")).stdout.decode()
        assert "LABEL" in shown
        assert "COMMENT" in shown
        assert "LAST USED" in shown
        assert "big screen" in shown
        assert "hatchway (Linux)" in shown
        assert re.search("session  start .* big screen$", (await command(home, "events")).stdout.decode(), re.MULTILINE)

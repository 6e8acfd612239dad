"""What README and handbook claim is what the code says: tests by name, messages word for word, limits to the figure."""

from __future__ import annotations

import ast
import re

import pytest

from hatchway.api.server import places
from hatchway.api.server.context import LEAST_RATE
from hatchway.engine.pairings.codes import ALPHABET, LENGTH
from hatchway.engine.pairings.pairings import OUT_AT_ONCE
from hatchway.engine.settings.settings import Limits, SessionMaxAge, Settings
from hatchway.statecharts import pairing, session
from tests.readme import CHAPTERS, README
from tests.support.fakes import ROOT

SECTIONS = dict(re.findall(r"^## (.*?)\n(.*?)(?=^## |\Z)", README.read_text(), re.DOTALL | re.MULTILINE))
CHAPTER = {topic: page.read_text() for topic, page in CHAPTERS.items()}
CLAIMS = {title: text for title, text in SECTIONS.items() if title not in ("Where to read on", "License")} | CHAPTER
TESTS = {path.name for path in (ROOT / "tests").rglob("test_*.py")}
NAMED = re.compile(r"`(test_\w+\.py)`")
KIB = 1024


@pytest.mark.parametrize("title", CLAIMS)
def test_every_claim_names_its_test(title: str) -> None:
    """Each section of the README and each chapter says which tests hold it to its word, and they are there."""
    named = set(NAMED.findall(CLAIMS[title]))
    assert named
    assert named <= TESTS


def test_every_promise_of_security_names_its_test() -> None:
    """There a chapter's tests are not enough: each line has its own."""
    promises = re.findall(r"^- .*$", CHAPTER["security"], re.MULTILINE)
    assert len(promises) >= 8
    assert all(NAMED.search(promise) for promise in promises)


def texts() -> list[str]:
    """Every text in the code as a program joins it, and the console's pages and scripts."""
    files = [path for package in ("api", "engine") for path in (ROOT / package).rglob("*.py")]
    nodes = (node for path in files for node in ast.walk(ast.parse(path.read_text())))
    said = [node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    return said + [path.read_text() for path in (ROOT / "api/console").glob("*.*") if path.suffix in (".js", ".html")]


def test_messages_are_the_programs() -> None:
    """Each message under troubleshooting is said by the code, but for what stands for an address, path or number."""
    messages = re.findall(r"^\| `([^`]+)`", CHAPTER["troubleshooting"], re.MULTILINE)
    assert len(messages) >= 7
    said = texts()
    for message in messages:
        for piece in re.split(r"\.\.\.|N s ahead", message):
            assert any(piece.strip() in text for text in said), message


def logged() -> set[str]:
    """The name of every line that the code logs: in `log.warning("name", ...)` and its like."""
    files = [path for package in ("api", "engine") for path in (ROOT / package).rglob("*.py")]
    calls = [node for path in files for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
    return {
        str(call.args[0].value)
        for call in calls
        if isinstance(call.func, ast.Attribute)
        and isinstance(call.func.value, ast.Name)
        and (call.func.value.id, call.func.attr)
        in {("log", level) for level in ("info", "warning", "error", "exception")}
        and isinstance(call.args[0], ast.Constant)
    }


def test_log_lines_are_the_programs() -> None:
    """Each line of the log that the operators' chapter explains is one that the code prints."""
    lines = re.findall(r"`(\w+)`", "".join(re.findall(r"^\| (`[a-z_]+`[^|]*)\|", CHAPTER["operators"], re.MULTILINE)))
    assert len(lines) >= 20
    assert set(lines) <= logged()


def test_limits_are_the_programs() -> None:
    """The table's figures are the constants and defaults that the engine runs with."""
    limits, ages, settings = Limits(), SessionMaxAge(), Settings()
    days, hours = ages.key // 86_400, ages.pairing // 3600
    rows = {
        "session lifetime": f"{session.SHORTEST_LIFETIME // 60} minute to {session.LONGEST_LIFETIME // 3600} hours; "
        f"{session.DEFAULT_LIFETIME // 3600} hour if none, or one out of range, is asked for",
        "renewals": f"while used, until {days} days after a sign-in by key, {hours} hours after one by code",
        "pairing code": f"{LENGTH} characters, {LENGTH * (len(ALPHABET).bit_length() - 1)} bits; "
        f"{pairing.CLAIM_WINDOW:.0f} s to be claimed, {pairing.DECISION_WINDOW:.0f} s to be answered, one use, "
        f"{OUT_AT_ONCE} out at once",
        "wrong codes": f"{limits.wrong_codes} a minute from one address (a /64 in IPv6); "
        f"{limits.wrong_codes_total} in all withdraw the codes that are out",
        "failed verifies": f"{limits.failed_verifies} a minute from one address; "
        "challenges and correct signatures have no limit",
        "headers, body": f"{limits.header_bytes // KIB} KiB in {limits.header_seconds} s; "
        f"{limits.body_bytes // KIB} KiB (instances {limits.instance_body_bytes // KIB} KiB) "
        f"in {limits.body_seconds} s",
        "connections": f"{settings.max_connections:,} at each worker process, as many again on sockets of this host; "
        f"idle ones end after {limits.idle_seconds} s, stuck ones after {limits.write_seconds} s",
        "when places are short": "the address that holds the most gives way: who never asked anything, "
        f"then who is idle; at most a {({4: 'quarter'})[places.SILENT_SHARE]} are silent",
        "kept for slow clients": f"{places.CONNECTION_BYTES // KIB**2} MiB a connection, "
        f"{places.HELD_BYTES // KIB**2} MiB in all; "
        f"who takes less than {LEAST_RATE} bytes a second of an answer is stuck",
    }
    assert dict(re.findall(r"^\| ([a-z ,]+) \| (.*) \|$", CHAPTER["limits"], re.MULTILINE)) == {
        "limit": "value",
        **rows,
    }

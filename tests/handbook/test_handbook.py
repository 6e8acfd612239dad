"""`hatchway help TOPIC`: the handbook's chapters, listed, shown and found."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from hatchway.api.cli import COMMANDS
from tests.readme import CHAPTERS, README
from tests.support.command import run
from tests.support.terminal import terminal

TOPICS = list(CHAPTERS)


def test_every_topic_is_listed_on_a_line() -> None:
    """`hatchway help` has a line for each chapter: the sentence below its title, which fits a terminal's line."""
    lines = run("help").output.splitlines()
    assert [line.split()[0] for line in lines] == TOPICS
    assert all(len(line) <= 80 and line.endswith(".") for line in lines), lines
    assert {"permissions", "fleet", "troubleshooting"} <= set(TOPICS)


@pytest.mark.parametrize("topic", TOPICS)
def test_a_chapter_is_shown(topic: str) -> None:
    """Its text, without the marks of what is generated, and with commands in place of links to other chapters."""
    text, shown = CHAPTERS[topic].read_text(), run("help", topic).output
    assert shown.splitlines()[:3] == text.splitlines()[:3]
    assert "<!--" not in shown
    assert ".md)" not in shown
    for linked in re.findall(r"\]\(([a-z-]+)\.md\)", text):
        assert linked in TOPICS
        assert f"`hatchway help {linked}`" in shown
    assert set(re.findall(r"hatchway help ([a-z-]+)", shown)) <= set(TOPICS)


@pytest.mark.parametrize("topic", TOPICS)
def test_the_readme_tells_what_a_chapter_is_about(topic: str) -> None:
    """In the chapter's own sentence."""
    assert (
        f"- [{topic}](api/handbook/{topic}.md): {CHAPTERS[topic].read_text().splitlines()[2]}\n" in README.read_text()
    )


@pytest.mark.parametrize(
    ("topic", "hint"),
    [
        ("troubelshooting", "Did you mean 'troubleshooting'?"),
        ("Fleet", "Did you mean 'fleet'?"),
        ("login", "`hatchway login --help` tells of the command."),
        ("../cli/__init__", "`hatchway help` lists the topics."),
        ("quite else", "`hatchway help` lists the topics."),
    ],
)
def test_an_unknown_topic(topic: str, hint: str) -> None:
    """Exit code 2, and the nearest topic, the command of that name, or where the topics are listed."""
    done = run("help", topic, code=2)
    assert f"No such topic '{topic}'. {hint}" in done.stderr


@pytest.mark.parametrize("words", ["one endpoint is a door", "a desk"])
def test_words_that_are_not_ours_are_found(words: str) -> None:
    """The search of the test below finds what it is for."""
    assert FOREIGN.search(words)


FOREIGN = re.compile(r"\b(doors?|desk|crew|colleagues?|issue \d+)\b", re.IGNORECASE)
"""Words of an engineer's sketch that a reader would not search for."""


@pytest.mark.parametrize("page", [README, *CHAPTERS.values()], ids=lambda page: page.stem)
def test_plain_words(page: Path) -> None:
    """README and handbook say endpoint and worker process; names of files and tests stand between back-ticks."""
    assert not FOREIGN.search(re.sub(r"`[^`\n]*`", "", page.read_text()))


async def test_a_terminal_gets_it_page_by_page(tmp_path: Path) -> None:
    """On a terminal the reader's pager shows a chapter; an unknown topic starts none."""
    pager = tmp_path / "pager"
    pager.write_text(f"#!/bin/sh\necho PAGED\nexec tee {tmp_path}/whole\n")
    pager.chmod(0o755)
    async with terminal("help", "files", home=tmp_path, PAGER=str(pager)) as screen:
        assert await screen.wait_end() == 0
    assert screen.text.startswith("PAGED\n# Files\n")
    assert "engine.db" in (tmp_path / "whole").read_text()
    async with terminal("help", "no-such", home=tmp_path, PAGER=str(pager)) as screen:
        assert await screen.wait_end() == 2
    assert "PAGED" not in screen.text


def test_the_commands_know_it() -> None:
    """It stands among the commands, in the help and in the manual page."""
    assert "help" in COMMANDS
    assert re.search(r"^  help +Show a chapter of the handbook", run("--help").output, re.MULTILINE)
    assert r"\fBhatchway help\fR" in run("man").output

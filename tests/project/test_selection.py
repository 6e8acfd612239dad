"""`python -m tests` with a selection runs that alone, and loads no more files than it must."""

from __future__ import annotations

import pytest

from tests import __main__ as runner


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """The commands that would have been run; each fails as pytest does where it finds no test."""
    commands: list[tuple[str, ...]] = []

    def run(*command: str) -> int:
        commands.append(command)
        return runner.NOTHING_COLLECTED if command[0] == "pytest" else 0

    monkeypatch.setattr(runner, "run", run)
    return commands


def test_without_a_selection_it_is_the_gate(ran: list[tuple[str, ...]]) -> None:
    """Format, lint and types come first; other options of pytest select nothing."""
    runner.main(["-q", "-m", "not browser"])
    assert [command[0] for command in ran] == ["ruff", "ruff", "mypy", "pytest"]
    assert ran[-1][1] == "-n"


@pytest.mark.parametrize("given", [["-k", "lifetimes"], ["-klifetimes"]])
def test_a_word_loads_the_files_that_name_it(ran: list[tuple[str, ...]], given: list[str]) -> None:
    """In their path, a test's name or a parameter: what else a file speaks of names no test."""
    assert runner.main(given) == runner.NOTHING_COLLECTED
    (command,) = ran
    assert command[: len(given) + 1] == ("pytest", *given)
    assert any(path.endswith("test_sessions.py") for path in command)
    assert not any(path.endswith("test_argv.py") for path in command)


def test_a_word_that_names_nothing_is_answered_at_once(
    ran: list[tuple[str, ...]], capsys: pytest.CaptureFixture[str]
) -> None:
    """No file is loaded in vain, and what to do about a computed name is said."""
    assert runner.main(["-k", "nothing" + "_is_called_so"]) == runner.NOTHING_COLLECTED
    assert ran == []
    assert "python -m pytest -k" in capsys.readouterr().out


def test_what_names_a_test_is_kept() -> None:
    """Its own name and its parameters, also those that a function of the file makes."""
    text = '''"""Of docstrings."""

from imports import (
    names,
)

def made():
    return ["apples"]

@parametrize("fruit", ["pears", *made()])
async def test_of_fruit(
    fruit: str,
) -> None:
    body = 1

    more = 2

AFTER = 3
'''
    kept = runner.text_of_names(text)
    assert all(word in kept for word in ("apples", "pears", "test_of_fruit", "AFTER"))
    assert not any(word in kept for word in ("docstrings", "imports", "names", "body", "more"))


@pytest.mark.parametrize("given", [["tests/base/test_words.py"], ["-q", "tests/base/test_words.py", "-k", "plural"]])
def test_a_place_is_taken_as_it_is(ran: list[tuple[str, ...]], given: list[str]) -> None:
    """A file or folder is pytest's to read."""
    runner.main(given)
    assert ran == [("pytest", *given)]


def test_what_is_told_apart_by_not_is_looked_for_everywhere() -> None:
    """`-k "not x"` means files without the word too."""
    assert runner.files_with("sessions and not renewal") is None
    assert runner.files_with("(lifetimes or windows)")

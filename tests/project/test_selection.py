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
def test_a_word_loads_the_files_that_hold_it(ran: list[tuple[str, ...]], given: list[str]) -> None:
    """And where no text holds what the word means, all of them: a parameter's name may be computed."""
    runner.main(given)
    first, second = ran
    assert first[: len(given) + 1] == ("pytest", *given)
    assert any(path.endswith("test_sessions.py") for path in first)
    assert not any(path.endswith("test_argv.py") for path in first)
    assert second == ("pytest", *given)


@pytest.mark.parametrize("given", [["tests/base/test_words.py"], ["-q", "tests/base/test_words.py", "-k", "plural"]])
def test_a_place_is_taken_as_it_is(ran: list[tuple[str, ...]], given: list[str]) -> None:
    """A file or folder is pytest's to read."""
    runner.main(given)
    assert ran == [("pytest", *given)]


def test_what_is_told_apart_by_not_is_looked_for_everywhere() -> None:
    """`-k "not x"` means files without the word too."""
    assert runner.files_with("sessions and not renewal") == []
    assert runner.files_with("(lifetimes or windows)")

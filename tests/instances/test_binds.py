"""What a container has bound is compared with what was asked: here this process stands for the container."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from hatchway.engine.instances.binds import CHANGED, MOST_LINKS, differs, moved

HERE = os.getpid()


@pytest.fixture(autouse=True)
def nothing_stays_open() -> Iterator[None]:
    """Each comparison closes what it has opened."""
    before = len(os.listdir("/proc/self/fd"))
    yield
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Two folders, and a file in the first."""
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    (tmp_path / "a" / "file").touch()
    return tmp_path


def test_a_source_is_there_and_behind_no_link(place: Path) -> None:
    """A folder, a file; else why it must not be bound: one that is absent, a link, or behind one, in any place."""
    a, file = str(place / "a"), str(place / "a" / "file")
    (place / "link").symlink_to("a")
    assert moved([]) == ""
    assert moved([(a, "/data", True), (file, "/file", False)]) == ""
    for wrong in (place / "absent", place / "link", place / "link" / "file"):
        assert moved([(a, "/data", True), (str(wrong), "/other", True)]) == CHANGED, wrong


def test_what_stands_at_the_destination_is_the_source(place: Path) -> None:
    """By device and inode, for each of them; a source or a destination that is gone is none."""
    a, b, file = str(place / "a"), str(place / "b"), str(place / "a" / "file")
    assert differs(HERE, iter([(a, a, True)])) == ""
    assert differs(HERE, iter([(a, b, True)])) == CHANGED
    assert differs(HERE, [(a, a, True), (file, file, True), (b, b, True)]) == ""
    for source, destination in ((a, b), (a, file), (b, str(place / "absent")), (str(place / "absent"), b)):
        assert differs(HERE, [(a, a, True), (source, destination, True)]) == CHANGED


def test_what_must_not_be_written_is_bound_so(place: Path) -> None:
    """A runtime that can't make a bind read-only goes on with one that may be written."""
    assert differs(HERE, [(str(place / "a"), str(place / "a"), False)]) == CHANGED


def test_a_process_that_is_gone_has_bound_nothing(place: Path) -> None:
    """The container ended before it could be looked at; where nothing was to be bound it isn't looked at."""
    child = os.fork()
    if not child:
        os._exit(0)
    os.waitpid(child, 0)
    assert differs(child, [(str(place / "a"), str(place / "a"), True)]) == CHANGED
    assert differs(child, []) == ""


@pytest.mark.parametrize(
    "target", ["a", "./a/.", "../{name}/a", "{place}/a", "/" + "../" * 60 + "{place}/a", "//{place}//a/"]
)
def test_links_lead_where_they_lead_inside(place: Path, target: str) -> None:
    """Relative or absolute, with any dots: never above the container's own root."""
    (place / "link").symlink_to(target.format(place=place, name=place.name))
    a = str(place / "a")
    assert differs(HERE, [(a, str(place / "link"), True)]) == ""
    assert differs(HERE, [(a, "/.." + str(place / "b" / ".." / "link"), True)]) == ""
    assert differs(HERE, [(str(place / "b"), str(place / "link"), True)]) == CHANGED


@pytest.mark.parametrize(("links", "told"), [(MOST_LINKS, ""), (MOST_LINKS + 1, CHANGED)])
def test_so_many_links_and_no_more(place: Path, links: int, told: str) -> None:
    """As the kernel does: a loop of them ends."""
    (place / "0").symlink_to("a")
    for number in range(1, links):
        (place / str(number)).symlink_to(str(number - 1))
    assert differs(HERE, [(str(place / "a"), str(place / str(links - 1)), True)]) == told
    (place / "loop").symlink_to("loop")
    assert differs(HERE, [(str(place / "a"), str(place / "loop"), True)]) == CHANGED

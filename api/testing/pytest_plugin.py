"""The pytest plugin: the fixture `hatchway_engine`, for plain, trio and asyncio tests; and `@pytest.mark.explore`.

pytest loads this at every start, for tests of all kinds: so whatever it needs is imported once a test asks for it.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from hatchway.api.testing.engine_under_test import EngineUnderTest
    from hatchway.api.testing.process import EngineProcess

FIXTURE = "hatchway_engine"


EXPLORE, SECONDS = "explore", 60.0
TOLD = pytest.StashKey[list[str]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """The order of tasks that a failing exploration told."""
    parser.addoption("--explore-order", help="run tests marked `explore` in this one order of their tasks")


def pytest_configure(config: pytest.Config) -> None:
    """Name our markers, so that `--strict-markers` knows them."""
    config.addinivalue_line("markers", f"{FIXTURE}(watch=True): whether a broken promise of the engine fails the test")
    config.addinivalue_line(
        "markers",
        f"{EXPLORE}(runs=None, seconds={SECONDS:g}, partial=False): run an async test in every order of its trio tasks,"
        " as far as the bounds allow; if they stop it, the test fails unless it may be partial",
    )


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> Iterator[None]:
    """An explored test becomes a plain one, before pytest-trio takes it; one that uses the fixture gets a clock that
    stands."""
    for item in items:
        if (marker := item.get_closest_marker(EXPLORE)) is not None:
            item.obj = _explored(item, marker)  # type: ignore[attr-defined]
    yield
    for item in items:
        if FIXTURE in getattr(item, "fixturenames", ()) and _is_trios(item):
            from hatchway.api.testing.held_clock import run_held

            # In front of the mark that pytest-trio's own mode has put on every test.
            item.add_marker(pytest.mark.trio(run=run_held), append=False)


def _explored(item: Any, marker: pytest.Mark) -> Callable[..., None]:
    test, config, partial = item.obj, item.config, bool(marker.kwargs.get("partial", False))
    bounds = {"seconds": SECONDS} | {name: value for name, value in marker.kwargs.items() if name != "partial"}

    def in_every_order(**given: Any) -> None:
        from hatchway.api.testing.explorer import explore, replay

        if not inspect.iscoroutinefunction(test):
            pytest.fail("@pytest.mark.explore wants an async test: its tasks are run in every order", pytrace=False)
        order = config.getoption("explore_order")
        if order is not None:
            replay(lambda: test(**given), order)
            return
        explored = explore(lambda: test(**given), **bounds)
        config.stash.setdefault(TOLD, []).append(f"{item.nodeid}: {explored}")
        if not explored.complete and not partial:
            pytest.fail(str(explored), pytrace=False)

    return in_every_order


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """How many orders there were of each explored test, and whether all were followed."""
    for line in config.stash.get(TOLD, []):
        terminalreporter.write_line(line)


def _is_trios(item: Any) -> bool:
    return item.get_closest_marker("trio") is not None


def _is_watched(item: Any) -> bool:
    marker = item.get_closest_marker(FIXTURE)
    if marker is None:
        return True
    if marker.args or marker.kwargs.keys() - {"watch"}:
        raise pytest.UsageError(f"{item.nodeid}: @pytest.mark.{FIXTURE} takes watch=True or watch=False alone")
    return bool(marker.kwargs.get("watch", True))


@pytest.fixture
def hatchway_engine(request: pytest.FixtureRequest) -> Iterator[Any]:
    """A test engine whose clock stands until it is told: in the test's own run where that is trio's, else a process.

    At the test's end each promise that the engine broke fails it, unless `@pytest.mark.hatchway_engine(watch=False)`.

    HATCHWAY_HOME leads nowhere for the test: a client would ask an engine of the developer's own for the address.
    """
    watched = _is_watched(request.node)
    nowhere = request.getfixturevalue("tmp_path_factory").mktemp("hatchway") / "no-engine"
    request.getfixturevalue("monkeypatch").setenv("HATCHWAY_HOME", str(nowhere))
    if _is_trios(request.node):
        yield request.getfixturevalue("_hatchway_engine_in_trio")
        return
    process: EngineProcess = request.getfixturevalue("_hatchway_engine_process")
    process.reset()
    if inspect.iscoroutinefunction(getattr(request.node, "obj", None)):
        from hatchway.api.testing.process import AsyncEngineProcess

        yield AsyncEngineProcess(process)
    else:
        yield process
    if watched:
        process.check()


@pytest.fixture(scope="session")
def _hatchway_engine_process() -> Iterator[EngineProcess]:
    """One for all tests, as it was at the start for each."""
    from hatchway.api.testing.process import engine_process

    with engine_process() as process:
        yield process


@pytest.fixture
async def _hatchway_engine_in_trio(request: pytest.FixtureRequest) -> AsyncIterator[EngineUnderTest]:
    from hatchway.api.testing.engine_under_test import open_engine_under_test

    async with open_engine_under_test() as engine:
        yield engine
    if _is_watched(request.node):
        engine.watchers.check()

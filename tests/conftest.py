"""What every test gets, and which tests a machine can't run: those are left out by name here, and fail in CI."""

from __future__ import annotations

import os
import shutil
import signal
import struct
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hypothesis
import pytest

from hatchway.engine.base import tasks
from hatchway.engine.base.clock import TrioClock
from hatchway.engine.engine import Engine
from tests.support import fakes
from tests.support.fakes import run_in_virtual_time, vectors, virtual_engine
from tests.support.spread import Spread, place

if TYPE_CHECKING:
    from playwright.sync_api import Browser

    from tests.support.browser import Host, Visitor
    from tests.support.redis_server import RedisServer

hypothesis.settings.register_profile("busy machine", deadline=None)
hypothesis.settings.load_profile("busy machine")

SYSTEM_PATH = "/usr/sbin:" + os.environ.get("PATH", "")

PT_INTERP = 3
"""elf(5): the part of a program that names its loader."""


def _is_static(program: str) -> bool:
    """Whether the program is there, and runs where none of its libraries are: an image holds nothing else."""
    data = Path(shutil.which(program) or os.devnull).read_bytes()
    if not data:
        return False
    (first,), (size, count) = struct.unpack_from("<Q", data, 32), struct.unpack_from("<HH", data, 54)
    return all(struct.unpack_from("<I", data, first + number * size) != (PT_INTERP,) for number in range(count))


def _anybody_may_use_fuse() -> bool:
    """As udev has it, or whoever runs the tests; root's containers are an ordinary user's. Where there is no FUSE,
    Apptainer unpacks an image instead."""
    device = Path("/dev/fuse")
    if not device.exists() or os.geteuid() != 0:
        return not device.exists() or os.access(device, os.R_OK | os.W_OK)
    return device.stat().st_mode & 0o006 == 0o006


NEEDS: dict[str, Callable[[], bool]] = {
    "apache": lambda: shutil.which("apache2", path=SYSTEM_PATH) is not None,
    "apptainer": lambda: (
        shutil.which("apptainer") is not None and Path("/tmp/busybox.sif").exists() and _anybody_may_use_fuse()
    ),
    "browser": lambda: shutil.which("chromium") is not None,
    "caddy": lambda: shutil.which("caddy") is not None,
    "firefox": lambda: Path("/usr/bin/firefox-esr").exists(),
    "lighttpd": lambda: (
        shutil.which("lighttpd", path=SYSTEM_PATH) is not None and Path("/usr/lib/lighttpd/mod_openssl.so").exists()
    ),
    "man": lambda: shutil.which("man") is not None,
    "modules": lambda: Path("/usr/share/modules/init/sh").exists(),
    "nginx": lambda: shutil.which("nginx", path=SYSTEM_PATH) is not None,
    "node": lambda: shutil.which("node") is not None and shutil.which("npm") is not None,
    "nspawn": lambda: shutil.which("systemd-nspawn") is not None,
    "podman": lambda: shutil.which("podman") is not None,
    "prometheus": lambda: all(map(shutil.which, ("prometheus", "promtool"))),
    "redis": lambda: shutil.which(os.environ.get("HATCHWAY_REDIS_SERVER") or "redis-server") is not None,
    "registry": lambda: all(map(shutil.which, ("docker-registry", "skopeo"))) and _is_static("busybox"),
    "rsyslog": lambda: (
        shutil.which("rsyslogd", path=SYSTEM_PATH) is not None and any(Path("/usr/lib").glob("*/rsyslog/lmnsd_gtls.so"))
    ),
    "shells": lambda: all(map(shutil.which, ("zsh", "fish"))),
    "ssh": lambda: all(
        shutil.which(name, path=SYSTEM_PATH)
        for name in ("ssh-agent", "sshd", "gpg-agent", "softhsm2-util", "pkcs11-tool", "strace")
    ),
    "slurm": lambda: all(shutil.which(name, path=SYSTEM_PATH) for name in ("munged", "slurmctld", "slurmd", "squeue")),
    "sshd": lambda: (
        shutil.which("sshd", path=SYSTEM_PATH) is not None and all(map(shutil.which, ("ssh", "zsh", "fish", "tcsh")))
    ),
    "sshfs": lambda: shutil.which("sshfs") is not None,
    "systemd": lambda: shutil.which("systemd-analyze") is not None,
    "tools": lambda: all(map(shutil.which, ("git", "curl", "openssl", "jq"))),
    "uv": lambda: shutil.which("uv", path=f"{Path(sys.executable).parent}{os.pathsep}{SYSTEM_PATH}") is not None,
    "vectors": lambda: vectors().is_dir(),
    "wrk": lambda: shutil.which("wrk") is not None,
}
"""Marker, and whether what it needs is here."""


NET_ADMIN, SYS_ADMIN = 12, 21
"""Bits of capabilities(7)."""


def _root_may(*capabilities: int) -> bool:
    """Root of a container may not."""
    held = int(Path("/proc/self/status").read_text().partition("CapEff:")[2].split()[0], 16)
    return os.geteuid() == 0 and all(held >> bit & 1 for bit in capabilities)


def _takes_control_groups() -> bool:
    """A container's may be mounted, and read-only."""
    mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    return any(kind.startswith("cgroup") and options.startswith("rw") for _, _, kind, options, *_ in mounts)


ALLOWED: dict[str, Callable[[], bool]] = {
    "boot": lambda: _root_may(SYS_ADMIN, NET_ADMIN) and _takes_control_groups(),
    "fuse": lambda: _root_may(SYS_ADMIN) and os.access("/dev/fuse", os.R_OK | os.W_OK),
    "mount": lambda: _root_may(SYS_ADMIN),
    "network": lambda: _root_may(SYS_ADMIN, NET_ADMIN),
}
"""Marker, and whether this machine lets us: nothing that could be installed would."""

MISSING = [marker for marker, here in NEEDS.items() if not here()]
LEFT_OUT = [*MISSING, *(marker for marker, may in ALLOWED.items() if not may())]


def pytest_configure(config: pytest.Config) -> None:
    """In CI nothing may be missing. Commands that tests start obey Ctrl-C and hang-up, though nohup started the run."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    if MISSING and os.environ.get("CI") == "true":
        raise pytest.UsageError(f"CI must run every test, and this machine lacks: {', '.join(MISSING)}")


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Spread:
    """How `-n` spreads the suite: in the order of `pytest_collection_modifyitems`."""
    config.option.loadscopereorder = False
    return Spread(config, log)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Long files first; run in virtual time what asks for it; leave out what this machine can't run."""
    items.sort(key=lambda item: place(item.nodeid))
    for item in items:
        if item.get_closest_marker("virtual_time") and item.get_closest_marker("trio"):
            # In front of the mark that pytest-trio's own mode has put on every test.
            item.add_marker(pytest.mark.trio(run=run_in_virtual_time), append=False)
    left_out = [item for item in items if any(item.get_closest_marker(marker) for marker in LEFT_OUT)]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Each test begins with the usual umask: an engine that ran in this process has narrowed its own, for good."""
    os.umask(0o022)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say what was left out, last, where it is read."""
    if LEFT_OUT:
        terminalreporter.write_line(f"left out: every test that needs {', '.join(LEFT_OUT)}", yellow=True)


@pytest.fixture(autouse=True)
def failed_tasks() -> Iterator[list[str]]:
    """The background tasks of engines in this process that failed. They begin anew, unseen by a test that looks
    elsewhere: so no test passes with one, unless it takes it out of this list."""
    failed: list[str] = []

    class Log:
        def exception(self, event: str, *, task: str) -> None:
            failed.append(f"{task}: {sys.exception()!r}")
            real.exception(event, task=task)

    real = tasks.log
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(tasks, "log", Log())
        yield failed
    assert failed == []


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A folder for one engine, not made yet."""
    return tmp_path / "hatchway"


@pytest.fixture
def clock() -> TrioClock:
    """The clock of a test's own trio run."""
    return TrioClock()


@pytest.fixture
async def engine(home: Path, clock: TrioClock) -> AsyncIterator[Engine]:
    """An engine in the test's own trio run; in virtual time where the test is."""
    async with virtual_engine(home, clock) as made:
        yield made


@pytest.fixture
async def browser(engine: Engine) -> fakes.Browser:
    """A client of that engine, without a token."""
    from hatchway.api.http.app import make_app

    return fakes.Browser(make_app(engine))


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[RedisServer]:
    """A real, durable Redis, empty."""
    from tests.support.redis_server import RedisServer

    server = RedisServer(tmp_path / "redis")
    try:
        yield server.start()
    finally:
        server.close()


@pytest.fixture
def command_folder(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test has an engine's folder of its own and stands in an empty one."""
    for name in [name for name in os.environ if name.startswith("HATCHWAY_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HATCHWAY_HOME", str(home))
    (tmp_path / "cwd").mkdir()
    monkeypatch.chdir(tmp_path / "cwd")


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    """A real engine process, one for a module."""
    from tests.support.browser import running_host

    with running_host(tmp_path_factory.mktemp("host")) as running:
        yield running


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """Headless Chromium, one for a module."""
    from tests.support.browser import running_chromium

    with running_chromium() as running:
        yield running


@pytest.fixture
def visitor(chromium: Browser, host: Host) -> Iterator[Visitor]:
    """Somebody with a fresh browser profile."""
    from tests.support.browser import visiting

    with visiting(chromium, host) as somebody:
        yield somebody

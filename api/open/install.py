"""Hatchway on a host that has none: an environment of its own in `~/.hatchway/runtime/VERSION/`, by wheels sent over.

The host needs a Python 3.11 to 3.13 and no package index: this machine fetches the wheels for the host's platform.
Where it can't, the host's own pip is asked. What is not finished is removed, by a trap of the host's shell; and nothing
is finished before this side says so, so that a lost connection leaves nothing.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

from hatchway.api.client.ssh.attached import SessionLines
from hatchway.api.client.ssh.connection import Multiplexed
from hatchway.api.client.ssh.faults import SshFault
from hatchway.api.client.ssh.remote import FIND, script
from hatchway.engine.base.text import printable
from hatchway.engine.base.version import installed_version

PIP_WAIT = 600.0
"""Seconds that pip has here for the wheels, and there for their installation."""

NEWEST_GLIBC, OLDEST_GLIBC = 40, 17
"""Minor versions of glibc 2 that wheels are built for (PEP 600)."""

SURVEY = r"""
facts='import importlib.util as u, json, platform, sys
if not (3, 11) <= sys.version_info[:2] <= (3, 13) or u.find_spec("venv") is None: sys.exit(1)
print(json.dumps({"path": sys.executable, "minor": sys.version_info[1], "system": sys.platform,
    "machine": platform.machine(), "libc": platform.libc_ver()}))'
try() { answer=$("$1" -I -c "$facts" 2>/dev/null) && printf '\n%s python %s\n' "$mark" "$answer" && exit 0; }
if [ -n "$python" ]; then
  try "$python"
else
  for name in python3.13 python3.12 python3.11 python3 python; do
    one=$(command -v "$name") && try "$one"
  done
  uv=$(command -v uv) && one=$("$uv" python find --no-python-downloads '>=3.11,<3.14' 2>/dev/null) && try "$one"
  for one in "$HOME"/.local/share/uv/python/*/bin/python3 "$HOME"/.pyenv/versions/*/bin/python3 /opt/*/bin/python3; do
    [ -x "$one" ] && try "$one"
  done
  for name in 3.13 3.12 3.11; do
    one=$("$shell" -l -c "module load python/$name >/dev/null 2>&1; command -v python$name" 2>/dev/null </dev/null)
    [ -x "$one" ] && try "$one"
  done
fi
printf '\n%s nopython %s\n' "$mark" "$(python3 -V 2>&1)"
"""
"""Prints what the first Python that will do says of itself. Wants `python`, a path or nothing."""

INSTALL = r"""
place=$runtime/$version
work=$runtime/.$version.$$
trap 'code=$?; rm -rf "$work" "$place"; exit $code' EXIT
trap 'exit 1' HUP INT TERM PIPE
set -e
mkdir -p -m 700 "$HOME/.hatchway" "$runtime"
rm -rf "$place"
mkdir "$work"
if [ -n "$wheels" ]; then
  tar -x -f - -C "$work"
  "$python" -I -m venv --without-pip "$place"
  set -- "$work"/pip-*.whl
  "$place/bin/python" "$1/pip" install --quiet --disable-pip-version-check --no-compile --no-index \
    --find-links "$work" "hatchway==$version"
else
  "$python" -I -m venv "$place"
  "$place/bin/python" -m pip install --quiet --disable-pip-version-check --no-compile "hatchway==$version"
fi
printf '\n%s ready\n' "$mark"
read -r word
[ "$word" = keep ]
trap - EXIT
rm -rf "$work"
printf '\n%s kept\n' "$mark"
"""
"""Installs, and keeps it at the word `keep`. Wants `python`, and `wheels`: whether a tar of them comes first. Python
compiles what it imports, a tenth of all, when it first does: while somebody waits, nothing else is compiled."""

REMOVE_OTHERS = r"""
for one in "$runtime"/*; do [ "$one" = "$runtime/$version" ] || rm -rf "$one"; done
printf '\n%s removed\n' "$mark"
"""


class RemotePython(NamedTuple):
    """A Python of the host's: where it is, and what its wheels must be for."""

    path: str
    minor: int
    system: str
    machine: str
    libc: tuple[str, str]


def find_python(connection: Multiplexed, python: str | None) -> RemotePython:
    """The one that is named, or the first that will do. Raises SshFault with the ways out."""
    said, rest = _run(connection, SURVEY, python=python or "")
    host = connection.host.target
    if said == "python":
        told: dict[str, Any] = json.loads(rest)
        return RemotePython(**told | {"libc": tuple(told["libc"])})
    what = f"{python} is none" if python else f"there is none ({printable(rest)})"
    raise SshFault(
        f"{host} has no hatchway, and no Python 3.11 to 3.13 to install it with: {what}. Ways out: load it in your"
        " start files (module load python), install one for yourself (uv python install 3.12), name one by --python"
        " PATH, or ask the host's administrator for python3"
    )


def install(connection: Multiplexed, python: RemotePython, wheels: Path | None) -> None:
    """Make the environment, of these wheels or by the host's own pip. Raises SshFault; then nothing of it is left."""
    program = script(FIND, INSTALL, **_values(python=python.path, wheels="yes" if wheels else ""))
    session = connection.run(program.command)
    session.socket.settimeout(PIP_WAIT)
    try:
        if wheels is not None:
            with session.socket.makefile("wb") as stream, tarfile.open(fileobj=stream, mode="w|") as archive:
                for wheel in sorted(wheels.iterdir()):
                    archive.add(wheel, arcname=wheel.name)
        lines = SessionLines(session, PIP_WAIT)
        _await(lines, f"{program.mark} ready")
        session.socket.sendall(b"keep\n")
        _await(lines, f"{program.mark} kept")
    except (OSError, SshFault):
        why = session.words()
        raise SshFault(
            f"the installation on {connection.host.target} failed, and nothing of it is left there: {why}"
        ) from None
    session.end()


def remove_others(connection: Multiplexed) -> None:
    """Every other version that was installed so."""
    _run(connection, REMOVE_OTHERS)


def _values(**values: str) -> dict[str, str]:
    return {"version": installed_version(), "wanted": "", "upgrade": "yes"} | values


def _run(connection: Multiplexed, part: str, **values: str) -> tuple[str, str]:
    """The marked line of a script that has one: its first word, and the rest."""
    program = script(FIND, part, **_values(**values))
    session = connection.run(program.command)
    session.socket.settimeout(PIP_WAIT)
    line, lines = "", SessionLines(session, PIP_WAIT)
    while not line.startswith(program.mark):
        line = lines.read()
    session.end()
    said, _, rest = line.removeprefix(program.mark).strip().partition(" ")
    return said, rest


def _await(lines: SessionLines, wanted: str) -> None:
    while lines.read() != wanted:
        pass


def fetch_wheels(folder: Path, python: RemotePython) -> None:
    """Everything that a host with this Python needs, pip itself among it. Raises SshFault where pip can't."""
    own = _own_source()
    wanted = f"hatchway=={installed_version()}"
    if own is not None:
        _pip("wheel", "--no-deps", *_isolation(), "--wheel-dir", str(folder), str(own))
        wanted = str(next(folder.glob("hatchway-*.whl")))
    tags = [word for tag in _platforms(python) for word in ("--platform", tag)]
    abis = [word for abi in (f"cp3{python.minor}", "abi3", "none") for word in ("--abi", abi)]
    chosen = ["--only-binary=:all:", "--implementation", "cp", "--python-version", f"3.{python.minor}", *abis, *tags]
    _pip("download", *chosen, "--dest", str(folder), "--find-links", str(folder), wanted, "pip")


def _platforms(python: RemotePython) -> Iterator[str]:
    if python.system != "linux":
        raise SshFault(f"the host runs {printable(python.system)}, and Hatchway's engine runs on Linux")
    name, version = python.libc
    if name != "glibc":
        yield from (f"musllinux_1_{minor}_{python.machine}" for minor in (2, 1))
        return
    newest = min(int(version.split(".")[1]), NEWEST_GLIBC)
    yield from (f"manylinux_2_{minor}_{python.machine}" for minor in range(newest, OLDEST_GLIBC - 1, -1))
    yield from (f"manylinux{year}_{python.machine}" for year in ("2014", "2010"))
    yield f"linux_{python.machine}"


def _own_source() -> Path | None:
    """The checkout that this machine's own Hatchway runs from; None where it came from an index."""
    try:
        told = distribution("hatchway").read_text("direct_url.json")
    except PackageNotFoundError:
        raise SshFault("this machine's hatchway is not installed, so that there is nothing to send") from None
    url = urlsplit(json.loads(told)["url"]) if told else None
    return Path(unquote(url.path)) if url is not None and url.scheme == "file" else None


def _isolation() -> tuple[str, ...]:
    """What builds a checkout's wheel, where it is here already, is not fetched anew."""
    from importlib.util import find_spec

    return ("--no-build-isolation",) if find_spec("hatchling") else ()


def _pip(*arguments: str) -> None:
    command = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments]
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PIP_WAIT, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as fault:
        raise SshFault(f"this machine could not fetch the wheels: {fault}") from None
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        raise SshFault(f"this machine could not fetch the wheels: {lines[-1] if lines else 'pip failed'}")

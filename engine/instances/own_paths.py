"""What no container may reach, whatever the volume roots allow: every path that the settings call the engine's own."""

from __future__ import annotations

import os
import pwd
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from hatchway.engine.settings.settings import TABLE, Settings, value_of

GIVEN = ("image_folders", "volume_roots")
"""The settings whose paths containers may have. A path that any other setting names is the engine's own."""

MOST_LINKS = 40
"""Links that the kernel follows in one path."""


def own_paths(home: Path, settings: Settings) -> tuple[Path, ...]:
    """The engine's folder, what its settings name, and the runtime's folder of the engine's user; each resolved.

    Every link that leads to one of them is among them too: whoever may write there can replace what it leads to.
    """
    named = [home, *(Path(text).expanduser() for text in named_paths(settings))]
    with suppress(KeyError):  # a user without an entry in passwd has no folder of the runtime's
        named.append(Path(pwd.getpwuid(os.geteuid()).pw_dir) / ".apptainer")
    return tuple(dict.fromkeys(place for path in named for place in _places(path)))


def named_paths(settings: Settings) -> Iterator[str]:
    """Every path that a setting names, but for those that are for containers."""
    for name, setting in TABLE.items():
        value = value_of(settings, name)
        if setting.kind.paths is not None and name not in GIVEN and value is not None:
            yield from setting.kind.paths(value)


def _places(path: Path) -> Iterator[Path]:
    """Where the path leads, and every link on the way."""
    left, here = list(reversed(path.absolute().parts[1:])), Path("/")
    for _ in range(MOST_LINKS * len(path.parts) + MOST_LINKS):
        if not left:
            break
        step = left.pop()
        if step == "..":
            here = here.parent
            continue
        here /= step
        with suppress(OSError):
            target = os.readlink(here)
            yield here
            left.extend(reversed(Path(target).parts))
            here = here.parent if not target.startswith("/") else Path("/")
            left = [part for part in left if part != "/"]
    yield here.joinpath(*reversed(left))

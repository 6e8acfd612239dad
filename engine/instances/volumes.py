"""Which parts of the host a container may see: `source:destination[:ro|rw]`, read-only unless `rw` is there."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path

from hatchway.engine.instances.paths import overlap, resolve_under
from hatchway.engine.instances.request import Policy, Volume

_SYSTEM = tuple(map(Path, ("/proc", "/sys", "/dev", "/run", "/etc")))
_RUNTIMES_OWN = ("/", "/proc", "/sys", "/dev", "/.singularity.d")
_SESSION = re.compile("/(apptainer|singularity)/mnt/session")
"""Where the runtime assembles a container. It takes a destination in there for a path of the host, and follows
links."""


def read_volume(text: str, policy: Policy) -> Volume:
    """Raises ValueError with a sentence, the same for a source that is absent and for one that is not allowed."""
    if len(text) > 4096 or any(letter in ',"\\' or ord(letter) < 0x20 or ord(letter) == 0x7F for letter in text):
        raise ValueError("must be one line without comma, quote or backslash")
    source, destination, mode = [*text.split(":"), "ro"][:3] if text.count(":") in (1, 2) else ("", "", "")
    if not source.startswith("/") or mode not in ("ro", "rw"):
        raise ValueError("must be source:destination, source:destination:ro or source:destination:rw, absolute paths")
    found = _source(source, policy)
    if mode == "rw" and policy.holds_images(Path(found)):
        raise ValueError("source must not hold images, or be among them, where it may be written: use :ro")
    return Volume(found, _destination(destination), mode == "rw", Path(found).is_dir())


def check_apart(volumes: Sequence[Volume]) -> None:
    """Raises ValueError where one destination is another one, or inside it.

    The runtime makes what is missing of the inner one in the outer one's folder on the host, and follows links there.
    """
    for one, other in combinations(volumes, 2):
        if overlap(Path(one.destination), Path(other.destination)):
            raise ValueError("must name each destination once, and none inside another: " + other.destination)


def _source(text: str, policy: Policy) -> str:
    found = resolve_under(Path(text), policy.volume_roots)
    if found is None:
        raise ValueError("source must exist under one of the setting `volume_roots`")
    if policy.closes(found) or any(found.is_relative_to(folder) for folder in _SYSTEM):
        raise ValueError("source must exist under one of the setting `volume_roots`")
    if any(ord(letter) < 0x20 for letter in str(found)):
        raise ValueError("source must not be behind a link to a name with control characters")
    return str(found)


def _destination(text: str) -> str:
    path = posixpath.normpath(text)
    if not text.startswith("/") or ".." in text.split("/"):
        raise ValueError("destination must be an absolute path without ..")
    path = "/" + path.lstrip("/")
    if any(path == own or (own != "/" and path.startswith(own + "/")) for own in _RUNTIMES_OWN):
        raise ValueError("destination must not be the container's root, /proc, /sys, /dev or /.singularity.d")
    if _SESSION.search(path):
        raise ValueError("destination must not be where the runtime puts containers together")
    return path

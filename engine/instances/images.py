"""Which images may be started: a .sif under an image folder, or a reference to a listed registry."""

from __future__ import annotations

import re
from pathlib import Path

from hatchway.engine.base.errors import ImageNotFound
from hatchway.engine.instances.paths import resolve_under
from hatchway.engine.instances.request import Image, Policy

_TRANSPORTS = ("docker", "oras", "library")
_HOST = re.compile(r"[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?(?::[0-9]{1,5})?")
_PATH = re.compile(
    r"[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*)*"
    r"(?::[A-Za-z0-9_][A-Za-z0-9._-]{0,127})?(?:@sha256:[0-9a-f]{64})?"
)
_DOCKER_HUB = "docker.io"
_ABSENT = "there is no such .sif image in the image folders"


def read_image(text: str, policy: Policy) -> Image:
    """Raises ValueError for what is no image's name, ImageNotFound for one that may not or can't be taken."""
    if any(ord(letter) < 0x20 or ord(letter) == 0x7F for letter in text) or len(text) > 4096:
        raise ValueError("must be one line of at most 4096 characters")
    if text.startswith("-"):
        raise ValueError("must not begin with a hyphen")
    transport, separator, reference = text.partition("://")
    if separator:
        return _fetched(transport, reference, policy)
    if ":" in text or not text.endswith(".sif"):
        raise ValueError("must be a .sif file, or docker://, oras:// or library:// and what a registry holds")
    return _local(text, policy)


def _fetched(transport: str, reference: str, policy: Policy) -> Image:
    if transport not in _TRANSPORTS:
        raise ValueError("must be a .sif file, or docker://, oras:// or library:// and what a registry holds")
    host, slash, path = reference.partition("/")
    named = slash and ("." in host or ":" in host or host == "localhost")
    if not named:
        if transport != "docker":
            raise ValueError(f"must name its registry, as {transport}://registry.example/...")
        host, path = _DOCKER_HUB, reference
    if len(reference) > 512 or not _HOST.fullmatch(host) or not _PATH.fullmatch(path):
        raise ValueError("must be registry/name:tag, in lower case")
    # A registry that is not listed is not connected to at all.
    if host not in policy.registries:
        raise ImageNotFound(f"the registry {host} is not listed in the setting `registries`")
    return Image(f"{transport}://{reference}", host)


def _local(text: str, policy: Policy) -> Image:
    candidates = [Path(text)] if text.startswith("/") else [Path(folder) / text for folder in policy.image_folders]
    for candidate in candidates:
        found = resolve_under(candidate, policy.image_folders)
        if found and _is_image(found) and not policy.closes(found):
            return Image(str(found))
    raise ImageNotFound(_ABSENT)


def _is_image(path: Path) -> bool:
    # Apptainer would take what stands before a colon for the name of a transport.
    return path.suffix == ".sif" and ":" not in str(path) and path.is_file()

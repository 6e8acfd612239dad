"""Paths of the host, resolved once and compared by component (never by prefix: CVE-2026-48785)."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path


def resolve_under(path: Path, roots: Iterable[str]) -> Path | None:
    """What `path` really is, links and `..` followed, if that exists and lies under one of `roots`; else None."""
    try:
        real = path.resolve(strict=True)
        if any(real.is_relative_to(Path(root).resolve()) for root in roots):
            return real
    except (OSError, RuntimeError):
        pass  # it is absent, a loop of links, or in a folder that we may not enter
    return None


def overlap(one: Path, other: Path) -> bool:
    """Whether one is the other, or above or below it."""
    return one.is_relative_to(other) or other.is_relative_to(one)

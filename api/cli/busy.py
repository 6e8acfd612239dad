"""A progress bar on standard error for what takes long; on a terminal only, and removed at the end."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


def _unheard(words: str) -> None:
    """Does nothing: there is no terminal."""


@contextmanager
def busy(words: str, *, quiet: bool = False) -> Iterator[Callable[[str], None]]:
    """Show `words` and a moving bar while the block runs, which may say anew what it does. Nothing if `quiet`."""
    if quiet or not sys.stderr.isatty():
        yield _unheard
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    from hatchway.engine.base.text import printable

    columns = TextColumn("{task.description}", markup=False), BarColumn(24), TimeElapsedColumn()
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(printable(words), total=None)
        yield lambda said: progress.update(task, description=printable(said))

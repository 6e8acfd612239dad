"""A copy of an engine's folder, taken while the engine runs or is stopped."""

from __future__ import annotations

import shutil
import sqlite3
import stat
from contextlib import closing
from pathlib import Path

from hatchway.engine.base.errors import FileRefused
from hatchway.engine.base.files import make_private_dir, reason, write_new
from hatchway.engine.store.sqlite_file import in_words

DATABASE = "engine.db"


def back_up(home: Path, copy: Path) -> None:
    """Copy the folder `home` to `copy`, which must not be there yet. A copy that fails leaves nothing.

    Raises FileRefused where it can't be made, EngineUnavailable where the database can't be read.
    """
    home, copy = home.resolve(), copy.absolute()
    if not (home / "engine.lock").exists():
        raise FileRefused(f"no engine has run on {home}", cause="missing")
    if copy.exists() or copy.is_symlink():
        raise FileRefused(f"{copy} is there already: name a folder that is not", cause="exists")
    if home == copy.parent.resolve() or home in copy.parent.resolve().parents:
        raise FileRefused(f"{copy} lies in the folder that is copied: name one outside of it", cause="inside")
    make_private_dir(copy)
    try:
        # The folder is closed to others before anything is in it, so no file of it is ever readable for them.
        shutil.copytree(home, copy, symlinks=True, ignore=_left_out, copy_function=_copy, dirs_exist_ok=True)
        _copy_database(home / DATABASE, copy / DATABASE)
    except BaseException as error:
        shutil.rmtree(copy, ignore_errors=True)
        if isinstance(error, OSError):
            raise FileRefused(f"{copy} can't be written: {reason(error)}", cause="unwritable") from None
        raise


def _left_out(folder: str, names: list[str]) -> set[str]:
    """The database, which is copied by SQLite, and what means nothing outside of a running engine: sockets, pipes."""
    return {name for name in names if name.startswith(DATABASE) or not _is_kept(Path(folder, name))}


def _is_kept(path: Path) -> bool:
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return False
    return stat.S_ISREG(mode) or stat.S_ISDIR(mode) or stat.S_ISLNK(mode)


def _copy(source: str, target: str) -> None:
    """Raises FileRefused, which ends the copy: of an OSError `copytree` would make a list, and go on."""
    try:
        shutil.copy2(source, target)
    except FileNotFoundError:
        pass  # a log that was rotated, or an instance's file that went, since it was listed
    except OSError as error:
        raise FileRefused(f"{source} can't be copied: {reason(error)}", cause="unwritable") from None


def _copy_database(source: Path, target: Path) -> None:
    if not source.exists():
        return  # the store is a Redis
    write_new(target, b"")
    with (
        in_words(source),
        closing(sqlite3.connect(f"{source.as_uri()}?mode=ro", uri=True, timeout=5)) as live,
        closing(sqlite3.connect(target)) as made,
    ):
        live.backup(made)
        # Without a WAL of its own a start can tell that one beside it is another database's.
        made.execute("PRAGMA journal_mode = DELETE")

"""Edits config.toml one setting at a time, and leaves every comment and blank line where it stands."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import tomlkit
from tomlkit.exceptions import TOMLKitError

from hatchway.engine.base.errors import SettingRefused
from hatchway.engine.base.file_locks import locked
from hatchway.engine.base.files import make_private_dir, read_private, write_private
from hatchway.engine.settings.settings import setting
from hatchway.engine.settings.sources import read_value


def set_value(home: Path, name: str, text: str) -> None:
    """Write setting `name` into config.toml as `text` gives it, or refuse and leave the file alone."""
    value = read_value(name, text, "config set")
    if not text.isascii():
        _refuse_other_text(name, text)
    with _edited(home) as document:
        table: Any = document
        *groups, field = name.split(".")
        for group in groups:
            table = table.setdefault(group, tomlkit.table())
        table[field] = _as_toml(name, value)


def _refuse_other_text(name: str, text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise SettingRefused(
            f"config set: {name}: config.toml is UTF-8 text, and {text} is not: give it another name, or set"
            f" {setting(name).variable} in the environment"
        ) from None


def unset_value(home: Path, name: str) -> bool:
    """Take setting `name` out of config.toml; False where it wasn't there. An unknown name may be taken out too."""
    with _edited(home) as document:
        table: Any = document
        *groups, field = name.split(".")
        for group in groups:
            table = table.get(group, {})
        there = hasattr(table, "pop") and field in table
        if there:
            table.pop(field)
        else:
            setting(name)
    return there


def _as_toml(name: str, value: Any) -> Any:
    if isinstance(value, tuple):
        return list(value)
    shown = setting(name).kind.show(value)
    return value if isinstance(value, bool) or (isinstance(value, int) and shown == str(value)) else shown


@contextmanager
def _edited(home: Path) -> Iterator[tomlkit.TOMLDocument]:
    """The file's content, to be changed; written whole at the end, unless it is as it was."""
    make_private_dir(home)
    path = home / "config.toml"
    with locked(home / "config.lock"):
        document = _read(path)
        before = document.as_string()
        yield document
        if document.as_string() != before:
            write_private(path, document.as_string().encode(), overwrite=True)


def _read(path: Path) -> tomlkit.TOMLDocument:
    try:
        return tomlkit.parse(read_private(path).decode("utf-8-sig"))  # as `read_config`
    except FileNotFoundError:
        return tomlkit.document()
    except (TOMLKitError, UnicodeDecodeError) as fault:
        raise SettingRefused(f"{path} is not TOML: {fault}") from None

"""Changes that commands make to the keys, in a folder's files or a fleet's store, whether or not an engine runs."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Protocol

from hatchway.engine.base import files
from hatchway.engine.base.clock import Clock
from hatchway.engine.keys.authorized_keys import AUTHORIZED_KEYS, AuthorizedKeys
from hatchway.engine.keys.key_edits import Edit, T
from hatchway.engine.keys.key_lines import KeyLine, parse_file
from hatchway.engine.keys.rotation import rotate_token_key
from hatchway.engine.settings.settings import Settings, keys_folder


class KeyAdministration(Protocol):
    """What a command can do with the keys, wherever they are kept."""

    where: str
    """Where authorized_keys is, for people."""

    def lines(self) -> tuple[KeyLine, ...]:
        """Every line of authorized_keys now."""

    def edit(self, change: Edit[T]) -> T:
        """Change authorized_keys. Returns what `change` says that it did."""

    def rotate_token(self, clock: Clock, *, force: bool) -> None:
        """Replace the token key."""


def open_key_administration(home: Path, settings: Settings) -> KeyAdministration:
    """The keys where the settings say that they are kept. Raises SettingRefused."""
    folder = keys_folder(home, settings)
    types = settings.key_types
    if settings.keys == "store":
        from hatchway.engine.fleet.store_keys import StoreKeys  # imported here: few hosts are of a fleet

        return StoreKeys(settings.store, types)
    return _FolderKeys(folder, types)


class _FolderKeys:
    """Keys in the files of a folder."""

    def __init__(self, folder: Path, types: tuple[str, ...]) -> None:
        self._types = types
        self._folder, self._keys = folder, AuthorizedKeys(folder / AUTHORIZED_KEYS)
        self.where = str(self._keys.path)

    def lines(self) -> tuple[KeyLine, ...]:
        with contextlib.suppress(FileNotFoundError):
            return parse_file(files.read_private(self._keys.path), self._types)
        return ()

    def edit(self, change: Edit[T]) -> T:
        return self._keys.edit(change)

    def rotate_token(self, clock: Clock, *, force: bool) -> None:
        rotate_token_key(self._folder, clock, force=force)

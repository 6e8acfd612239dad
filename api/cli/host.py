"""What commands know of where they run: folder, settings, the stored token, and a client made of them."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from api.flows import StoredToken, read_key
from engine.errors import EngineUnavailable, KeyRefused, SettingRefused
from engine.files import make_private_dir, read_private, write_private
from engine.home import expanded
from engine.setting_sources import load_settings
from engine.settings import Settings, home_folder

if TYPE_CHECKING:
    from api.client import Client
    from engine.trust.keys import PrivateKey

TOKEN_FILE = "connection-token"  # noqa: S105 - a file's name


def load_stored(home: Path) -> StoredToken | None:
    """The stored token, if there is a readable one; a damaged file is as none."""
    try:
        return msgspec.convert(json.loads(read_private(home / TOKEN_FILE)), StoredToken)
    except (FileNotFoundError, ValueError, RecursionError):
        return None


def store_token(home: Path, stored: StoredToken | None) -> None:
    """Keep the token for the next command, or forget it."""
    if stored is None:
        (home / TOKEN_FILE).unlink(missing_ok=True)
    else:
        make_private_dir(home)
        # The key's path may be no UTF-8, which this module escapes and reads as it was.
        write_private(home / TOKEN_FILE, json.dumps(msgspec.to_builtins(stored)).encode(), overwrite=True)


class Here:
    """This host's folder and settings, and who the command is to the engine."""

    def __init__(self, url: str | None = None, key: str | None = None) -> None:
        """`url` and `key` are the flags of those names, where given."""
        self.home = home_folder()
        self.settings: Settings = load_settings(self.home, os.environ, {"url": url, "key": _absolute(key)})
        self.stored = load_stored(self.home)
        self.local = self._local_status()

    def _local_status(self) -> dict[str, Any]:
        from api.cli.operator import ask

        try:
            return ask(self.home, "status")
        except (EngineUnavailable, FileNotFoundError):
            return {}

    @property
    def local_url(self) -> str:
        """The address of this host's engine: as it says itself while it runs, else as it is set."""
        told = self.local.get("url")
        if isinstance(told, str):
            return told.rstrip("/")
        scheme = "https" if self.settings.tls_cert or self.settings.tls == "auto" else "http"
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self.settings.host, self.settings.host)  # noqa: S104
        return f"{scheme}://{f'[{host}]' if ':' in host else host}:{self.settings.port}"

    @property
    def url(self) -> str:
        """The engine the command talks to: the flag or setting, else where the stored token is from, else this host's.

        A token got with this host's own key is this host's, whatever port its engine listens on today.
        """
        if self.settings.url:
            return self.settings.url
        if self.stored is None or self.stored.key == str(self.own_key):
            return self.local_url
        return self.stored.url

    @property
    def own_key(self) -> Path:
        """The key of this host's engine."""
        return self.home / "private-key.pem"

    def key_path(self, url: str) -> Path | None:
        """The key for `url`: the flag or setting, the one its stored token came by, or the engine's own at home."""
        if self.settings.key:
            return self.settings.key
        if self.stored and self.stored.key and self.stored.url == url:
            return Path(self.stored.key)
        return self.own_key if url == self.local_url and self.own_key.exists() else None

    def client(
        self,
        *,
        url: str | None = None,
        lifetime: str | None = None,
        fresh: bool = False,
        by_key: bool = True,
        accept_certificate: bool = False,
    ) -> Client:
        """A client of the engine. `fresh` leaves the stored token aside; without `by_key` it signs in by code alone."""
        from api.cli.pins import tls_for
        from api.client import Client

        where = url or self.url
        key = self.key_path(where) if by_key else None
        if by_key and key is None and self.stored is None and where == self.local_url:
            raise EngineUnavailable(f"no engine has run on {self.home} yet; start one with: hatchway engine start")

        def keep(stored: StoredToken | None) -> None:
            path = None if key is None else str(key)
            store_token(self.home, stored and msgspec.structs.replace(stored, key=path))

        return Client(
            where,
            read_key_with=None if key is None else lambda: ask_for_key(key),
            stored=None if fresh else self.stored,
            lifetime=lifetime,
            on_token=keep,
            tls=tls_for(self.home, where, expected=self._fingerprint(where), accept=accept_certificate),
        )

    def _fingerprint(self, url: str) -> str | None:
        """Of this host's engine's certificate, as it told over the operator socket."""
        told = self.local.get("fingerprint")
        return told if isinstance(told, str) and url == self.local_url else None


def ask_for_key(path: Path) -> PrivateKey:
    """The private key in `path`; its passphrase, if it has one, is asked for at the terminal."""
    from engine.trust.key_files import PassphraseWanted

    try:
        return read_key(path)
    except FileNotFoundError:
        raise KeyRefused(f"{path}: no such key file", cause="no_key_file") from None
    except PassphraseWanted:
        if not sys.stdin.isatty():
            raise
        return read_key(path, click.prompt(f"Passphrase of {path}", hide_input=True, err=True).encode())


def given_path(path: str) -> str:
    """A flag's path, from wherever the command was called. Raises SettingRefused."""
    try:
        return str(expanded(path).absolute())
    except ValueError as fault:
        raise SettingRefused(f"{path}: {fault}") from None


def _absolute(path: str | None) -> str | None:
    return None if path is None else given_path(path)

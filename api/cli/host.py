"""The folder, settings and stored token of the host that a command runs on, and a client made of them."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import click

from hatchway.engine.base.imports import lazily, without

with without("typing_extensions"):  # msgspec loads it for an older Python
    import msgspec

    from hatchway.api.cli.signing_keys import Signers
    from hatchway.api.client.flows import StoredToken
    from hatchway.api.client.own_engine import OwnEngine, check_word, leads_to_loopback, listens_at
    from hatchway.api.client.wire import ClientFault, is_of_a_test
    from hatchway.engine.base.errors import EngineUnavailable, FileRefused, SettingRefused
    from hatchway.engine.base.files import make_private_dir, read_private, write_private
    from hatchway.engine.base.issuer import TEST_ISSUER
    from hatchway.engine.settings.home import expanded
    from hatchway.engine.settings.kinds import AGENT
    from hatchway.engine.settings.settings import Settings, home_folder
    from hatchway.engine.settings.sources import load_settings

if TYPE_CHECKING:
    import ssl

    from hatchway.api.client.client import Client

UNUSED_BY_COMMANDS = ("trio", "anyio", "h2")
"""What httpcore loads where it is installed, for async clients and for HTTP/2: as long as all the rest of a command."""

SOCKET_URL = "http://localhost"
"""The URL of an engine without a port: it is only named so, and reached by its Unix socket."""

OF_A_TEST = "test_engine"
"""Why a token was not stored: it is of a test engine."""

TOKEN_FILE = "connection-token"  # noqa: S105 - a file's name


def load_stored(home: Path) -> StoredToken | None:
    """The stored token; None where there is none, or the file is damaged."""
    try:
        return msgspec.convert(json.loads(read_private(home / TOKEN_FILE)), StoredToken)
    except (FileNotFoundError, ValueError, RecursionError):
        return None


def store_token(home: Path, stored: StoredToken | None) -> None:
    """Keep the token for the next command, or forget it. Raises FileRefused; also for a test engine's, whose token must
    never be taken for one of a real engine that comes to listen at its address."""
    if stored is None:
        _forget(home / TOKEN_FILE)
    elif is_of_a_test(stored.token):
        raise FileRefused(f"the token of a test engine ({TEST_ISSUER}) is never stored", cause=OF_A_TEST)
    else:
        make_private_dir(home)
        # The key's path may not be UTF-8: the json module escapes it, and reads it as it was.
        write_private(home / TOKEN_FILE, json.dumps(msgspec.to_builtins(stored)).encode(), overwrite=True)


def _forget(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise FileRefused(f"{path} can't be removed: {error.strerror}", cause="unwritable") from None


class Here:
    """This host's folder and settings, and who the command is to the engine."""

    def __init__(self, url: str | None = None, key: str | None = None, agent: str | None = None) -> None:
        """`url` is the address that was read where the flag of that name is not given; `key` and `agent` are flags,
        where given; `agent` is empty for any key of it."""
        self.home = home_folder()
        self.flag_url = _flag_url()
        self._agent = agent
        self.settings: Settings = load_settings(
            self.home, os.environ, {"url": self.flag_url or url, "key": _given_key(key)}
        )
        self.stored = load_stored(self.home)
        self._own = OwnEngine(self.home)
        self.local: dict[str, Any] = self._own.told()

    @staticmethod
    def settings_alone() -> Settings:
        """This machine's settings, where no engine of its own is asked anything."""
        return load_settings(home_folder(), os.environ, {})

    @property
    def local_url(self) -> str:
        """The address of this host's engine: as it says itself while it runs, else as it is set."""
        told = self.local.get("url")
        if isinstance(told, str):
            return told.rstrip("/")
        if self.local_socket is not None or (not self.local and self.settings.listen == "unix"):
            return SOCKET_URL
        scheme = "https" if self.settings.tls_cert or self.settings.tls == "auto" else "http"
        host = self.settings.host
        if host in ("0.0.0.0", "::", "localhost"):  # noqa: S104 - 127.0.0.1 is among what each of them listens on
            host = "127.0.0.1"
        return f"{scheme}://{f'[{host}]' if ':' in host else host}:{self.settings.port}"

    @property
    def local_socket(self) -> Path | None:
        """The Unix socket by which this host's engine is reached; None where it has none, or doesn't run."""
        told = self.local.get("socket")
        return Path(told) if isinstance(told, str) else None

    @property
    def url(self) -> str:
        """The engine the command talks to: the flag or setting, else where the stored token is from, else this host's.

        A token got with this host's own key is this host's, whatever port its engine listens on today.
        """
        if self.settings.url:
            return self.settings.url
        return self.local_url if self.stored is None or self._nobody_said_where() else self.stored.url

    @property
    def own_key(self) -> Path:
        """The key of this host's engine."""
        return self.home / "private-key.pem"

    def key_sources(self, url: str, *, any_agent: bool = False) -> tuple[str, ...]:
        """The keys for `url`, files' paths or, after `agent:`, names in the SSH agent; the first that the engine
        authorizes counts. The flag or setting alone, where there is one, else the key that the stored token came by, or
        the engine's own at home.

        `any_agent` is for whoever signs in at somebody's word: whatever the agent holds comes before the key of the
        stored token, and the engine's own key before both.
        """
        if self._agent is not None:
            return (AGENT + self._agent,)
        if self.settings.key:
            return (str(self.settings.key),)
        own = (str(self.own_key),) if url == self.local_url and self.own_key.exists() else ()
        stored = (self.stored.key,) if self.stored and self.stored.key and self.stored.url == url else ()
        if not any_agent:
            return stored or own
        agent = (AGENT,) if os.environ.get("SSH_AUTH_SOCK") else ()
        return own or agent + tuple(name for name in stored if not (agent and name.startswith(AGENT)))

    @contextmanager
    def client(
        self,
        *,
        url: str | None = None,
        lifetime: str | None = None,
        label: str | None = None,
        fresh: bool = False,
        by_key: bool = True,
        accept_certificate: bool = False,
    ) -> Iterator[Client]:
        """A client of the engine. `fresh` is for the commands that sign in at somebody's word: it leaves the stored
        token aside, a certificate is trusted at its first meeting, and the keys of the SSH agent are tried where no
        other is named. Without `by_key` it signs in by code alone.

        A session of its own whose token can't be kept ends with it. Raises what `base.errors` and `client.wire` name.
        """
        lazily("certifi")  # httpcore imports it, and few ask for the authorities that it knows
        with without(*UNUSED_BY_COMMANDS):
            from hatchway.api.client.client import Client

        where = url or self.url
        signers = Signers(self.key_sources(where, any_agent=fresh) if by_key else ())
        nothing = not signers.sources and self.stored is None and not self.settings.url
        if by_key and nothing and where == self.local_url:
            raise EngineUnavailable(f"no engine has run on {self.home} yet; start one with: hatchway engine start")
        socket = self.local_socket if where == self.local_url else None
        plain = socket is not None or where.startswith("ssh://")
        tls = None if plain else self._tls(where, trust_first=fresh, accept=accept_certificate)
        tokens = TokenKeeper(self.home, lambda: signers.kept_name(client.flows.signer), self.stored, told=not fresh)
        with Client(
            where,
            sign_with=signers if signers.sources else None,
            stored=None if fresh else self.stored,
            lifetime=lifetime,
            label=label,
            on_token=tokens.keep,
            tls=tls,
            home=self.home,
            socket=socket,
            ssh=self.settings.ssh,
            remote_command=self.settings.remote_command,
        ) as client:
            try:
                yield client
            finally:
                if tokens.unkept is not None:
                    with suppress(ClientFault):
                        client.logout()
        if fresh and tokens.unkept is not None:
            raise tokens.unkept

    def _tls(self, where: str, *, trust_first: bool, accept: bool) -> ssl.SSLContext | None:
        """How to speak TLS with `where`, once it is clear that nothing goes to whoever took this host's engine's port.

        What this host's own engine says over its socket counts for more than anything; where it says nothing, only a
        certificate that is known already speaks for a port of loopback.
        """
        from hatchway.api.cli.pins import tls_for

        secure = urlsplit(where).scheme == "https"
        if listens_at(self.local, where):
            told = self.local.get("fingerprint")
            return tls_for(self.home, where, expected=told if isinstance(told, str) else None) if secure else None
        own = self._nobody_said_where() or (self._own.has_been and self._is_ours(where))
        if own and not secure:
            check_word(where, self.local, self.home)
        return tls_for(
            self.home, where, accept=accept, trust_first=trust_first and not own and not self._stored_at(where)
        )

    def _nobody_said_where(self) -> bool:
        return not self.settings.url and (self.stored is None or self.stored.key == str(self.own_key))

    def _is_ours(self, where: str) -> bool:
        return where == self.local_url or leads_to_loopback(urlsplit(where).hostname or "")

    def _stored_at(self, where: str) -> bool:
        return self.stored is not None and self.stored.url == where


class TokenKeeper:
    """Stores the tokens that a command gets for the next command.

    `unkept` is why a token could not be stored, for a session that began with this command: no later command could use
    the session.
    """

    def __init__(self, home: Path, key: Callable[[], str | None], before: StoredToken | None, *, told: bool) -> None:
        """`key` returns the name of the key that signed in, which is stored with the token."""
        self._home, self._key, self._told = home, key, told
        self._session = before.session if before else None
        self.unkept: FileRefused | None = None

    def keep(self, stored: StoredToken | None) -> None:
        """Store the token that the client has got, or forget the one that it has lost: the client's `on_token`. Raises
        FileRefused where the file is there and not private."""
        if stored is None and self.unkept is not None:
            return  # the session that ends was never stored; the stored token is of another
        try:
            store_token(self._home, stored and msgspec.structs.replace(stored, key=self._key()))
        except FileRefused as refused:
            if refused.cause not in ("unwritable", OF_A_TEST):
                raise
            if stored is None:
                self._note(f"the token lets nobody in any more, and stays: {refused.detail}")
            # A renewed token is of a session that was stored before, and its stored token is still good.
            if stored is not None and stored.session != self._session:
                self._tell(refused)
                self.unkept = refused
        else:
            self.unkept = None
            self._session = stored.session if stored else None

    def _tell(self, refused: FileRefused) -> None:
        if self._told and self.unkept is None:
            self._note(f"the session ends with this command, its token is not kept: {refused.detail}")

    @staticmethod
    def _note(words: str) -> None:
        from hatchway.api.cli.printing import note

        note(words)


def _flag_url() -> str | None:
    """The flag `--url`, after the command's name or before it."""
    context = click.get_current_context(silent=True)
    url: str | None = context.find_root().params.get("url") if context else None
    return url


def given_path(path: str) -> str:
    """A flag's path, from wherever the command was called. Raises SettingRefused."""
    try:
        return str(expanded(path).absolute())
    except ValueError as fault:
        raise SettingRefused(f"{path}: {fault}") from None


def _given_key(key: str | None) -> str | None:
    return key if key is None or key.startswith(AGENT) else given_path(key)

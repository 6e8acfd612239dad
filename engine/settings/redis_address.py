"""The `store` setting's addresses: one Redis or Valkey, or a primary that Sentinel knows."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit

if TYPE_CHECKING:
    import ssl

SCHEMES = ("redis", "rediss", "unix", "redis+sentinel", "rediss+sentinel")


TLS = {"ssl_ca_certs": "ca", "ssl_certfile": "certificate", "ssl_keyfile": "key"}
"""Parameters of an address with TLS, as redis-py spells them, and the fields of `RedisTls` that they set."""


class RedisTls(NamedTuple):
    """PEM files: the authority that the server's certificate must be from, and what this side shows, with its key."""

    ca: str | None = None
    certificate: str | None = None
    key: str | None = None

    def context(self) -> ssl.SSLContext:
        """Checks certificate and name. Without `ca` by the system's authorities, or SSL_CERT_FILE's.

        Raises ValueError in words where a file is no good.
        """
        import ssl  # imported here: commands that only look at the settings do without

        try:
            context = ssl.create_default_context(cafile=self.ca)
        except (OSError, ValueError) as error:
            raise ValueError(f"ssl_ca_certs {self.ca}: {error}") from None
        if self.certificate is not None:
            try:
                context.load_cert_chain(self.certificate, self.key)
            except (OSError, ValueError) as error:
                raise ValueError(f"ssl_certfile {self.certificate}, ssl_keyfile {self.key}: {error}") from None
        return context


class RedisAddress(NamedTuple):
    """Where the fleet's store is. `service` is the primary's name where `sentinels` are asked for it."""

    url: str
    tls: RedisTls | None = None
    sentinels: tuple[tuple[str, int], ...] = ()
    service: str = ""
    username: str | None = None
    password: str | None = None
    database: int = 0

    @property
    def shown(self) -> str:
        """Without user and password."""
        scheme, _, rest = self.url.partition("://")
        return f"{scheme}://{rest.rpartition('@')[2]}"

    def paths(self) -> tuple[str, ...]:
        """The files of this host that it names: the server's socket, the PEM files of TLS."""
        socket = unquote(urlsplit(self.url).path) if self.url.startswith("unix:") else None
        return tuple(path for path in (socket, *(self.tls or ())) if path)


def is_redis(store: str) -> bool:
    """Whether the setting `store` names a fleet's store, whatever else may be wrong with it."""
    return store.partition("://")[0] in SCHEMES


def read_address(text: str) -> RedisAddress:
    """Raises ValueError in words for what is no address of a store."""
    scheme, separator, rest = text.partition("://")
    if scheme not in SCHEMES or not separator or not rest:
        raise ValueError("an address such as redis://host:6379/0 is wanted")
    if scheme == "unix":
        return RedisAddress(text)
    try:
        return _sentinels(text, rest) if scheme.endswith("+sentinel") else _server(text)
    except ValueError:
        raise ValueError(
            "an address such as redis://host:6379/0 or redis+sentinel://host1,host2:26379/service is wanted;"
            f" one that begins with rediss may end in ?NAME=FILE, NAME being {', '.join(TLS)}"
        ) from None


def _server(text: str) -> RedisAddress:
    parts = urlsplit(text)
    database = parts.path.strip("/")
    if not parts.hostname or not (database or "0").isdigit() or parts.port == 0:  # a port out of range raises by itself
        raise ValueError
    return RedisAddress(text, _tls(text, parts.query))


def _tls(text: str, query: str) -> RedisTls | None:
    given = dict(parse_qsl(query, keep_blank_values=True, strict_parsing=bool(query)))
    if text.startswith("rediss"):
        if not given.keys() <= TLS.keys() or ("ssl_keyfile" in given) > ("ssl_certfile" in given):
            raise ValueError
        return RedisTls(**{TLS[name]: value for name, value in given.items()})
    if given:
        raise ValueError
    return None


def _sentinels(text: str, rest: str) -> RedisAddress:
    rest, _, query = rest.partition("?")
    credentials, _, where = rest.rpartition("@")
    hosts, _, path = where.partition("/")
    service, _, database = path.partition("/")
    if not service or not hosts:
        raise ValueError
    user, _, password = credentials.partition(":")
    return RedisAddress(
        text,
        _tls(text, query),
        tuple(_host(one) for one in hosts.split(",")),
        service,
        unquote(user) or None,
        unquote(password) or None,
        int(database or 0),
    )


def _host(text: str) -> tuple[str, int]:
    parts = urlsplit(f"//{text}")
    if not parts.hostname:
        raise ValueError
    return parts.hostname, parts.port or 26379

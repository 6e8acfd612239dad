"""The `store` setting's addresses: one Redis or Valkey, or a primary that Sentinel knows."""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import unquote, urlsplit

SCHEMES = ("redis", "rediss", "unix", "redis+sentinel")


class RedisAddress(NamedTuple):
    """Where the fleet's store is. `service` is the primary's name where `sentinels` are asked for it."""

    url: str
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
        return _sentinels(text, rest) if scheme == "redis+sentinel" else _server(text)
    except ValueError:
        raise ValueError(
            "an address such as redis://host:6379/0 or redis+sentinel://host1,host2:26379/service is wanted"
        ) from None


def _server(text: str) -> RedisAddress:
    parts = urlsplit(text)
    database = parts.path.strip("/")
    if not parts.hostname or not (database or "0").isdigit() or parts.port == 0:  # a port out of range raises by itself
        raise ValueError
    return RedisAddress(text)


def _sentinels(text: str, rest: str) -> RedisAddress:
    rest, _, _ = rest.partition("?")
    credentials, _, where = rest.rpartition("@")
    hosts, _, path = where.partition("/")
    service, _, database = path.partition("/")
    if not service or not hosts:
        raise ValueError
    user, _, password = credentials.partition(":")
    return RedisAddress(
        text,
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

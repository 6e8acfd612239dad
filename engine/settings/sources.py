"""Where settings come from: config.toml, environment and flags, or, in a worker process, its engine."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from hatchway.engine.base.errors import SettingRefused
from hatchway.engine.base.files import read_private
from hatchway.engine.settings.settings import RESTART, TABLE, Settings, setting, show, value_of

NOT_SETTINGS = frozenset({"HATCHWAY_HOME", "HATCHWAY_VECTORS", "HATCHWAY_EFFORT", "HATCHWAY_REDIS_SERVER"})
"""Variables that begin like a setting and are none: the engine's folder, and three that only the tests read."""

_LINK = re.compile(r"(tcp|udp|sctp)://")
"""How the address begins that Kubernetes and Docker give in `NAME_PORT`."""


def read_value(name: str, raw: object, source: str) -> Any:
    """The value of `name`, read from TOML or a text; a refusal says where it stands and what is wanted."""
    try:
        return setting(name).kind.read(raw)
    except ValueError as fault:
        raise SettingRefused(f"{source}: {name}: {fault}") from None


def flatten(document: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """TOML's nested tables as dotted names."""
    flat: dict[str, Any] = {}
    for name, value in document.items():
        flat.update(flatten(value, f"{prefix}{name}.") if isinstance(value, Mapping) else {prefix + name: value})
    return flat


OnRefusal = Callable[[SettingRefused], None]
"""Callback for each setting that is refused, where all refusals are wanted and not only the first."""


def _raise(refusal: SettingRefused) -> None:
    raise refusal


def _read_into(values: dict[str, Any], name: str, raw: object, source: str, refused: OnRefusal) -> None:
    try:
        values[name] = read_value(name, raw, source)
    except SettingRefused as refusal:
        refused(refusal)


def read_config(home: Path, refused: OnRefusal = _raise) -> dict[str, Any]:
    """What stands in config.toml, by dotted name and checked. Nothing if there is no such file."""
    path = home / "config.toml"
    try:
        data = read_private(path)
    except FileNotFoundError:
        return {}
    import tomllib  # imported here: many a folder has no such file

    try:
        document = tomllib.loads(data.decode("utf-8-sig"))  # some editors begin a file with a BOM
    except (ValueError, RecursionError) as fault:  # tomllib's own fault, bad UTF-8, a number or a nesting without end
        refused(SettingRefused(f"{path} is not TOML: {fault}"))
        return {}
    values: dict[str, Any] = {}
    for name, raw in flatten(document).items():
        _read_into(values, name, raw, str(path), refused)
    return values


def read_environment(environ: Mapping[str, str], refused: OnRefusal = _raise) -> dict[str, Any]:
    """What the variables `HATCHWAY_...` set, by dotted name and checked. An empty one sets nothing, and one that is no
    setting of ours is passed over: `foreign_variables` tells of those."""
    values: dict[str, Any] = {}
    for name, row in TABLE.items():
        text = environ.get(row.variable, "")
        if text.strip() and not _LINK.match(text):
            _read_into(values, name, text, f"environment {row.variable}", refused)
    return values


def foreign_variables(environ: Mapping[str, str]) -> Iterator[str]:
    """A sentence for each `HATCHWAY_...` variable near a setting's that is none, and one for all others' together.

    Kubernetes and Docker make such variables for each service and container of that name, `HATCHWAY_PORT` among them.
    """
    import difflib  # imported here: most environments have no such variable

    names = {row.variable: row.name for row in TABLE.values()}
    strangers = []
    for variable, text in sorted(environ.items()):
        if not variable.startswith("HATCHWAY_") or variable in NOT_SETTINGS or not text.strip():
            continue
        near = difflib.get_close_matches(variable.removeprefix("HATCHWAY_"), [n[9:] for n in names], n=1, cutoff=0.7)
        if variable in names:
            strangers += [ascii(variable)[1:-1]] if _LINK.match(text) else []
        elif near:
            yield f"no setting is named {ascii(variable)[1:-1]}; the nearest known one is HATCHWAY_{near[0]}"
        else:
            strangers.append(ascii(variable)[1:-1])
    if strangers:
        yield f"these variables are no settings of Hatchway's and are passed over: {', '.join(strangers)}"


def load_settings(home: Path, environ: Mapping[str, str], flags: Mapping[str, Any]) -> Settings:
    """The settings as config.toml, environment and flags give them, later ones winning.

    `flags` are by dotted name, as text or values; those that are None were not given. Raises SettingRefused, and
    FileRefused where others may read or write config.toml.
    """
    given = {name: read_value(name, raw, "on the command line") for name, raw in flags.items() if raw is not None}
    return _build(read_config(home) | read_environment(environ) | given)


def _build(values: Mapping[str, Any]) -> Settings:
    groups: dict[str, dict[str, Any]] = {"": {}}
    for name, value in values.items():
        group, _, field = name.rpartition(".")
        groups.setdefault(group, {})[field] = value
    top = groups.pop("")
    kinds = Settings.__annotations__
    return Settings(**top, **{group: kinds[group](**fields) for group, fields in groups.items()})


EncodedSettings = bytes
"""Settings on their way to another process: JSON by dotted name, in ASCII, since a path may not be UTF-8."""


def encode_settings(settings: Settings) -> EncodedSettings:
    """Every setting that has a value; `decode_settings` is the inverse."""
    values = {name: value_of(settings, name) for name in TABLE}
    told = {
        name: list(value) if isinstance(value, tuple) else show(name, value)
        for name, value in values.items()
        if value is not None
    }
    return json.dumps(told).encode()


def decode_settings(plain: EncodedSettings) -> Settings:
    """The settings that another process has encoded."""
    return _build({name: read_value(name, raw, "engine") for name, raw in json.loads(plain).items()})


def reload(running: Settings, fresh: Settings) -> tuple[Settings, tuple[str, ...]]:
    """The settings to go on with after a reload, and the names of those that changed but wait for a restart."""
    held = {name for name, row in TABLE.items() if row.effect == RESTART}
    if running.tls == "off" and (running.tls_cert is None) != (fresh.tls_cert is None):
        held |= {"tls_cert", "tls_key"}  # whether there is TLS at all was settled when the sockets were opened
    waiting = tuple(name for name in TABLE if name in held and value_of(running, name) != value_of(fresh, name))
    return _build({name: value_of(running if name in waiting else fresh, name) for name in TABLE}), waiting

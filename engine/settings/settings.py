"""Every setting once: name, default, kind, and when it takes effect; `engine.settings.sources` reads them.

Annotations are values here, not texts as elsewhere: the table is made of them at each start of a command.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from hatchway.engine.base.errors import SettingRefused
from hatchway.engine.base.loopback import is_loopback_name
from hatchway.engine.settings import kinds
from hatchway.engine.settings.home import home_folder as home_folder
from hatchway.engine.settings.home import user_folder
from hatchway.engine.settings.redis_address import is_redis

RESTART: Literal["restart"] = "restart"
RELOAD: Literal["reload"] = "reload"
AT_ONCE: Literal["at once"] = "at once"

KIB = 1024


def _own_images() -> tuple[str, ...]:
    """The user's own folder of images; none where the user has no home folder."""
    try:
        return (str(user_folder() / ".local/share/hatchway/images"),)
    except ValueError:
        return ()


@dataclass(frozen=True, slots=True)
class Setting:
    """What is known of one setting. `name` is dotted; the table of all is `TABLE`."""

    effect: Literal["restart", "reload", "at once"]
    kind: kinds.SettingKind
    about: str
    name: str = ""
    default: Any = None

    @property
    def variable(self) -> str:
        """Its name in the environment: `limits.wrong_codes` is `HATCHWAY_LIMITS_WRONG_CODES`."""
        return "HATCHWAY_" + self.name.replace(".", "_").upper()


def _r(kind: kinds.SettingKind, about: str) -> Setting:
    return Setting(RELOAD, kind, about)


def _s(kind: kinds.SettingKind, about: str) -> Setting:
    return Setting(RESTART, kind, about)


class SessionMaxAge(msgspec.Struct, frozen=True):
    """Seconds after sign-in that no token outlives, however often it is renewed."""

    key: Annotated[int, _r(kinds.duration(60, 8760 * 3600), "sign-in by private key")] = 168 * 3600
    pairing: Annotated[int, _r(kinds.duration(60, 8760 * 3600), "sign-in by pairing code")] = 24 * 3600


class Limits(msgspec.Struct, frozen=True):
    """How much a stranger may ask for. Bytes, seconds, counts."""

    wrong_codes: Annotated[int, _r(kinds.integer(1, 10_000), "wrong codes a minute from one address")] = 5
    wrong_codes_total: Annotated[int, _r(kinds.integer(1, 100_000), "wrong codes that withdraw a code that is out")] = (
        50
    )
    failed_verifies: Annotated[int, _r(kinds.integer(1, 100_000), "failed verifies a minute from one address")] = 60
    sessions_per_identity: Annotated[
        int, _r(kinds.integer(1, 1_000_000), "live sessions of one identity; one unused for an hour makes room")
    ] = 100
    header_bytes: Annotated[int, _r(kinds.integer(KIB, KIB * KIB), "size of a request's headers")] = 16 * KIB
    header_seconds: Annotated[int, _r(kinds.integer(1, 3600), "time for the headers from their first byte")] = 10
    body_bytes: Annotated[int, _r(kinds.integer(KIB, 64 * KIB * KIB), "size of a body")] = 64 * KIB
    instance_body_bytes: Annotated[int, _r(kinds.integer(KIB, 64 * KIB * KIB), "size of an instance's body")] = (
        256 * KIB
    )
    body_seconds: Annotated[int, _r(kinds.integer(1, 3600), "time for the body")] = 15
    idle_seconds: Annotated[int, _r(kinds.integer(1, 86_400), "time an idle connection is kept")] = 60
    write_seconds: Annotated[int, _r(kinds.integer(1, 3600), "time a write may make no progress")] = 30
    json_depth: Annotated[int, _r(kinds.integer(1, 512), "depth of a JSON body")] = 32
    instance_log_bytes: Annotated[
        int, _r(kinds.integer(64 * KIB, KIB**4), "size of an instance's log, out and err each")
    ] = 32 * KIB * KIB
    instances_per_identity: Annotated[int, _r(kinds.integer(0, 100_000), "live instances of one identity")] = 32


class SlurmSettings(msgspec.Struct, frozen=True):
    """Where `platform` is slurm: what each job is given, and what of it a request may choose."""

    folder: Annotated[
        Path | None, _s(kinds.path(), "jobs' scripts and logs; nodes share it; unset: slurm/ in here")
    ] = None
    partition: Annotated[str | None, _s(kinds.names(), "partition of jobs; unset: the cluster's own choice")] = None
    account: Annotated[str | None, _s(kinds.names(), "account of jobs; unset: the user's own")] = None
    time_limit: Annotated[int | None, _s(kinds.duration(60, 8760 * 3600), "time of jobs; unset: the partition's")] = (
        None
    )
    allow_request: Annotated[
        tuple[str, ...],
        _s(
            kinds.several(kinds.choice("partition", "account", "time_limit").read),
            "of partition, account, time_limit: what a request may choose itself",
        ),
    ] = ()


class JournalSettings(msgspec.Struct, frozen=True):
    """How much of the journal is kept: whichever of the two is less."""

    days: Annotated[int, _r(kinds.integer(1, 3660), "days that records are kept")] = 7
    bytes: Annotated[
        int, _r(kinds.integer(16 * KIB * KIB, KIB**4), "size of the journal; refusals and renewals make room first")
    ] = 64 * KIB * KIB


class LogSettings(msgspec.Struct, frozen=True):
    """The log's form: `auto` is for people on a terminal and JSON off it."""

    format: Annotated[str, _r(kinds.choice("auto", "console", "json"), "JSON off a terminal, unless said")] = "auto"
    level: Annotated[str, _r(kinds.choice("debug", "info", "warning", "error"), "the least that is logged")] = "info"


class Settings(msgspec.Struct, frozen=True):
    """All settings of engine and command, read and checked."""

    host: Annotated[str, _s(kinds.host(), "address to listen on; :: is every one, of IPv4 and IPv6")] = "127.0.0.1"
    port: Annotated[int, _s(kinds.integer(0, 65535), "port to listen on; 0 is any free one")] = 7420
    listen: Annotated[
        str, _s(kinds.choice("tcp", "unix", "both"), "tcp: host and port; unix: http.sock in the engine's folder alone")
    ] = "tcp"
    addresses: Annotated[tuple[str, ...], _r(kinds.several(kinds.address), "host:port pairs that people dial")] = ()
    trusted_proxies: Annotated[tuple[str, ...], _r(kinds.several(kinds.network), "proxies whose word counts")] = ()
    tls: Annotated[str, _s(kinds.choice("off", "auto"), "auto makes a self-signed certificate")] = "off"
    tls_cert: Annotated[Path | None, _r(kinds.path(), "certificate chain, PEM")] = None
    tls_key: Annotated[Path | None, _r(kinds.path(), "the certificate's key, PEM")] = None
    insecure_http: Annotated[bool, _s(kinds.boolean(), "plain HTTP on other than loopback")] = False
    session_max_age: SessionMaxAge = SessionMaxAge()
    limits: Limits = Limits()
    max_connections: Annotated[int, _r(kinds.integer(1, 1_000_000), "connections at once")] = 4096
    workers: Annotated[int, _s(kinds.integer(1, 256), "worker processes; 1 is none beside the engine's own")] = 1
    max_instances: Annotated[int, _r(kinds.integer(0, 100_000), "live instances")] = 64
    image_folders: Annotated[tuple[str, ...], _r(kinds.folders(), "where .sif images may lie")] = _own_images()
    registries: Annotated[tuple[str, ...], _r(kinds.several(kinds.registry), "registries images may come from")] = ()
    volume_roots: Annotated[tuple[str, ...], _r(kinds.folders(), "folders volumes may lie under")] = ()
    allow_fakeroot: Annotated[bool, _r(kinds.boolean(), "whether `fakeroot` may be asked for")] = False
    allow_root_instances: Annotated[bool, _r(kinds.boolean(), "instances of an engine that runs as root")] = False
    lane: Annotated[
        bool,
        _r(
            kinds.boolean(),
            "sign-in's requests read by a fast parser of ours; off: by the HTTP library, slower, to the same effect",
        ),
    ] = True
    metrics_open: Annotated[bool, _r(kinds.boolean(), "/metrics without a token from anywhere")] = False
    vendor_key: Annotated[str | None, _s(kinds.pem_or_path(), "the license vendor's public key, PEM or its path")] = (
        None
    )
    store: Annotated[str, _s(kinds.store(), "where sessions are kept: sqlite, or a fleet's redis://")] = "sqlite"
    keys: Annotated[
        str, _s(kinds.folder_or("home", "store"), "where authorized_keys and token key are: home, store, or a folder")
    ] = "home"
    authorized_keys_command: Annotated[
        tuple[str, ...],
        _r(kinds.argv(), "program asked for a key that authorized_keys has not; the fingerprint is its last argument"),
    ] = ()
    key_types: Annotated[
        tuple[str, ...], _r(kinds.key_types(), "types of key that may sign in: rsa, or rsa,ed25519")
    ] = ("rsa",)
    platform: Annotated[str, _s(kinds.choice("apptainer", "slurm"), "what runs instances")] = "apptainer"
    slurm: SlurmSettings = SlurmSettings()
    journal: JournalSettings = JournalSettings()
    heads_to: Annotated[
        str | None,
        _s(kinds.target(), "where signed heads of the journal are sent, such as syslog+tls://host; unset: none"),
    ] = None
    log: LogSettings = LogSettings()
    url: Annotated[str | None, Setting(AT_ONCE, kinds.url(), "engine the command talks to; unset: the local one")] = (
        None
    )
    ssh: Annotated[str, Setting(AT_ONCE, kinds.text(), "dials hosts, for `open` and ssh:// addresses")] = "ssh"
    remote_command: Annotated[
        str | None,
        Setting(AT_ONCE, kinds.text(), "`hatchway` on hosts that are dialled; unset: looked for"),
    ] = None
    key: Annotated[
        Path | str | None,
        Setting(
            AT_ONCE,
            kinds.private_key(),
            "private key the command signs in with, or agent:, agent:NAME; unset: the engine's own",
        ),
    ] = None


def keys_folder(home: Path, settings: Settings) -> Path:
    """Where authorized_keys and the token key lie: the engine's folder, one that a fleet has in common, or this host's
    copy of what its store holds. Raises SettingRefused where no store is set that could hold them."""
    if settings.keys == "store":
        if not is_redis(settings.store):
            raise SettingRefused(
                "keys = store needs a store that several engines share: set store to an address such as"
                " redis://host:6379/0, or keys to home or a folder"
            )
        return home / "fleet-keys"
    return home if settings.keys == "home" else Path(settings.keys)


def _rows(struct: type[msgspec.Struct], prefix: str = "") -> Iterator[Setting]:
    for name, default in zip(struct.__struct_fields__, struct.__struct_defaults__, strict=True):
        hint: Any = struct.__annotations__[name]
        if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
            yield from _rows(hint, f"{name}.")
        else:
            known: Setting = hint.__metadata__[0]
            yield Setting(known.effect, known.kind, known.about, prefix + name, default)


TABLE: Mapping[str, Setting] = {row.name: row for row in _rows(Settings)}
"""Every setting by its dotted name, in the order of the struct."""


def setting(name: str) -> Setting:
    """The setting of that name, or a refusal that names the nearest one."""
    if name in TABLE:
        return TABLE[name]
    import difflib  # imported here: few names are wrong

    near = difflib.get_close_matches(name.lower().replace("-", "_"), TABLE, n=1, cutoff=0.0)
    raise SettingRefused(f"unknown setting '{name}'; the nearest known one is '{near[0]}'")


def value_of(settings: Settings, name: str) -> Any:
    """The value that `settings` has for the dotted `name`."""
    value: Any = settings
    for part in setting(name).name.split("."):
        value = getattr(value, part)
    return value


def show(name: str, value: Any) -> str:
    """A value as text, in the form that `config set` reads; empty where it is unset."""
    return "" if value is None else setting(name).kind.show(value)


def check_listening(settings: Settings) -> None:
    """Refuse to listen in a way that sends tokens over a network in clear, or with half a certificate."""
    if (settings.tls_cert is None) != (settings.tls_key is None):
        raise SettingRefused("tls_cert and tls_key go together: set both or neither")
    if settings.listen == "unix":
        return
    if not (is_loopback_name(settings.host) or settings.tls_cert or settings.tls == "auto" or settings.insecure_http):
        raise SettingRefused(
            f"{settings.host} is not a loopback address: add --tls auto, or --tls-cert and --tls-key, "
            "or --insecure-http to send tokens in clear"
        )

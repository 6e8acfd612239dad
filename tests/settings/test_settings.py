"""Settings: one table, three sources, and refusals that say what is wanted."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hatchway.engine.base.errors import FileRefused, SettingRefused
from hatchway.engine.settings.config_file import set_value, unset_value
from hatchway.engine.settings.settings import TABLE, Settings, check_listening, home_folder, setting, show, value_of
from hatchway.engine.settings.sources import foreign_variables, load_settings, read_value, reload

COMMENTED = """# the host behind the lift
port = 7000  # not the default

[limits]  # raised in spring
# per address
wrong_codes = 7
"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    tmp_path.chmod(0o700)
    return tmp_path


def write_config(home: Path, text: str) -> Path:
    path = home / "config.toml"
    path.write_text(text)
    path.chmod(0o600)
    return path


def test_defaults_are_the_decided_figures(home: Path) -> None:
    """Without any source the settings are those of the handbook's table."""
    settings = load_settings(home, {}, {})
    assert settings == Settings()
    assert (settings.host, settings.port, settings.max_connections, settings.max_instances) == (
        "127.0.0.1",
        7420,
        4096,
        64,
    )
    assert (settings.session_max_age.key, settings.session_max_age.pairing) == (7 * 86_400, 86_400)
    assert (settings.limits.wrong_codes, settings.limits.wrong_codes_total, settings.limits.failed_verifies) == (
        5,
        50,
        60,
    )
    assert settings.limits.header_bytes == 16_384


def test_later_sources_win(home: Path) -> None:
    """config.toml, then the environment, then flags."""
    write_config(home, "port = 1\nmax_instances = 1\nmax_connections = 1\n")
    environ = {"HATCHWAY_PORT": "2", "HATCHWAY_MAX_INSTANCES": "2", "HATCHWAY_HOME": str(home), "PATH": "/bin"}
    settings = load_settings(home, environ, {"port": "3", "host": None})
    assert (settings.port, settings.max_instances, settings.max_connections) == (3, 2, 1)


def test_dotted_names_are_tables_in_the_file_and_underscores_outside(home: Path) -> None:
    """`limits.wrong_codes` is `[limits] wrong_codes` and HATCHWAY_LIMITS_WRONG_CODES."""
    write_config(home, COMMENTED)
    settings = load_settings(home, {"HATCHWAY_SESSION_MAX_AGE_KEY": "12h"}, {"log.format": "json"})
    assert settings.limits.wrong_codes == 7
    assert settings.session_max_age.key == 12 * 3600
    assert settings.log.format == "json"


@pytest.mark.parametrize(
    ("text", "nearest"),
    [("prot = 1\n", "port"), ("[limits]\nwrong_code = 1\n", "limits.wrong_codes"), ("Max-Instances = 1\n", "max_inst")],
)
def test_an_unknown_setting_names_the_nearest(home: Path, text: str, nearest: str) -> None:
    """A typing error is never passed over."""
    write_config(home, text)
    with pytest.raises(SettingRefused, match=f"unknown setting.*nearest known one is '{nearest}"):
        load_settings(home, {}, {})


OTHERS = {
    "HATCHWAY_SERVICE_HOST": "10.0.0.7",
    "HATCHWAY_SERVICE_PORT": "7420",
    "HATCHWAY_SERVICE_PORT_HTTP": "7420",
    "HATCHWAY_PORT": "tcp://10.0.0.7:7420",
    "HATCHWAY_PORT_7420_TCP": "tcp://10.0.0.7:7420",
    "HATCHWAY_PORT_7420_TCP_PROTO": "tcp",
    "HATCHWAY_PORT_7420_TCP_PORT": "7420",
    "HATCHWAY_PORT_7420_TCP_ADDR": "10.0.0.7",
    "HATCHWAY_NAME": "/console/hatchway",
    "HATCHWAY_ENV_PATH": "/bin",
    "HATCHWAY_ROOT": "/opt/hatchway/1.4",
    "HATCHWAY_VERSION": "1.4",
    "HATCHWAY_\udcff\x1b[2J": "x",
}
"""What Kubernetes, Docker and module files set for something that is called hatchway; and a name of no text."""


def test_variables_of_others_set_nothing(home: Path) -> None:
    """What can't be a setting is passed over and told in one sentence, without its value or what a terminal acts on."""
    write_config(home, "port = 7000\n")
    assert load_settings(home, OTHERS, {}) == load_settings(home, {}, {})
    (told,) = foreign_variables(OTHERS)
    for name in OTHERS:
        assert ascii(name)[1:-1] in told
    assert told.isascii()
    assert told.isprintable()
    assert "10.0.0.7" not in told


def test_an_empty_variable_sets_nothing(home: Path) -> None:
    """Empty is none, for each setting; for a list in config.toml too, which it does not empty."""
    write_config(home, 'port = 7000\naddresses = ["engine.example:1"]\n')
    for text in ("", "  "):
        environ = dict.fromkeys([*(row.variable for row in TABLE.values()), "HATCHWAY_PROT"], text)
        assert load_settings(home, environ, {}) == load_settings(home, {}, {})
        assert not list(foreign_variables(environ))


def test_an_unknown_variable_names_the_nearest(home: Path) -> None:
    """A name near a setting's is a typing error: it is told with the nearest known one, and stops nothing."""
    environ = {"HATCHWAY_PROT": "1", "HATCHWAY_LIMIT_WRONG_CODES": "9", "HATCHWAY_PORT": "7001", "HATCHWAY_HOME": "/x"}
    assert load_settings(home, environ, {}).port == 7001
    assert list(foreign_variables(environ)) == [
        "no setting is named HATCHWAY_LIMIT_WRONG_CODES; the nearest known one is HATCHWAY_LIMITS_WRONG_CODES",
        "no setting is named HATCHWAY_PROT; the nearest known one is HATCHWAY_PORT",
    ]


def test_a_setting_of_ours_with_a_wrong_value_is_refused(home: Path) -> None:
    """Under a setting's own name only what others write there is passed over: a slip must not mean the default."""
    for name, text in (("HATCHWAY_PORT", "74200"), ("HATCHWAY_STORE", "rediss:/typo"), ("HATCHWAY_URL", "ftp://x")):
        with pytest.raises(SettingRefused, match=f"environment {name}"):
            load_settings(home, {name: text}, {})


@pytest.mark.parametrize(
    ("name", "raw", "words"),
    [
        ("port", "x", "whole number"),
        ("port", 70_000, "from 0 to 65535"),
        ("port", True, "whole number"),
        ("port", 1.5, "whole number"),
        ("host", "two words", "IP address or a host name"),
        ("host", "a:1", "IP address or a host name"),
        ("host", "999.1.1.1", "IP address or a host name"),
        ("allow_fakeroot", "maybe", "true or false"),
        ("allow_fakeroot", 1, "true or false"),
        ("session_max_age.key", "168", "duration"),
        ("session_max_age.key", 168, "text"),
        ("session_max_age.key", "0m", "from 1m to 8760h"),
        ("tls_cert", "cert.pem", "path from / or ~"),
        ("addresses", "engine.example", "host:port"),
        ("addresses", "http://engine.example", "without http://"),
        ("addresses", "https://engine.example:443", "without http://"),
        ("addresses", "engine..example:443", "host name"),
        ("host", f"{'a' * 64}.example", "host name"),
        ("url", "http://engine..example:7420", "host name"),
        ("authorized_keys_command", ["/bin/x", "a\0b"], "NUL"),
        ("addresses", ["::1:7420"], "brackets"),
        ("addresses", 3, "list"),
        ("addresses", [3], "text"),
        ("trusted_proxies", "10.0.0.1/8", "network"),
        ("registries", "https://docker.io", "registry's host"),
        ("volume_roots", "data", "path from / or ~"),
        ("platform", "docker", "one of apptainer"),
        ("platform", ["apptainer"], "one of apptainer"),
        ("store", "postgres://x", "sqlite, or an address such as redis://"),
        ("store", "redis://x/0?ssl_ca_certs=/ca.pem", "one that begins with rediss"),
        ("store", "rediss://x/0?ssl_cert_reqs=none", "NAME being ssl_ca_certs"),
        ("store", "redis+sentinel://x/fleet?ssl_ca_certs=/ca.pem", "one that begins with rediss"),
        ("store", "rediss://x/0?ssl_keyfile=/key.pem", "NAME being ssl_ca_certs"),
        ("store", "redis+sentinel://one,two", "/service"),
        ("store", "redis://host/zero", "redis://host:6379/0"),
        ("keys", "somewhere", "store or a path"),
        ("log.level", "loud", "one of debug"),
        ("url", "ftp://engine", "http://127.0.0.1:7420"),
        ("url", "http://me:secret@engine", "http://127.0.0.1:7420"),
        ("url", "http://engine/console", "without a path"),
        ("url", "http://127.0.0.1:7420.", "its port is a number"),
        ("url", "http://engine:99999", "port"),
        ("key_types", "ed25519", "own key is of RSA"),
        ("key_types", "", "rsa is wanted"),
        ("key", "a\nb", "one line"),
        ("key", "agent", "or agent: for a key of the SSH agent"),
        ("vendor_key", "", "a text"),
    ],
)
def test_a_wrong_value_is_refused_in_words(name: str, raw: object, words: str) -> None:
    """A refusal names the source, the setting and what is wanted."""
    with pytest.raises(SettingRefused, match=f"(?i)^here: {name}: .*{words}"):
        read_value(name, raw, "here")


def test_values_are_put_into_one_form() -> None:
    """Case, brackets, blanks and doubles don't make two values of one."""
    assert read_value("addresses", " Engine.Example:07420, [::1]:7420,[0:0::1]:7420", "") == (
        "engine.example:7420",
        "[::1]:7420",
    )
    assert read_value("host", "[::1]", "") == "::1"
    assert read_value("url", "https://engine.example:8443/", "") == "https://engine.example:8443"
    assert read_value("registries", "", "") == ()


def test_setting_a_value_keeps_comments_and_mode(home: Path) -> None:
    """`config set` and `unset` change one line; the file stays private and readable for its author."""
    path = write_config(home, COMMENTED)
    set_value(home, "port", "7001")
    set_value(home, "limits.body_seconds", "20")
    set_value(home, "registries", "docker.io,ghcr.io")
    text = path.read_text()
    assert "port = 7001  # not the default" in text
    assert 'registries = ["docker.io", "ghcr.io"]' in text
    assert all(line in text for line in COMMENTED.splitlines() if "port" not in line)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    for name in ("port", "limits.body_seconds", "registries"):
        assert unset_value(home, name)
        assert not unset_value(home, name)
    assert load_settings(home, {}, {}).limits.wrong_codes == 7
    assert "# the host behind the lift" in path.read_text()


def test_the_first_value_makes_a_private_file(home: Path) -> None:
    """A new config.toml is 0600 under any umask."""
    before = os.umask(0)
    try:
        set_value(home, "url", "http://127.0.0.1:1")
    finally:
        os.umask(before)
    assert stat.S_IMODE((home / "config.toml").stat().st_mode) == 0o600


def test_a_refused_value_changes_nothing(home: Path) -> None:
    """The file is byte for byte what it was, and one that isn't TOML is left for its author."""
    path = write_config(home, COMMENTED)
    for name, text in (("port", "x"), ("nothing", "1"), ("limits.nothing", "1")):
        with pytest.raises(SettingRefused):
            set_value(home, name, text)
    assert path.read_text() == COMMENTED
    write_config(home, "port = = 1")
    with pytest.raises(SettingRefused, match="is not TOML"):
        set_value(home, "port", "1")
    with pytest.raises(SettingRefused, match="is not TOML"):
        load_settings(home, {}, {})
    assert path.read_text() == "port = = 1"


def test_a_byte_order_mark_is_no_fault(home: Path) -> None:
    """Some editors put one at the beginning of a file: it is read, and edited, as if it were not there."""
    write_config(home, "\ufeffport = 2\n")
    assert load_settings(home, {}, {}).port == 2
    set_value(home, "log.level", "debug")
    settings = load_settings(home, {}, {})
    assert (settings.port, settings.log.level) == (2, "debug")


def test_an_unknown_setting_can_be_taken_out(home: Path) -> None:
    """What `config list` refuses, `config unset` mends."""
    write_config(home, "prot = 1\nport = 2\n")
    assert unset_value(home, "prot")
    assert load_settings(home, {}, {}).port == 2
    with pytest.raises(SettingRefused, match="nearest"):
        unset_value(home, "prot")


def test_a_file_others_may_write_is_refused(home: Path) -> None:
    """Whoever writes config.toml decides what the engine trusts."""
    write_config(home, "port = 1\n").chmod(0o622)
    with pytest.raises(FileRefused, match="chmod"):
        load_settings(home, {}, {})


def test_every_setting_survives_the_file(home: Path) -> None:
    """What `config get` shows, `config set` reads back to the same value."""
    for name in TABLE:
        value = value_of(Settings(), name)
        if value is not None:
            set_value(home, name, show(name, value))
    assert load_settings(home, {}, {}) == Settings()


@given(st.sampled_from(sorted(TABLE)), st.one_of(st.text(), st.integers(), st.floats(), st.lists(st.text())))
def test_any_value_is_taken_or_refused_in_words(name: str, raw: object) -> None:
    """No input to a setting raises anything but its refusal, and what is taken is shown and taken again."""
    try:
        value = read_value(name, raw, "here")
    except SettingRefused:
        return
    assert read_value(name, show(name, value), "here") == value


def test_reload_takes_what_it_may() -> None:
    """A setting of `restart` keeps its running value on SIGHUP and is named; the others change."""
    running, fresh = Settings(), Settings(port=1, max_instances=1, url="http://127.0.0.1:1")
    settings, waiting = reload(running, fresh)
    assert waiting == ("port",)
    assert settings == msgspec.structs.replace(fresh, port=7420)


def test_a_certificate_is_taken_up_only_where_there_is_tls() -> None:
    """Whether the engine speaks TLS waits for a restart, and is told; another certificate for those that do doesn't."""
    plain, one, two = (Settings(tls_cert=path, tls_key=path) for path in (None, Path("/1"), Path("/2")))
    assert reload(plain, one) == (plain, ("tls_cert", "tls_key"))
    assert reload(one, plain) == (one, ("tls_cert", "tls_key"))
    assert reload(one, two) == (two, ())
    made = Settings(tls="auto")
    assert reload(made, msgspec.structs.replace(made, tls_cert=Path("/1"), tls_key=Path("/1")))[1] == ()


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", "localhost", "me.localhost"])
def test_loopback_needs_no_tls(host: str) -> None:
    """Plain HTTP is for this host alone."""
    check_listening(Settings(host=host))


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "engine.example"])
def test_other_addresses_want_tls_or_the_word(host: str) -> None:
    """D37: an address that others reach wants TLS, or --insecure-http spelled out."""
    with pytest.raises(SettingRefused, match=r"--tls auto.*--insecure-http"):
        check_listening(Settings(host=host))
    check_listening(Settings(host=host, tls="auto"))
    check_listening(Settings(host=host, insecure_http=True))
    check_listening(Settings(host=host, tls_cert=Path("/c"), tls_key=Path("/k")))
    with pytest.raises(SettingRefused, match="go together"):
        check_listening(Settings(host=host, tls_cert=Path("/c")))


def test_home_folder_moves() -> None:
    """HATCHWAY_HOME moves the engine's folder; an empty one doesn't."""
    assert home_folder({"HATCHWAY_HOME": "/x"}) == Path("/x")
    assert home_folder({"HATCHWAY_HOME": ""}) == Path.home() / ".hatchway"
    assert setting("port").variable == "HATCHWAY_PORT"

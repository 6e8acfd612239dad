"""The command as people and programs use it: help, words, exit codes, JSON. No engine runs here."""

from __future__ import annotations

import json
import os
import re
import stat
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from hatchway.api.cli import cli
from hatchway.api.cli.failures import MENDED
from hatchway.api.cli.groups import LazyGroup
from hatchway.api.cli.host import load_stored, store_token
from hatchway.api.client.flows import StoredToken
from hatchway.engine.base.errors import Refusal
from hatchway.engine.settings.settings import TABLE
from tests.support.command import HATCHWAY, process, run
from tests.support.fakes import ROOT

pytestmark = pytest.mark.usefixtures("command_folder")

HEAVY = (
    *("httpcore", "quart", "hypercorn", "cryptography", "jwt", "trio", "transitions"),
    *("rich", "msgspec", "structlog", "hatchway.engine.engine"),
)


def every_command(group: click.Group = cli, path: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], click.Command]]:
    context = click.Context(group)
    found: list[tuple[tuple[str, ...], click.Command]] = [(path, group)]
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None, name
        if isinstance(command, click.Group):
            found += every_command(command, (*path, name))
        else:
            found.append(((*path, name), command))
    return found


# Help


def test_help_is_cheap() -> None:
    """`--help` of the command and of each group imports nothing heavy; that is what keeps it under 150 ms."""
    code = (
        "import sys\nfrom hatchway.api.cli import cli\ntry: cli()\nfinally: print([m for m in %r if m in sys.modules])"
    )
    for arguments in ((), ("engine",), ("key",), ("config",), ("session",)):
        done = subprocess.run(
            [sys.executable, "-c", code % (HEAVY,), *arguments, "--help"],
            cwd=ROOT,
            text=True,
            capture_output=True,
            timeout=60,
            check=True,
        )
        assert done.stdout.endswith("[]\n"), (arguments, done.stdout[-300:])


@pytest.mark.parametrize("path", [path for path, _ in every_command()], ids=" ".join)
def test_every_help_teaches_by_example(path: tuple[str, ...]) -> None:
    """Each command's help says what it does and shows a line to type, which is a command that exists."""
    output = run(*path, "--help").output
    assert re.match(r"Usage: hatchway.*\n\n  [A-Z]", output), path
    examples = re.findall(r"(?m)^\s+(?:.*&& )?hatchway((?: [a-z-]+)+)", output)
    assert examples, f"no example in the help of {path}"
    known = {p for p, _ in every_command()}
    for example in examples:
        words = tuple(example.split())
        assert any(words[:length] in known for length in (1, 2)), example


def test_the_decided_commands_are_there() -> None:
    """The commands of contract 4.6 and of the decisions."""
    paths = {" ".join(path) for path, _ in every_command()}
    assert paths >= {
        *("login", "logout", "pair"),
        *(f"key {name}" for name in ("list", "generate", "register", "unregister", "rotate-engine", "rotate-token")),
        *(f"engine {name}" for name in ("start", "stop", "status", "ping", "pair")),
        *(f"config {name}" for name in ("get", "set", "unset", "list")),
        *("license info", "session list", "session revoke"),
    }


def test_a_group_without_a_command_prints_its_help() -> None:
    """Nothing typed is a question, not a mistake without words."""
    assert "Commands:" in run("key", code=2).output


def test_a_mistyped_command_is_usage_and_names_the_nearest() -> None:
    """Exit code 2 is for what was typed wrong."""
    assert "Did you mean 'config'?" in run("confg", code=2).stderr
    assert "'register'" in run("key", "registr", code=2).stderr


@pytest.mark.parametrize(
    ("typed", "told"),
    [
        ("session --json list", "'--json' comes after the command's name: hatchway session list --json"),
        ("--json session list", "'--json' comes after the command's name: hatchway session list --json"),
        ("engine --port 0 start", "'--port' comes after the command's name: hatchway engine start --port"),
        ("session --url http://x list", "'--url' comes after the command's name: hatchway session list --url"),
        ("engine stop --url http://x", "`hatchway engine stop` acts on this machine, where --url means nothing"),
        ("events --url http://x", "`hatchway events` acts on this machine, where --url means nothing"),
        ("--since 1h events", "'--since' comes after the command's name: hatchway events --since"),
        ("session --jsn list", "No such option '--jsn'."),
        ("session list --port", "No such option '--port'."),
        ("--json", "No such option '--json'."),
    ],
)
def test_an_option_before_its_command_is_told_its_place(typed: str, told: str) -> None:
    """Also one of a group's command before the group's name; what no command has is unknown."""
    assert f"Error: {told}" in run(*typed.split(), code=2).stderr


def test_the_way_out_of_a_refusal_is_a_command() -> None:
    """Each hint ends in a line to type, of a command that exists, for a code that the engine has."""
    known = {" ".join(path) for path, _ in every_command()}
    causes = {"ambiguous", "no_key_file", "unknown_key"}
    assert set(MENDED) <= {kind.code for kind in Refusal.__subclasses__()} | causes
    for hint in MENDED.values():
        line = hint.rpartition(": hatchway ")[2]
        command, _, setting = line.rpartition(" ")
        assert line in known or (command == "config get" and setting in TABLE), hint


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("config", "get", "prt"), ["unknown setting 'prt'; the nearest known one is 'port'", "hatchway config list"]),
        (("key", "unregister", "x"), ["no authorized key has the identity or comment 'x'", "hatchway key list"]),
        (
            ("login", "--url", "http://127.0.0.1:1", "--key", "x.pem"),
            ["x.pem: no such key file", "hatchway key generate"],
        ),
        (("login", "--url", "http://127.0.0.1:7420"), ["there is no key to sign in with", "hatchway pair --url URL"]),
        (("events", "of", "nobody"), ["the journal has no record of 'nobody'", "hatchway events"]),
        (("engine", "status"), ["no engine runs on", "hatchway engine start"]),
    ],
)
def test_a_refusal_ends_with_the_command_that_leads_on(arguments: tuple[str, ...], words: list[str]) -> None:
    """What happened first, and what to type last."""
    said = run(*arguments, code=1).stderr
    assert words[0] in said
    assert said.rstrip().endswith(words[1])


@pytest.mark.parametrize("path", [path for path, command in every_command() if isinstance(command, click.Group)])
def test_no_summary_is_cut(path: tuple[str, ...]) -> None:
    """The list of commands says what each does in words that fit into 80 columns."""
    assert "..." not in run(*path, "--help").stdout.partition("Commands:")[2].partition("Example")[0]


# Colour


def test_no_colour_off_a_terminal() -> None:
    """Neither results nor errors carry escapes where nobody sees colour."""
    for arguments in (("config", "list"), ("engine", "status"), ("license", "info")):
        done = process(*arguments)
        assert "\x1b" not in done.stdout + done.stderr


def test_no_color_is_kept() -> None:
    """NO_COLOR wins even where colour could be shown."""
    coloured = CliRunner().invoke(cli, ["engine", "status"], color=True)
    plain = CliRunner(env={"NO_COLOR": "1"}).invoke(cli, ["engine", "status"], color=True)
    assert "\x1b[31m" in coloured.stderr
    assert "\x1b" not in plain.stderr


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts(shell: str) -> None:
    """`completion SHELL` prints a script of that shell that calls us back."""
    script = run("completion", shell).stdout
    assert "_HATCHWAY_COMPLETE" in script
    assert f"{shell}_complete" in script


def test_version() -> None:
    """`--version` answers whether or not the package is installed."""
    assert run("--version").output.startswith("hatchway")


# Settings


def test_a_password_is_not_said_on_the_command_line(home: Path) -> None:
    """E11: a setting's value comes from standard input too; a password among the command's words is warned of."""
    run("config", "set", "store", "-", input="redis://:sesame@redis.example:6379/0\n")
    assert "sesame" in (home / "config.toml").read_text()
    assert "sesame" not in run("config", "get", "store").output
    told = run("config", "set", "store", "redis://:other@redis.example:6379/0").stderr
    assert "list of processes" in told
    assert "other@" not in told
    assert run("config", "set", "port", "7000").stderr == ""


def test_config_round_trip(home: Path) -> None:
    """Set, get, list and unset, with where a value comes from."""
    assert run("config", "get", "port").stdout == "7420\n"
    run("config", "set", "port", "7000")
    run("config", "set", "session_max_age.key", "24h")
    assert run("config", "get", "port").stdout == "7000\n"
    assert json.loads(run("config", "get", "session_max_age.key", "--json").stdout)["value"] == "24h"
    rows = {row["name"]: row for row in json.loads(run("config", "list", "--json").stdout)}
    assert set(rows) == {*TABLE, "connection-token"}
    assert rows["port"] == {"name": "port", "value": "7000", "source": "config.toml", "effect": "restart"}
    assert rows["host"]["source"] == "default"
    assert run("config", "get", "port", env={"HATCHWAY_PORT": "1"}).stdout == "1\n"
    run("config", "unset", "port")
    assert run("config", "get", "port").stdout == "7420\n"
    assert "was not set" in run("config", "unset", "port").stderr
    assert stat.S_IMODE((home / "config.toml").stat().st_mode) == 0o600


def test_a_reader_that_has_enough_is_no_failure(home: Path) -> None:
    """`hatchway config list | head -1`: nothing is said of the pipe."""
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = subprocess.run(
            [*HATCHWAY, "config", "list"],
            cwd=ROOT,
            env={**os.environ, "HATCHWAY_HOME": str(home)},
            stdout=writing,
            stderr=subprocess.PIPE,
            timeout=60,
            check=False,
        )
    finally:
        os.close(writing)
    assert done.stderr == b""


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_closed_stream_is_no_failure(home: Path, closed: str) -> None:
    """What a command would say to a standard stream that is closed goes nowhere, into no file of ours above all."""
    for arguments in (("config", "set", "port", "7000"), ("config", "list"), ("key", "list", "--json")):
        done = subprocess.run(
            ["/bin/sh", "-c", f'exec "$@" {closed}', "sh", *HATCHWAY, *arguments],
            cwd=ROOT,
            env={**os.environ, "HATCHWAY_HOME": str(home)},
            text=True,
            capture_output=True,
            timeout=60,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, ""), arguments
    assert (home / "config.toml").read_text() == "port = 7000\n"


def test_config_refuses_in_words() -> None:
    """What is unknown names the nearest, what is wrong says what is wanted, what is unset exits with 1."""
    for arguments in (("set", "prot", "1"), ("get", "prot")):
        assert "the nearest known one is 'port'" in run("config", *arguments, code=1).stderr
    for value in ("x9", "70000", "7420.0"):
        refused = run("config", "set", "port", value, code=1).stderr
        assert refused.startswith("config set: port: a whole number from 0 to 65535 is wanted\n")
    assert "a whole number" in run("config", "set", "max_instances", "-1", code=1).stderr
    assert "is not set" in run("config", "get", "url", code=1).stderr


def test_variables_of_others_stop_no_command(home: Path) -> None:
    """Service links, empty values and unknown variables: each command goes on, and says so once on standard error."""
    links = {"HATCHWAY_SERVICE_HOST": "10.0.0.7", "HATCHWAY_PORT": "tcp://10.0.0.7:7420", "HATCHWAY_TLS": ""}
    for arguments in (("config", "list"), ("config", "get", "port"), ("license", "info"), ("key", "list")):
        done = run(*arguments, env={**links, "HATCHWAY_PROT": "1"})
        assert done.stderr.count("HATCHWAY_SERVICE_HOST") == 1
        assert done.stderr.count("the nearest known one is HATCHWAY_PORT") == 1
        assert "10.0.0.7" not in done.output
    assert run("config", "get", "port", env=links).stdout == "7420\n"
    assert run("config", "list", env={"HATCHWAY_TLS": ""}).stderr == ""


def test_the_list_of_settings_shows_what_is_wrong(home: Path) -> None:
    """What other commands refuse for, `config list` tells beside all the rest, and exits with 1."""
    home.mkdir(0o700, exist_ok=True)
    config = home / "config.toml"
    config.write_text("prot = 1\nport = 7001\nmax_instances = -1\n")
    config.chmod(0o600)
    done = run("config", "list", "--json", code=1, env={"HATCHWAY_HOST": "two words"})
    assert {row["name"]: row["value"] for row in json.loads(done.stdout)}["port"] == "7001"
    for words in (
        "'prot'; the nearest known one is 'port'",
        "max_instances: a whole",
        "environment HATCHWAY_HOST: host",
    ):
        assert words in done.stderr
    assert "hatchway config list" in run("config", "get", "port", code=1).stderr
    config.write_text("port = = 7001\n")
    done = run("config", "list", "--json", code=1, env={"HATCHWAY_HOST": "::1"})
    assert {row["name"]: row["value"] for row in json.loads(done.stdout)}["host"] == "::1"
    assert "is not TOML" in done.stderr


def test_the_stored_token_is_never_shown(home: Path) -> None:
    """`config` shows that a token is set; `unset` takes its file away."""
    store_token(home, StoredToken("http://127.0.0.1:1", "aa.bb.secret", 1, 1.0, 1))
    assert stat.S_IMODE((home / "connection-token").stat().st_mode) == 0o600
    for arguments in (("list",), ("list", "--json"), ("get", "connection-token")):
        output = run("config", *arguments).output
        assert "set" in output
        assert "secret" not in output
    run("config", "set", "connection-token", "x", code=2)
    run("config", "unset", "connection-token")
    assert not (home / "connection-token").exists()
    assert "was not set" in run("config", "unset", "connection-token").stderr


@pytest.mark.parametrize("text", ["", "{", "[]", '{"url": 5}', "\xff"])
def test_a_damaged_token_file_is_as_none(home: Path, text: str) -> None:
    """A stored token that can't be read is replaced at the next sign-in, not a reason to fail."""
    home.mkdir(0o700)
    (home / "connection-token").write_text(text)
    (home / "connection-token").chmod(0o600)
    assert load_stored(home) is None


# Without an engine


@pytest.mark.parametrize(
    "arguments",
    [("engine", "status"), ("engine", "stop"), ("engine", "reload"), ("engine", "pair"), ("engine", "ping")],
)
def test_without_an_engine_the_way_to_start_one_is_told(arguments: tuple[str, ...]) -> None:
    """Exit code 1, one sentence, and the command that mends it."""
    result = run(*arguments, code=1)
    assert "start one with: hatchway engine start" in result.stderr
    assert result.stdout == ""


def test_a_socket_of_nobody_is_no_engine(home: Path) -> None:
    """What kill -9 leaves of an engine is not taken for one."""
    import socket

    home.mkdir(0o700)
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(home / "operator.sock"))
    assert "no engine runs" in run("engine", "status", code=1).stderr


def test_lifetimes_are_checked_before_anything_is_asked() -> None:
    """Malformed is usage; out of range falls back to 1 hour and says so (section 4.2)."""
    for command in (("login",), ("engine", "pair")):
        run(*command, "--lifetime", "banana", code=2)
        run(*command, "--lifetime", "10", code=2)
        assert "1h is used" in run(*command, "--lifetime", "25h", code=1).stderr


def test_unsafe_listening_is_refused_before_the_engine_starts() -> None:
    """D37: an address that others reach wants TLS or the word."""
    assert "--insecure-http" in run("engine", "start", "--host", "0.0.0.0", code=1).stderr
    assert "go together" in run("engine", "start", "--tls-cert", "/x", code=1).stderr
    run("engine", "start", "--port", "70000", code=2)


def test_license_info() -> None:
    """Without a vendor key there is the community license, which grants every module."""
    told = json.loads(run("license", "info", "--json").stdout)
    assert told["licensee"] == "community"
    assert set(told["modules"].values()) == {True}
    refused = run("license", "info", env={"HATCHWAY_VENDOR_KEY": "/nothing"}, code=1)
    assert "vendor_key" in refused.stderr


def test_a_missing_key_file_is_told() -> None:
    """A mistyped --key is a sentence, not a stack trace."""
    result = run("login", "--url", "http://127.0.0.1:1", "--key", "nothing.pem", code=1)
    assert "nothing.pem: no such key file" in result.stderr


@pytest.mark.parametrize("code", ["12", "R762YBCT.", "7K3MQ9XU", "http://127.0.0.1:1/#pair=7K3M"])
def test_what_is_no_code_is_sent_nowhere(code: str) -> None:
    """A slip of the finger is no guess, of which an address has few."""
    assert "8 letters and digits" in run("pair", code, code=2).stderr


def test_session_revoke_wants_one_choice() -> None:
    """IDs, --all or --key: exactly one of them."""
    for arguments in ((), ("--all", "x"), ("--all", "--key", "x")):
        assert "give session IDs" in run("session", "revoke", *arguments, code=2).stderr


def test_lazy_groups_name_real_commands() -> None:
    """Each line of a table of commands leads to a command of that name."""
    for path, command in every_command():
        if isinstance(command, LazyGroup):
            context = click.Context(command)
            for name in command.list_commands(context):
                found = command.get_command(context, name)
                assert found is not None
                assert found.name == name, (path, name)

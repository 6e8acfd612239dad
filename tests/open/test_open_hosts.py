"""`hatchway open` on hosts as people have them: a table of SSH set-ups, each to a signed-in console and back."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
import trio

from tests.support.opening import opening, refused
from tests.support.ports import free_port
from tests.support.processes import HATCHWAY
from tests.support.ssh_server import SshHost, keygen, reachable, ssh_hosts

pytestmark = [pytest.mark.process, pytest.mark.sshd]


class Case(NamedTuple):
    """A set-up: what it does to the host before it starts, and the sentence where it is refused."""

    name: str
    prepare: Callable[[SshHost], None]
    refusal: str = ""
    flags: tuple[str, ...] = ()
    shows: str = ""


def _plain(host: SshHost) -> None: ...


def _user_setting(*lines: str) -> Callable[[SshHost], None]:
    return lambda host: host.client_settings.extend(lines)


def _server_setting(*lines: str) -> Callable[[SshHost], None]:
    return lambda host: host.settings.extend(lines)


def _shell(name: str) -> Callable[[SshHost], None]:
    def prepare(host: SshHost) -> None:
        host.shell(str(shutil.which(name)))
        if name == "tcsh":
            (host.home / ".login").write_text("setenv PATH $HOME/bin:$PATH\necho hello from .login\n")
        if name == "zsh":
            (host.home / ".zprofile").write_text('export PATH="$HOME/bin:$PATH"\necho hello from .zprofile\n')
        if name == "fish":
            (host.home / ".config/fish").mkdir(parents=True)
            (host.home / ".config/fish/config.fish").write_text("set -x PATH $HOME/bin $PATH\necho hello\n")

    return prepare


def _noisy(host: SshHost) -> None:
    banner = host.folder / "banner"
    banner.write_text("AUTHORIZED USERS ONLY\n")
    host.settings.append(f"Banner {banner}")
    for name in (".profile", ".bashrc"):
        with (host.home / name).open("a") as file:
            file.write('echo "hatchway-00 none"; echo "{}" ; printf "no line end"; echo "to stderr" >&2\n')


def _ipv6(host: SshHost) -> None:
    host.address = "::1"


def _forwards_of_their_own(host: SshHost) -> None:
    host.client_settings += [f"LocalForward {free_port()} 127.0.0.1:1", "ExitOnForwardFailure yes", "ForwardX11 yes"]


def _askpass(host: SshHost) -> None:
    host.user_key = host.folder / "locked_key"
    keygen(host.user_key, "open sesame")
    askpass = host.folder / "askpass"
    askpass.write_text("#!/bin/sh\necho open sesame\n")
    askpass.chmod(0o755)
    host.environ_of_client |= {"SSH_ASKPASS": str(askpass), "SSH_ASKPASS_REQUIRE": "force", "DISPLAY": ":0"}


def _another_path(host: SshHost) -> None:
    (host.home / ".profile").unlink()
    host.install_command(host.home / "elsewhere")
    host.environ_of_client["HATCHWAY_REMOTE_COMMAND"] = "~/elsewhere/hatchway"


def _runtime(host: SshHost) -> None:
    (host.home / ".profile").unlink()
    host.install_command(host.home / ".hatchway/runtime/0.0.1/bin")
    (host.home / ".hatchway").chmod(0o700)


def _libraries(host: SshHost) -> None:
    """As a module of Python's, loaded by the start files, sets them."""
    with (host.home / ".profile").open("a") as profile:
        profile.write("export LD_LIBRARY_PATH=/nowhere/lib\n")
    command = host.home / "bin/hatchway"
    first, rest = command.read_text().split("\n", 1)
    command.write_text(f'{first}\n[ "$LD_LIBRARY_PATH" = /nowhere/lib ] || exit 1\n{rest}')


def _two_versions(host: SshHost) -> None:
    """The newer of them is used."""
    _runtime(host)
    old = host.home / ".hatchway/runtime/0.0.1/bin/hatchway"
    newer = host.home / ".hatchway/runtime/0.0.10/bin/hatchway"
    newer.parent.mkdir(parents=True)
    old.rename(newer)
    for version in ("0.0.2", "0.0.9"):
        place = host.home / f".hatchway/runtime/{version}/bin/hatchway"
        place.parent.mkdir(parents=True)
        place.write_text("#!/bin/sh\nexit 1\n")
        place.chmod(0o755)


def _home_set(host: SshHost) -> None:
    (host.home / "engine").mkdir(mode=0o700)
    with (host.home / ".profile").open("a") as profile:
        profile.write('export HATCHWAY_HOME="$HOME/engine"\n')


def _long_path(host: SshHost) -> None:
    with (host.home / ".profile").open("a") as profile:
        profile.write(f'export HATCHWAY_HOME="$HOME/{"a long:path" * 12}"\n')


def _busy_control_master(host: SshHost) -> None:
    host.client_settings += ["ControlMaster auto", f"ControlPath {host.folder}/cm-%C", "ControlPersist 60"]


def _new_key(host: SshHost) -> None:
    (host.folder / "known_hosts").touch()
    host.client_settings.append("StrictHostKeyChecking accept-new")


def _unknown_key(host: SshHost) -> None:
    (host.folder / "known_hosts").touch()
    host.client_settings.append("StrictHostKeyChecking yes")


def _changed_key(host: SshHost) -> None:
    other = (host.folder.parent / "user_key.pub").read_text().split()[:2]
    (host.folder / "known_hosts").write_text(f"[{host.address}]:{host.port} {' '.join(other)}\n")


def _wrong_key(host: SshHost) -> None:
    host.user_key = host.folder / "another_key"
    keygen(host.user_key)
    (host.folder / "nobodys").touch()
    host.settings.append(f"AuthorizedKeysFile {host.folder}/nobodys")


def _listens(what: str) -> Callable[[SshHost], None]:
    def prepare(host: SshHost) -> None:
        engine = host.home / ".hatchway"
        engine.mkdir(mode=0o700)
        (engine / "config.toml").write_text(f'listen = "{what}"\nport = 0\n')
        (engine / "config.toml").chmod(0o600)

    return prepare


def _another_users_port(host: SshHost) -> None:
    """What answers at the port gives itself another name than the engine does on its operator socket."""
    _listens("tcp")(host)
    command = host.home / "bin/hatchway"
    told = command.read_text().replace("exec ", "")
    command.write_text(f'{told.rstrip()} | sed -u \'s/"identity":"urn:uuid:/&0/\'\n')


def _no_way(host: SshHost) -> None:
    _listens("unix")(host)
    host.settings.append("AllowStreamLocalForwarding no")


def _tls(host: SshHost) -> None:
    _listens("tcp")(host)
    with (host.home / ".hatchway/config.toml").open("a") as config:
        config.write('tls = "auto"\n')


def _home_is_a_file(host: SshHost) -> None:
    (host.home / ".hatchway").write_text("")


def _broken_settings(host: SshHost) -> None:
    _listens("tcp")(host)
    (host.home / ".hatchway/config.toml").write_text("no_such_setting = 1\n")


WAYS = (
    Case("IPv6 only", _ipv6),
    Case("RequestTTY force", _user_setting("RequestTTY force")),
    Case("RemoteCommand", _user_setting("RemoteCommand tmux new -A")),
    Case("forwards of their own", _forwards_of_their_own),
    Case("compression and keep-alive of their own", _user_setting("Compression yes", "ServerAliveInterval 60")),
    Case("ControlMaster that nobody holds", _busy_control_master),
    Case("a key's passphrase by askpass", _askpass),
    Case("host key that is new", _new_key),
    Case("one session at a time", _server_setting("MaxSessions 1")),
    Case("forwarding to local ends alone", _server_setting("AllowTcpForwarding local", "PermitOpen any")),
)
"""Set-ups of the client and of sshd, on the way to an engine that runs."""

HOSTS = (
    Case("plain, on another port", _plain, shows="engine"),
    Case("banner and noisy start files", _noisy, shows="AUTHORIZED USERS ONLY"),
    Case("login shell fish", _shell("fish")),
    Case("login shell tcsh", _shell("tcsh")),
    Case("login shell zsh", _shell("zsh")),
    Case("login shell dash", _shell("dash")),
    Case("command by the setting", _another_path),
    Case("command in ~/.hatchway/runtime", _runtime),
    Case("two versions and more in ~/.hatchway/runtime", _two_versions),
    Case("HATCHWAY_HOME on the host", _home_set),
    Case("libraries by the start files", _libraries),
    Case("a path of the engine's folder that ssh can't forward to", _long_path),
    Case("Unix sockets are not forwarded", _server_setting("AllowStreamLocalForwarding no")),
    Case("an engine with port and socket", _listens("both")),
    Case("an engine with a port", _listens("tcp")),
    Case("an engine with TLS", _tls, shows="forwarding https://127.0.0.1:"),
)
"""Kinds of hosts, on each of which an engine is started."""

REFUSED = (
    Case("host key not known", _unknown_key, "was not accepted"),
    Case("host key changed", _changed_key, "HAS CHANGED: somebody may be listening in"),
    Case("authentication refused", _wrong_key, "refused the sign-in by SSH"),
    Case("no forwarding at all", _server_setting("DisableForwarding yes"), "forwards nothing"),
    Case(
        "no forwarding of sockets to an engine without a port",
        _no_way,
        "forwards no Unix sockets",
    ),
    Case("an engine of another user on the port", _another_users_port, "another engine answers than this user's"),
    Case("no session at all", _server_setting("MaxSessions 0"), "allows no further session"),
    Case("a forced command", _server_setting("ForceCommand /bin/echo no"), "may force another command"),
    Case("no command, and none is to be installed", lambda host: (host.home / ".profile").unlink(), "no hatchway"),
    Case("a file where the engine's folder would be", _home_is_a_file, "lab: "),
    Case("settings that the engine can't read", _broken_settings, "unknown setting 'no_such_setting'"),
)


@pytest.fixture(scope="module")
def warm_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The home of a user whose engine runs, for whatever changes nothing in it."""
    host = SshHost(tmp_path_factory.mktemp("home"))
    host.install_command()
    host.engine("engine", "start", "--detach", "--listen", "unix")
    try:
        yield host.home
    finally:
        host.end_engines()


@contextmanager
def prepared(tmp_path: Path, case: Case, home: Path | None = None) -> Iterator[tuple[SshHost, Path]]:
    """The case's host, running, and the configuration that knows it. With `home` it is another way to that one."""
    host = SshHost(tmp_path) if home is None else SshHost(tmp_path, home=home)
    if home is None:
        host.install_command()
    case.prepare(host)
    with (ssh_hosts if home is None else reachable)(host) as config:
        yield host, config


async def _is_opened(tmp_path: Path, case: Case, home: Path | None = None) -> None:
    with prepared(tmp_path, case, home) as (host, config):
        async with opening(tmp_path / "laptop", "lab", config, *case.flags, **host.environ_of_client) as one:
            url = await one.sign_in()
            assert await one.inspect(url) == 200
            assert case.shows in one.screen.text
            assert await one.close() == 0
            assert one.private_folders == []
            assert one.below() == []
        assert host.children() == []


@pytest.mark.parametrize("case", WAYS, ids=lambda case: case.name)
async def test_a_way_to_a_host(tmp_path: Path, warm_home: Path, case: Case) -> None:
    """To a signed-in console by the command and `y`; after Ctrl-C nothing is left on either side but the engine."""
    await _is_opened(tmp_path, case, warm_home)


@pytest.mark.parametrize("case", HOSTS, ids=lambda case: case.name)
async def test_a_host_is_opened(tmp_path: Path, case: Case) -> None:
    """The same where no engine ran, so that one is started, on a host of its own kind."""
    await _is_opened(tmp_path, case)


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: case.name)
async def test_a_host_is_refused(tmp_path: Path, case: Case) -> None:
    """With one sentence that says what to do and exit code 1; nothing is left on either side, not even an engine."""
    with prepared(tmp_path, case) as (host, config):
        flags = ("--install", "no", *case.flags)
        said = await refused(tmp_path / "laptop", "lab", config, *flags, **host.environ_of_client)
        assert case.refusal in said
        assert "Traceback" not in said
        assert not (host.home / ".hatchway/operator.sock").exists()
        assert host.children() == []


async def test_a_host_that_nobody_knows(tmp_path: Path) -> None:
    """No such name, and nobody who answers."""
    config = tmp_path / "config"
    config.write_text(f"Host down\n  HostName 127.0.0.1\n  Port {free_port()}\n")
    assert "is not known here" in await refused(tmp_path / "laptop", "no-such-host.invalid", config)
    assert "nothing answers SSH on down" in await refused(tmp_path / "laptop", "down", config)
    said = await refused(tmp_path / "laptop", "down", config, options=("another",))
    assert "only options of ssh may stand, and another is none" in said
    assert "there is no no-such-ssh" in await refused(tmp_path / "laptop", "down", config, HATCHWAY_SSH="no-such-ssh")


def test_without_a_terminal_nothing_is_dialled(tmp_path: Path) -> None:
    """A question that nobody can answer: where to run the command, or how a program signs in instead."""
    dialled = tmp_path / "dialled"
    (tmp_path / "ssh").write_text(f"#!/bin/sh\ntouch {dialled}\nexit 255\n")
    (tmp_path / "ssh").chmod(0o755)
    done = subprocess.run(
        [*HATCHWAY, "open", "lab"],
        env=os.environ | {"HATCHWAY_HOME": str(tmp_path / "laptop"), "HATCHWAY_SSH": str(tmp_path / "ssh")},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        start_new_session=True,
        check=False,
    )
    assert done.returncode == 1
    assert "in a terminal of this machine" in done.stderr
    assert "hatchway login --url ssh://lab --key FILE" in done.stderr
    assert "engine pair" not in done.stderr
    assert not dialled.exists()


@pytest.mark.parametrize("options", [("-f",), ("-Nf",), ("-p", "22", "-V")])
def test_options_of_ssh_that_make_no_connection(options: tuple[str, ...]) -> None:
    """What would leave an ssh in the background, or none at all, is refused before anything is dialled."""
    done = subprocess.run([*HATCHWAY, "open", "lab", "--", *options], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "leave it out" in done.stderr


@pytest.mark.parametrize("host", ["-oProxyCommand=true", "", " "])
def test_a_host_that_is_none(tmp_path: Path, host: str) -> None:
    """Nothing that ssh could take for an option."""
    done = subprocess.run([*HATCHWAY, "open", "--", host], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "a host is wanted" in done.stderr


async def test_behind_a_jump_host(tmp_path: Path, warm_home: Path) -> None:
    """ProxyJump, as the configuration has it."""
    gate, host = SshHost(tmp_path, "gate"), SshHost(tmp_path, "lab", home=warm_home)
    with reachable(gate, host) as config:
        config.write_text(config.read_text().replace("Host lab\n", "Host lab\n  ProxyJump gate\n"))
        async with opening(tmp_path / "laptop", "lab", config) as one:
            assert await one.inspect(await one.sign_in()) == 200
            assert gate.children() != []
            assert await one.close() == 0
        assert host.children() == []


async def test_by_an_agent_alone(tmp_path: Path, warm_home: Path) -> None:
    """The key is in the agent and in no file."""
    host = SshHost(tmp_path, home=warm_home)
    agent = subprocess.Popen(["ssh-agent", "-D", "-a", str(tmp_path / "agent")], stdout=subprocess.DEVNULL)
    try:
        with reachable(host) as config:
            environ = {"SSH_AUTH_SOCK": str(tmp_path / "agent")}
            while subprocess.run(["ssh-add", "-q", host.user_key], env=os.environ | environ, check=False).returncode:
                assert agent.poll() is None
            host.user_key.rename(tmp_path / "hidden")
            config.write_text(config.read_text().replace("IdentitiesOnly yes", "IdentitiesOnly no"))
            async with opening(tmp_path / "laptop", "lab", config, **environ) as one:
                assert await one.inspect(await one.sign_in()) == 200
                assert await one.close() == 0
    finally:
        agent.kill()
        agent.wait()


async def test_a_connection_that_the_user_has_is_used_and_left(tmp_path: Path, warm_home: Path) -> None:
    """Their ControlMaster: nothing is asked again, no second connection is made, and theirs goes on."""
    host = SshHost(tmp_path, home=warm_home)
    host.client_settings += ["ControlMaster auto", f"ControlPath {tmp_path}/cm"]
    with reachable(host) as config:
        master = subprocess.Popen(["ssh", "-F", config, "-M", "-N", "lab"], stdin=subprocess.DEVNULL)
        try:
            while not (tmp_path / "cm").exists():
                assert master.poll() is None
            host.user_key.rename(tmp_path / "hidden")  # whoever dials anew is refused
            async with opening(tmp_path / "laptop", "lab", config) as one:
                assert await one.inspect(await one.sign_in()) == 200
                assert await one.close() == 0
                assert one.private_folders == []
                assert one.below() == []
            check = subprocess.run(["ssh", "-F", config, "-O", "check", "lab"], capture_output=True, check=False)
            assert check.returncode == 0
        finally:
            master.terminate()
            master.wait()


async def test_a_local_port(tmp_path: Path, warm_home: Path) -> None:
    """The one that was asked for; a busy one is said before anything is dialled."""
    import socket

    host = SshHost(tmp_path, home=warm_home)
    with reachable(host) as config:
        port = free_port()
        async with opening(tmp_path / "laptop", "lab", config, "--local-port", str(port)) as one:
            assert await one.sign_in() == f"http://127.0.0.1:{port}"
            assert await one.close() == 0
        with socket.create_server(("127.0.0.1", 0)) as busy:
            said = await refused(tmp_path / "laptop", "lab", config, "--local-port", str(busy.getsockname()[1]))
        assert "is taken: give another --local-port" in said


async def test_for_programs(tmp_path: Path, warm_home: Path) -> None:
    """`--json`: each step is an object on standard output, with its time; the question is asked all the same."""
    host = SshHost(tmp_path, home=warm_home)
    with reachable(host) as config:
        async with opening(tmp_path / "laptop", "lab", config, "--json", "--permissions", "RUNTIME") as one:
            url = await one.sign_in()
            assert await one.close() == 0
        # On one terminal an object may stand behind the countdown, or the ^C that was typed.
        lines = [line for line in one.screen.text.splitlines() if '{"' in line]
        told = [json.loads(line[line.index("{") :]) for line in lines]
        events = {row["event"]: row for row in told}
        assert list(events) == ["attached", "forwarding", "issued", "claimed", "approved", "held", "closed"]
        assert events["forwarding"]["url"] == url
        assert events["attached"]["seconds"] > 0
        assert one.session["permissions"] == events["issued"]["permissions"] == ["RUNTIME"]


async def test_a_space_in_the_homes_path(tmp_path: Path) -> None:
    """And in the command's."""
    host = SshHost(tmp_path, home="my home")
    host.install_command()
    with ssh_hosts(host) as config:
        async with opening(tmp_path / "laptop", "lab", config) as one:
            assert await one.inspect(await one.sign_in()) == 200
            assert await one.close() == 0


@pytest.mark.mount
@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ("size=12k,mode=700", "no room is left"),
        ("ro,mode=700", "Read-only file system; HATCHWAY_HOME"),
    ],
    ids=["full", "read-only"],
)
async def test_a_file_system_that_takes_nothing(tmp_path: Path, options: str, sentence: str) -> None:
    """Where the engine's folder would be: said in words, and no half a folder is left."""
    host = SshHost(tmp_path)
    host.install_command()
    place = host.home / "place"
    place.mkdir()
    with (host.home / ".profile").open("a") as profile:
        profile.write(f'export HATCHWAY_HOME="{place}/engine"\n')
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", place], check=True)
    try:
        with ssh_hosts(host) as config:
            assert sentence in await refused(tmp_path / "laptop", "lab", config)
            assert list(place.iterdir()) == []
    finally:
        subprocess.run(["umount", place], check=True)


STRANGER = """
import encodings.idna, http.client, os, sys
if os.geteuid() == 0:  # root stands in for another user of this machine
    os.setgroups([]); os.setgid(65534); os.setuid(65534)
tries = ("GET", "/api/auth/inspect/", None), ("POST", "/api/auth/pair/request/", '{"code": "AAAAAAAA"}')
for method, path, body in tries:
    asked = http.client.HTTPConnection(sys.argv[1], timeout=30)
    asked.request(method, path, body, {"Content-Type": "application/json"})
    print(asked.getresponse().status)
"""


async def test_another_user_of_the_laptop(tmp_path: Path, warm_home: Path) -> None:
    """Whoever else connects to the tunnel's port needs a token, or a code and a `y`."""
    host = SshHost(tmp_path, home=warm_home)
    with reachable(host) as config:
        async with opening(tmp_path / "laptop", "lab", config) as one:
            address = (await one.sign_in()).removeprefix("http://")
            asked = [sys.executable, "-c", STRANGER, address]
            told = await trio.run_process(asked, capture_stdout=True)
            assert told.stdout.split() == [b"401", b"401"]
            assert await one.close() == 0

"""Signing in by the agents that people have: OpenSSH's, GnuPG's, and one with a PKCS#11 token; no key file is read."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import trio

from hatchway.api.client import AsyncClient
from hatchway.api.client.agent import Agent, AgentFault
from hatchway.api.client.signers import agent_signers, only_key
from hatchway.engine.base.permissions import FIVE
from hatchway.engine.keys.keys import parse_openssh
from tests.support.agents import gpg_agent, script, ssh_agent, token_agent
from tests.support.command import run
from tests.support.fakes import ROOT, key, key_file
from tests.support.live_engine import command, live_engine, told

pytestmark = [pytest.mark.ssh, pytest.mark.process]


async def test_login_by_openssh_agent_reads_no_private_key(home: Path, tmp_path: Path) -> None:
    """A key registered from the agent signs in from it, says so, and heals a session that has ended; `strace` sees no
    key file opened, with others lying about."""
    away = tmp_path / "away"
    with ssh_agent() as agent:
        agent.add(key("agent"), "alice@laptop")
        environ = agent.environ
        async with live_engine(home) as at:
            registered = await told(home, "key", "register", "--agent", "alice@laptop", **environ)
            assert registered["identity"] == key("agent").identity
            words = (await command(away, "login", "--url", at.url, "--agent", environ=environ)).stdout.decode()
            assert f"{key('agent').identity} (SSH agent, alice@laptop)" in words
            assert json.loads((away / "connection-token").read_text())["key"] == f"agent:{key('agent').identity}"
            await at.engine.sessions.end_all_of({key("agent").identity})
            assert (await told(away, "engine", "ping", **environ))["identity"] == key("agent").identity

            (tmp_path / "private-key.pem").write_bytes(key().pem())
            trace = tmp_path / "trace"
            strace = ["strace", "-f", "-e", "trace=open,openat,openat2,connect", "-o", str(trace)]
            program = [*strace, sys.executable, "-c", "from hatchway.api.cli import main; main()"]
            await trio.run_process(
                [*program, "login", "--url", at.url, "--agent", key("agent").identity],
                cwd=ROOT,
                env={"PATH": "/usr/bin", "HOME": str(tmp_path), "HATCHWAY_HOME": str(away), **environ},
                capture_stdout=True,
            )
            seen = trace.read_text()
            assert f'sun_path="{agent.socket}"' in seen
            opened = re.findall(r'open(?:at2?)?\((?:AT_FDCWD, |\d+, )?"([^"]*)"', seen)
            assert str(away / "connection-token") in " ".join(opened)
            assert not [path for path in opened if path.endswith((".pem", "id_rsa")) or "/.ssh/" in path]


async def test_the_order_in_which_login_takes_its_key(home: Path, tmp_path: Path) -> None:
    """The flag, then the setting, then what the agent holds; --key and --agent together are refused."""
    away = tmp_path / "away"
    for name in ("flag", "setting"):
        (tmp_path / f"{name}.pem").touch(0o600)
        (tmp_path / f"{name}.pem").write_bytes(key(name).pem())
    with ssh_agent() as agent:
        agent.add(key("agent"), "agent")
        async with live_engine(home) as at:
            for name in ("flag", "setting", "agent"):
                at.engine.keys.register(key(name).public, FIVE, name)
            ways: tuple[tuple[str, tuple[str, ...], dict[str, str]], ...] = (
                ("flag", ("--key", str(tmp_path / "flag.pem")), {"HATCHWAY_KEY": str(tmp_path / "setting.pem")}),
                ("setting", (), {"HATCHWAY_KEY": str(tmp_path / "setting.pem")}),
                ("agent", ("--agent",), {"HATCHWAY_KEY": str(tmp_path / "setting.pem")}),
                ("agent", (), {}),
                ("agent", (), {"HATCHWAY_KEY": "agent:"}),
                ("agent", ("--key", "agent:agent"), {"HATCHWAY_KEY": str(tmp_path / "setting.pem")}),
            )
            for name, flags, setting in ways:
                shutil.rmtree(away, ignore_errors=True)
                signed_in = await told(away, "login", "--url", at.url, *flags, **agent.environ, **setting)
                assert signed_in["key"] == key(name).identity
            both = await command(away, "login", "--agent", "--key", "x.pem", code=2, environ=agent.environ)
            assert b"not both" in both.stderr
            shutil.rmtree(away)
            assert b"--key FILE" in (await command(away, "login", "--url", at.url, code=1)).stderr


async def test_login_in_a_folder_that_has_signed_in_before(home: Path, tmp_path: Path) -> None:
    """The key of the last session is no setting: a key of the agent comes before it, where the engine authorizes one. A
    session whose agent is gone can't be replaced, which is told with the way out."""
    away = tmp_path / "away"
    key_file(tmp_path / "file.pem", key("file").pem())
    with ssh_agent() as agent:
        agent.add(key("agent"), "agent")
        async with live_engine(home) as at:
            at.engine.keys.register(key("file").public, FIVE, "file")
            await command(away, "login", "--url", at.url, "--key", str(tmp_path / "file.pem"))
            for name in ("file", "agent"):
                signed_in = await told(away, "login", "--url", at.url, **agent.environ)
                assert signed_in["key"] == key(name).identity
                at.engine.keys.register(key("agent").public, FIVE, "agent")
            await at.engine.sessions.end_all_of({key("agent").identity})
            refused = (await command(away, "session", "list", code=1)).stderr.decode()
            assert "that failed: there is no SSH agent" in refused
            assert "hatchway config unset connection-token" in refused


async def test_an_agent_s_key_as_the_setting(home: Path, tmp_path: Path) -> None:
    """`agent:NAME` in the setting is that key of the agent, whatever the command does, and comes before what else the
    agent holds; a name that the agent has not is told."""
    away = tmp_path / "away"
    with ssh_agent() as agent:
        for name in ("first", "second"):
            agent.add(key(name), name)
        async with live_engine(home) as at:
            for name in ("first", "second"):
                at.engine.keys.register(key(name).public, FIVE, name)
            await command(away, "config", "set", "url", at.url)
            for setting in ("agent:second", f"agent:{key('second').identity}", f"agent:{key('second').identity[:20]}"):
                await command(away, "config", "set", "key", setting)
                assert (await told(away, "config", "get", "key"))["value"] == setting
                (away / "connection-token").unlink(missing_ok=True)
                assert (await told(away, "engine", "ping", **agent.environ))["identity"] == key("second").identity
            await command(away, "config", "set", "key", "agent:third")
            (away / "connection-token").unlink()
            refused = await command(away, "engine", "ping", code=1, environ=agent.environ)
            assert b"no key of the fingerprint or comment 'third'" in refused.stderr
            refused = await command(away, "engine", "ping", code=1)
            assert b"there is no SSH agent" in refused.stderr


async def test_the_python_client_and_gpg_agent(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`key="agent:"` signs in by whatever agent SSH_AUTH_SOCK names; GnuPG's is one."""
    with gpg_agent() as environ:
        monkeypatch.setenv("SSH_AUTH_SOCK", environ["SSH_AUTH_SOCK"])
        public = parse_openssh(only_key().line)
        async with live_engine(home) as at:
            at.engine.keys.register(public, FIVE, "gpg")
            async with AsyncClient(at.url, key="agent:") as client:
                assert (await client.inspect()).identity == public.identity


async def test_a_key_that_never_leaves_its_token(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A PKCS#11 token in an agent signs in; taken out, it is told so."""
    with token_agent() as (agent, tokens):
        monkeypatch.setenv("SSH_AUTH_SOCK", str(agent.socket))
        public = parse_openssh(only_key().line)
        async with live_engine(home) as at:
            at.engine.keys.register(public, FIVE, "token")
            async with AsyncClient(at.url, key="agent:") as client:
                assert (await client.inspect()).identity == public.identity
        (signer,) = agent_signers()
        shutil.rmtree(tokens)
        with pytest.raises(AgentFault, match="smart card that holds it was taken out"):
            signer.sign(b"nonce")
        agent.ssh_add("-D")
        with pytest.raises(AgentFault, match=r"the SSH agent refused to sign with .* holds no key"):
            signer.sign(b"nonce")


def test_own_words_for_what_an_agent_refuses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A confirmation refused, a key for certain hosts of SSH, a key that is gone, a locked agent, an empty one, and one
    without an RSA key."""
    (tmp_path / "known_hosts").write_text(f"host {key('host').public.openssh()}\n")
    ecdsa = tmp_path / "ecdsa"
    subprocess.run(["ssh-keygen", "-q", "-t", "ecdsa", "-N", "", "-f", str(ecdsa)], check=True)
    refusing = {
        "SSH_ASKPASS": str(script(tmp_path / "refuse", "exit 1")),
        "SSH_ASKPASS_REQUIRE": "force",
        "DISPLAY": ":",
    }
    with ssh_agent(**refusing) as agent:
        monkeypatch.setenv("SSH_AUTH_SOCK", str(agent.socket))
        with pytest.raises(AgentFault, match=r"^the SSH agent holds no key: add one"):
            agent_signers()
        agent.ssh_add("-q", str(ecdsa))
        with pytest.raises(AgentFault, match="no key that could be used: what it holds is ecdsa-sha2-nistp256"):
            agent_signers()
        agent.add(key("agent"), "asks", "-c")
        with pytest.raises(AgentFault, match=r"somebody refused to confirm it \(`ssh-add -c`\)"):
            agent_signers()[0].sign(b"nonce")
        agent.add(key("bound"), "bound", "-h", "host", "-H", str(tmp_path / "known_hosts"))
        with pytest.raises(AgentFault, match=r"keeps SHA256:.* \(bound\) for certain hosts of SSH \(`ssh-add -h`\)"):
            agent_signers("bound")[0].sign(b"nonce")
        (signer,) = agent_signers("bound")
        agent.ssh_add("-q", "-d", str(agent.folder / "key.pub"))
        with pytest.raises(AgentFault, match=r"has SHA256:.* no more: its smart card was taken out, or it was removed"):
            signer.sign(b"nonce")
        agent.ssh_add("-x", **agent.answering("secret"))
        with pytest.raises(AgentFault, match=r"is locked \(`ssh-add -X` unlocks it\)"):
            agent_signers()
        with pytest.raises(AgentFault, match=r"refused to sign with .* is locked"):
            signer.sign(b"nonce")
    with pytest.raises(AgentFault, match="no SSH agent answers at"):
        Agent().keys()


@pytest.mark.usefixtures("command_folder")
def test_a_key_of_openssh_is_registered_from_its_file_or_its_agent(tmp_path: Path) -> None:
    """`~/.ssh/id_rsa.pub` as it lies there, or what the agent holds, under the name it has there."""
    path = tmp_path / "id_rsa"
    subprocess.run(
        ["ssh-keygen", "-q", "-t", "rsa", "-b", "3072", "-N", "", "-C", "alice", "-f", str(path)], check=True
    )
    run("key", "register", f"{path}.pub")
    assert json.loads(run("key", "list", "--json").stdout)[0]["comment"] == "alice"
    with ssh_agent() as agent:
        agent.add(key("agent"), "bob@laptop")
        done = json.loads(run("key", "register", "--agent", "--json", env=agent.environ).stdout)
        assert done["identity"] == key("agent").identity
        assert [row["comment"] for row in json.loads(run("key", "list", "--json").stdout)] == ["alice", "bob@laptop"]
        refused = run("key", "register", "--agent", "carol", code=1, env=agent.environ)
        assert "no key of the fingerprint or comment 'carol'" in refused.stderr
    assert "give the file of a public key, or --agent" in run("key", "register", code=2).stderr

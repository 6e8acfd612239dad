"""Ed25519 keys, where the setting `key_types` names them: in files, in agents, and never tried where not named."""

from __future__ import annotations

import json
from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from hatchway.api.http.app import make_app
from hatchway.engine.base.errors import KeyRefused, SignatureRefused
from hatchway.engine.base.permissions import FIVE
from hatchway.engine.engine import Engine
from hatchway.engine.keys.keys import (
    KEY_TYPES,
    PrivateKey,
    PublicKey,
    identity_of,
    read_openssh,
    read_private_key,
    read_public_key,
    sign,
    verify,
)
from hatchway.engine.keys.weak_keys import small_order
from tests.support.agents import ssh_agent
from tests.support.command import run
from tests.support.fakes import Browser, key, key_file, sign_in, virtual_engine
from tests.support.live_engine import command, live_engine, told


def made() -> PrivateKey:
    private = Ed25519PrivateKey.generate()
    return PrivateKey(private, PublicKey(identity_of(private.public_key()), private.public_key(), 256))


ONE = made()


async def verified(browser: Browser, private: PrivateKey = ONE, **more: Any) -> tuple[int, dict[str, Any]]:
    """What a sign-in by that key is answered."""
    nonce = (await browser.get("/api/auth/challenge/")).json()["nonce"]
    signature = b64encode(sign(private, nonce.encode())).decode()
    body = {"nonce": nonce, "signature": signature, "algorithm": "EdDSA", "identity": private.identity} | more
    reply = await browser.post("/api/auth/verify/", {name: text for name, text in body.items() if text is not None})
    return reply.status, reply.json()


@pytest.mark.virtual_time
async def test_a_site_that_names_them_signs_them_in(home: Path) -> None:
    """By EdDSA alone, whether the key names itself or not; an RSA key signs in as before."""
    async with virtual_engine(home, key_types=("rsa", "ed25519")) as engine:
        engine.keys.register(ONE.public, ("SHELL",), "ed")
        browser = Browser(make_app(engine))
        for identity in (ONE.identity, None):
            status, session = await verified(browser, identity=identity)
            assert (status, session["permissions"]) == (200, ["SHELL"])
        assert (await browser.get("/api/auth/inspect/", token=session["token"])).status == 200
        for algorithm in ("RS256", "PS256"):
            assert (await verified(browser, algorithm=algorithm))[0] == 401
        assert (await verified(browser, made()))[0] == 401
        assert (await verified(browser, key(), identity=None))[0] == 401  # an RSA signature called EdDSA
        await sign_in(browser)


@pytest.mark.virtual_time
async def test_elsewhere_they_are_refused_by_the_setting_s_name(browser: Browser, engine: Engine) -> None:
    """422 that names it; a line of such a key grants nothing, and is told so."""
    engine.keys.register(ONE.public, ("SHELL",), "ed")
    status, problem = await verified(browser)
    assert (status, problem["errors"]) == (
        422,
        {"algorithm": "must be RS256 or PS256: the engine's setting key_types names no ed25519"},
    )
    assert engine.keys.find(ONE.identity) is None
    assert "the setting key_types names ed25519" in engine.keys.faults()[-1].reason
    await sign_in(browser)


@pytest.mark.usefixtures("command_folder")
def test_register_and_list(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Refused with the setting's name, and taken once it names them; without it again the line grants nothing."""
    Path("ed.pub").write_bytes(ONE.public.pem())
    Path("ssh.pub").write_text(f"{ONE.public.openssh()} me\n")
    assert "hatchway config set key_types rsa,ed25519" in run("key", "register", "ed.pub", code=1).stderr
    monkeypatch.setenv("HATCHWAY_KEY_TYPES", "rsa,ed25519")
    run("key", "register", "ed.pub")
    assert "already" in run("key", "register", "ssh.pub", "--comment", "ed").stdout
    (row,) = json.loads(run("key", "list", "--json").stdout)
    assert (row["identity"], row["bits"]) == (ONE.identity, 256)
    monkeypatch.delenv("HATCHWAY_KEY_TYPES")
    assert "line 1 grants nothing: this is not an RSA key" in run("key", "list").stderr
    assert "rsa is wanted, or rsa,ed25519" in run("config", "set", "key_types", "dsa", code=1).stderr


@pytest.mark.ssh
@pytest.mark.process
async def test_files_and_agents(home: Path, tmp_path: Path) -> None:
    """A PKCS#8 file signs in, so does an agent, by name or as the only key; an engine that accepts none says why."""
    pem, away = key_file(tmp_path / "ed.pem", ONE.pem()), tmp_path / "away"
    with ssh_agent() as agent:
        agent.add(ONE, "ed@laptop")
        async with live_engine(home, key_types=("rsa", "ed25519")) as at:
            at.engine.keys.register(ONE.public, FIVE, "ed")
            for flags in (("--key", str(pem)), ("--agent", "ed@laptop"), ("--agent",)):
                signed_in = await told(away, "login", "--url", at.url, *flags, **agent.environ)
                assert signed_in["key"] == ONE.identity
        async with live_engine(home) as at:
            refused = await command(away, "login", "--url", at.url, "--agent", code=1, environ=agent.environ)
            assert b"key_types" in refused.stderr


def test_a_key_for_which_anybody_could_sign_is_refused() -> None:
    """Points of small order, and other spellings of a point."""
    for y in (0, 1, 2**255 - 20, 2**255 - 19, 2**255 - 18):
        for sign_bit in (0, 1 << 255):
            assert small_order((y | sign_bit).to_bytes(32, "little")) is not None
    assert (
        small_order(ONE.public.key.public_bytes_raw() if isinstance(ONE.public.key, Ed25519PublicKey) else b"") is None
    )
    weak = Ed25519PublicKey.from_public_bytes((1).to_bytes(32, "little"))
    line = PublicKey(identity_of(weak), weak, 256).openssh()
    assert read_openssh(line).weakness() is not None
    with pytest.raises(KeyRefused, match="the Ed25519 key is refused: its point is of small order"):
        read_public_key(line.encode(), KEY_TYPES)


def test_reading_and_verifying() -> None:
    """A file of another type than is asked for is refused; a signature counts under the key's own algorithm alone."""
    with pytest.raises(KeyRefused, match="not an RSA key"):
        read_private_key(ONE.pem())
    again = read_private_key(ONE.pem(), None, KEY_TYPES)
    assert again.identity == ONE.identity
    verify(ONE.public, "EdDSA", b"nonce", sign(again, b"nonce"))
    for algorithm, message, private in (("RS256", b"nonce", ONE), ("EdDSA", b"other", ONE), ("EdDSA", b"nonce", key())):
        with pytest.raises(SignatureRefused):
            verify(ONE.public, algorithm, message, sign(private, b"nonce"))
    with pytest.raises(SignatureRefused):
        verify(key().public, "EdDSA", b"nonce", sign(key(), b"nonce"))

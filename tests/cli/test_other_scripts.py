"""Text that is not ASCII: kept as people wrote it, escaped only where it is shown, and never a traceback."""

from __future__ import annotations

import io
import json
import os
import socket
import subprocess
from pathlib import Path

import httpx
import pytest
from cryptography import x509

from hatchway.api.cli.pairing import OperatorTerminal
from hatchway.api.server.tls import Tls
from hatchway.engine.base.errors import KeyRefused, SettingRefused
from hatchway.engine.keys import key_edits
from hatchway.engine.settings.config_file import set_value
from hatchway.engine.settings.kinds import address, host, url
from hatchway.engine.settings.settings import Settings
from tests.support.command import process, run
from tests.support.fakes import key
from tests.support.processes import HATCHWAY, EngineProcess

NAMES = ("Jürgen", "Jérgen", "Жанна Ёлкина", "山田　太郎", "نرگس‌جان")
DECOMPOSED = "Jürgen"
"""The same name as a Mac's keyboard may spell it."""


def listed() -> list[str]:
    return [row["comment"] for row in json.loads(run("key", "list", "--json").output)]


@pytest.mark.usefixtures("command_folder")
def test_a_comment_is_kept_and_found_again(home: Path) -> None:
    """As written, in the file, in JSON and in the table; however its accents are spelled it is the same name, and other
    people's names stay apart."""
    kept = [*NAMES]
    for number, name in enumerate(kept, 1):
        Path(f"{number}.pub").write_bytes(key(str(number)).public.pem())
        run("key", "register", f"{number}.pub", "--comment", name)
    assert listed() == kept
    for name in kept:
        assert name.encode() in (home / "authorized_keys").read_bytes()
        if name.isprintable():
            assert name in run("key", "list").output
    run("key", "unregister", DECOMPOSED)
    assert listed() == kept[1:]
    for name in kept[1:]:
        run("key", "unregister", name)
    assert listed() == []
    Path("Jürgen.pub").write_bytes(key("1").public.pem())
    run("key", "register", "Jürgen.pub")
    assert listed() == ["Jürgen"]


def test_a_comment_that_is_no_text() -> None:
    """Bytes of another encoding are refused in words: the file is UTF-8, and would not be any more."""
    with pytest.raises(KeyRefused, match="not UTF-8"):
        key_edits.register(b"", key().public, comment="J\udcfcrgen")


@pytest.mark.usefixtures("command_folder")
@pytest.mark.parametrize("encoding", ["latin-1", "ascii"])
def test_a_terminal_that_lacks_the_letters(home: Path, encoding: str) -> None:
    """What it can't show it gets by number; JSON is JSON, and says the same."""
    Path("a.pub").write_bytes(key().public.pem())
    run("key", "register", "a.pub", "--comment", "Жанна")
    there = {"HATCHWAY_HOME": str(home), "PYTHONIOENCODING": encoding}
    assert process("key", "list", **there).returncode == 0
    told = process("key", "list", "--json", **there)
    assert told.returncode == 0
    assert [row["comment"] for row in json.loads(told.stdout)] == ["Жанна"]


def test_a_terminal_that_lacks_the_blocks_of_a_qr_code() -> None:
    """It is told so, and the address is printed all the same."""
    for encoding, drawn in (("latin-1", False), ("ascii", False), ("utf-8", True)):
        screen = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
        terminal = OperatorTerminal(-1, screen, True, False)
        terminal._draw("http://127.0.0.1:7420/#pair=ABCDEFGH")
        screen.flush()
        shown = screen.buffer.getvalue().decode(encoding)
        assert ("No QR code" in shown) != drawn
        assert ("█" in shown) == drawn


@pytest.mark.parametrize(
    ("name", "wire"), [("jürgen-pc", "xn--jrgen-pc-65a"), ("j\udcfcrgen", None), ("a" * 64 + "ü", None)]
)
def test_a_host_named_in_umlauts(home: Path, monkeypatch: pytest.MonkeyPatch, name: str, wire: str | None) -> None:
    """A self-made certificate has its name as it travels; one that can't travel is left out."""
    home.mkdir(0o700)
    monkeypatch.setattr(socket, "gethostname", lambda: name)
    Tls(home, Settings(tls="auto", addresses=(address("Müller.example:7420"),)))
    made = x509.load_pem_x509_certificate((home / "tls-cert.pem").read_bytes())
    names = made.extensions.get_extension_for_class(x509.SubjectAlternativeName).value.get_values_for_type(x509.DNSName)
    assert {"localhost", "xn--mller-kva.example"} <= set(names)
    assert (wire in names) == (wire is not None)
    assert all(name.isascii() for name in names)


def test_hosts_in_settings() -> None:
    """Written as people do, kept as browsers send them."""
    assert host().read("Bücher.example") == "xn--bcher-kva.example"
    assert address("straße.example:80") == "xn--strae-oqa.example:80"
    assert url().read("https://müller.example:7420") == "https://xn--mller-kva.example:7420"
    for bad in ("\udcfc.example", "­", "a b"):
        with pytest.raises(ValueError, match="host name"):
            host().read(bad)


def test_a_setting_that_is_no_text(home: Path) -> None:
    """config.toml is UTF-8: a path that isn't is refused in words, and what was there stays."""
    with pytest.raises(SettingRefused, match="HATCHWAY_KEY"):
        set_value(home, "key", "/h\udcfcme/key.pem")
    assert not (home / "config.toml").exists()


@pytest.mark.process
def test_a_home_that_is_not_utf_8(tmp_path: Path) -> None:
    """Every part of an engine works there, its worker processes too, and so does the command on a Latin-1 terminal."""
    above = tmp_path / os.fsdecode(b"h\xfcme")
    above.mkdir()
    engine = EngineProcess(
        above / "hatchway", HATCHWAY_TLS="auto", HATCHWAY_WORKERS="2", HOME=str(above), PYTHONIOENCODING="latin-1"
    )
    try:
        engine.start()
        assert httpx.get(f"{engine.url}/readyz", verify=False).status_code == 200
        for arguments in (
            ("login",),
            ("engine", "ping"),
            ("engine", "status", "--json"),
            ("session", "list", "--json"),
            ("config", "list"),
            ("config", "list", "--json"),
            ("key", "list", "--json"),
            ("engine", "unit"),
            ("engine", "reload"),
            ("logout",),
        ):
            done = subprocess.run(
                [*HATCHWAY, *arguments], env=engine.environ, capture_output=True, timeout=60, check=False
            )
            assert done.returncode == 0, (arguments, done.stderr)
            if "--json" in arguments:
                json.loads(done.stdout.decode("latin-1"))
        engine.terminate()
        assert "Traceback" not in engine.log()
    finally:
        engine.close()

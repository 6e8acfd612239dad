"""Sign-in by private key in a real browser: every kind of key file, what is remembered, what is sent."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from playwright.sync_api import FilePayload, expect

from hatchway.engine.base.durations import InvalidDuration, lifetime
from hatchway.engine.base.errors import KeyRefused
from hatchway.engine.keys.keys import KEY_TYPES, PassphraseWanted, read_private_key, read_public_key
from tests.support.browser import KEYS, NOTHING, Host, Visitor
from tests.support.key_data import BASELINE, BROKEN, HARMLESS

pytestmark = [pytest.mark.browser, pytest.mark.process]

PKCS8 = (KEYS / "rsa2048.pkcs8.pem").read_bytes()
CONVERT = "openssl pkcs8 -topk8"
"""Our own words for what WebCrypto can't do and the command can: the passphrase of an encrypted PKCS#1 file."""


READ_ALL = """async (files) => {
  const {readPrivateKey, KeyRefused} = await import("/console/keys.js");
  const {PassphraseWanted} = await import("/console/passphrase.js");
  const read = async (text) => {
    try {
      return (await readPrivateKey(Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0)))).identity;
    } catch (error) {
      if (error instanceof PassphraseWanted) return "passphrase";
      if (error instanceof KeyRefused) return error.message;
      return `FAULT ${error}`;
    }
  };
  return Promise.all(files.map(read));
}"""


def verdict(data: bytes) -> str:
    """The command's own word on a file."""
    try:
        return read_private_key(data, None, KEY_TYPES).identity
    except PassphraseWanted:
        return "passphrase"
    except KeyRefused as refused:
        return refused.detail


def files() -> Iterator[tuple[str, bytes, str]]:
    """The corpus, what editors do to good files, and what is broken in others: name, bytes, the command's word."""
    for path in sorted(KEYS.iterdir()):
        if path.name == "rsa8192.pkcs8.pem":  # the command's own check of it takes seconds
            yield path.name, path.read_bytes(), read_public_key((KEYS / "rsa8192.spki.pub").read_bytes()).identity
        else:
            yield path.name, path.read_bytes(), verdict(path.read_bytes())
    for kind, change in HARMLESS.items():  # test_key_files.py shows the command's word on these
        for name in ("rsa2048.pkcs8.pem", "rsa2048.pkcs1.pem"):
            yield f"{kind} {name}", change((KEYS / name).read_bytes()), BASELINE
    for name, (_, data, _) in BROKEN.items():
        yield name, data, verdict(data)


def test_every_file_gets_the_command_s_own_verdict(visitor: Visitor) -> None:
    """A file that the command takes is taken with the same identity; any other is refused in the same words."""
    names, contents, verdicts = zip(*files(), strict=True)
    spelt = [base64.b64encode(data).decode() for data in contents]
    told = dict(zip(names, visitor.open().evaluate(READ_ALL, spelt), strict=True))
    assert CONVERT in told.pop("rsa2048.enc-pkcs1.pem")
    expected = dict(zip(names, verdicts, strict=True))
    assert {name: words for name, words in told.items() if words != expected[name]} == {}
    assert len(told) > 70
    assert not visitor.asked("/api/auth/challenge/")


def test_a_refused_file_is_told_with_its_name(visitor: Visitor) -> None:
    """The one reason stands below the file that was chosen; the next file takes it away."""
    page = visitor.open()
    name = "rsa2048.openssh.pem"
    page.set_input_files("#key-file", KEYS / name)
    expect(page.locator("#key-error")).to_have_text(f"{name}: {verdict((KEYS / name).read_bytes())}")
    page.set_input_files("#key-file", KEYS / "rsa2048.pkcs1.pem")
    expect(page.locator("#key-identity")).to_have_text(BASELINE)
    expect(page.locator("#key-error")).to_be_hidden()


@pytest.mark.parametrize("name", ["rsa2048.pkcs8.pem", "rsa2048.pkcs1.pem"])
def test_a_key_signs_in_and_never_leaves_the_page(visitor: Visitor, name: str) -> None:
    """PKCS#1 and PKCS#8 both; the network log holds a PS256 signature, and no byte of PEM or DER in any spelling."""
    page = visitor.sign_in(name, lifetime="2h")
    expect(page.locator("#facts")).to_contain_text(BASELINE)
    expect(page.locator("#left-clock")).to_have_text(re.compile(r"1:59:\d\d|2:00:00"))
    (verify,) = visitor.asked("/api/auth/verify/")
    body = json.loads(verify.post_data or "")
    assert (body["algorithm"], body["lifetime"]) == ("PS256", "2h")
    assert set(body) == {"algorithm", "identity", "lifetime", "nonce", "signature"}
    assert body["identity"] == BASELINE
    sent = " ".join(f"{r.method} {r.url} {r.all_headers()} {r.post_data}" for r in visitor.requests).encode()
    for secret in secrets_of(name):
        assert secret not in sent
    assert len(visitor.requests) > 30


def secrets_of(name: str) -> Iterator[bytes]:
    """Lines of the PEM file, and each private number's bytes in hexadecimal and both base64s."""
    data = (KEYS / name).read_bytes()
    yield from (line for line in data.splitlines() if line)
    key = load_pem_private_key(data, None)
    assert isinstance(key, RSAPrivateKey)
    numbers = key.private_numbers()
    for number in (numbers.d, numbers.p, numbers.q, numbers.dmp1, numbers.dmq1, numbers.iqmp):
        raw = number.to_bytes((number.bit_length() + 7) // 8, "big")
        yield raw.hex().encode()
        for skip in range(3):  # base64 of the same bytes at each of its three alignments
            for spell in (base64.b64encode, base64.urlsafe_b64encode):
                yield spell(raw[skip : skip + 24])


def test_a_key_with_a_passphrase_is_unlocked_in_the_page(visitor: Visitor) -> None:
    """A wrong passphrase is said, the right one signs in; the same kinds of file as openssl and ssh-keygen write."""
    page = visitor.open()
    page.set_input_files("#key-file", KEYS / "rsa2048.enc-pkcs8.pem")
    page.fill("#passphrase", "wrong")
    page.click("#key-unlock")
    expect(page.locator("#key-error")).to_have_text(
        "rsa2048.enc-pkcs8.pem: the passphrase is wrong, or the key is damaged"
    )
    page.fill("#passphrase", "x")
    page.keyboard.press("Enter")
    expect(page.locator("#key-identity")).to_have_text(BASELINE)
    page.click("#key-submit")
    expect(page.locator("#view-home")).to_be_visible()


def test_a_click_waits_for_the_key(visitor: Visitor) -> None:
    """Whoever chose a file, or typed its passphrase, and signs in at once means that key, however long it takes to
    read."""
    page = visitor.open()
    page.evaluate("""() => {
      const read = File.prototype.arrayBuffer;
      const later = () => new Promise((done) => setTimeout(done, 300));
      File.prototype.arrayBuffer = async function () { await later(); return read.call(this); };
      crypto.subtle.importKey = new Proxy(crypto.subtle.importKey, {
        apply: async (target, self, how) => { await later(); return Reflect.apply(target, self, how); },
      });
    }""")
    page.set_input_files("#key-file", KEYS / "rsa2048.pkcs8.pem")
    page.click("#key-submit")
    page.locator("#view-home:visible").wait_for()
    page.click("#logout")
    page.set_input_files("#key-file", KEYS / "rsa2048.enc-pkcs8.pem")
    page.fill("#passphrase", "x")
    page.click("#key-unlock")
    page.click("#key-submit")
    page.locator("#view-home:visible").wait_for()


@pytest.mark.parametrize("place", ["#key-drop", "#signin-title"])
def test_a_key_is_dropped_anywhere(visitor: Visitor, place: str) -> None:
    """On its place or beside it: the browser never leaves the page to show the key."""
    page = visitor.open()
    box = page.locator(place).bounding_box()
    assert box is not None
    at = {"x": box["x"] + 20, "y": box["y"] + 20}
    data = {"items": [], "files": [str(KEYS / "rsa2048.pkcs1.pem")], "dragOperationsMask": 1}
    session = visitor.context.new_cdp_session(page)
    for step in ("dragEnter", "dragOver", "drop"):
        session.send("Input.dispatchDragEvent", {"type": step, **at, "data": data})
    expect(page.locator("#key-identity")).to_have_text(BASELINE)
    assert page.url == visitor.host.url


def test_a_key_that_is_not_registered_is_told_so(visitor: Visitor) -> None:
    """The engine's own sentence, and the form stays as it was."""
    page = visitor.open()
    page.set_input_files("#key-file", KEYS / "rsa4096.pkcs8.pem")
    page.click("#key-submit")
    expect(page.locator("#key-refusal")).to_contain_text("the signature does not verify with a registered key")
    expect(page.locator("#key-name")).to_have_text("rsa4096.pkcs8.pem")


def test_no_key_and_no_duration_are_said_before_anything_is_sent(visitor: Visitor) -> None:
    """Each has its sentence; out of range is told as the engine takes it."""
    page = visitor.open()
    page.click("#key-submit")
    expect(page.locator("#key-error")).to_have_text("Choose a private key first.")
    page.set_input_files("#key-file", KEYS / "rsa2048.pkcs8.pem")
    page.fill("#lifetime", "banana")
    page.click("#key-submit")
    expect(page.locator("#lifetime-hint")).to_contain_text("such as 30m or 2h")
    expect(page.locator("#lifetime")).to_have_attribute("aria-invalid", "true")
    assert not visitor.asked("/api/auth/")
    page.fill("#lifetime", "25h")
    expect(page.locator("#lifetime-hint")).to_contain_text("the engine will give 1 h")
    page.click("#key-submit")
    expect(page.locator("#left-hint")).to_contain_text("It lasts 1 h")


def test_a_duration_is_read_as_the_engine_reads_it(visitor: Visitor) -> None:
    """What the engine would refuse is refused in the page, what it takes is sent with the same meaning (D21)."""
    given = [
        text for text, _ in json.loads((KEYS.parent / "durations.json").read_text())["cases"] if isinstance(text, str)
    ]
    given += ["1m0s", "90m30s", "1h0m", "0m0s", "1m60s", "h", "m", "1m ", "00001h"]
    read = """async (given) => {
      const {parseDuration, inRange} = await import("/console/durations.js");
      return given.map(parseDuration).map((seconds) => [seconds !== null, inRange(seconds ?? 0)]);
    }"""
    told = visitor.open().evaluate(read, given)
    assert dict(zip(given, map(tuple, told), strict=True)) == {text: reading(text) for text in given}


def reading(text: str) -> tuple[bool, bool]:
    """Whether the engine takes a duration, and whether it is in range."""
    try:
        return True, not lifetime(text)[1]
    except InvalidDuration:
        return False, False


def test_a_remembered_key_outlives_the_last_tab_until_it_is_forgotten(visitor: Visitor) -> None:
    """It can't be exported, signs in after every tab was closed, and "forget" leaves nothing behind (D38)."""
    page = visitor.open()
    page.check("#remember")
    visitor.sign_in(page=page)
    assert "unencrypted" in page.locator("#remember-note").text_content()  # type: ignore[operator]
    page.click("#logout")
    page.close()
    page = visitor.open()
    expect(page.locator("#key-kind")).to_contain_text("remembered on this device")
    exported = page.evaluate(
        """async () => {
             const {remembered} = await import("/console/vault.js");
             const {key} = await remembered();
             const attempt = (form) => crypto.subtle.exportKey(form, key).then(() => form, (error) => error.name);
             return [key.extractable, key.usages, await attempt("pkcs8"), await attempt("jwk")];
           }"""
    )
    assert exported == [False, ["sign"], "InvalidAccessError", "InvalidAccessError"]
    page.click("#key-submit")
    expect(page.locator("#view-home")).to_be_visible()
    page.click("#logout")
    page.click("#key-forget")
    expect(page.locator("#key-drop")).to_be_visible()
    assert visitor.kept(page) == NOTHING
    page.reload()
    expect(page.locator("#key-drop")).to_be_visible()


def test_a_key_that_is_not_remembered_is_gone_with_the_tab(visitor: Visitor) -> None:
    """Nothing is kept but the token, and that in sessionStorage alone."""
    page = visitor.sign_in()
    assert visitor.kept(page) == NOTHING | {"session": ["hatchway.session"]}
    page.close()
    again = visitor.open()
    expect(again.locator("#key-drop")).to_be_visible()
    assert visitor.kept(again) == NOTHING


@pytest.mark.parametrize("passphrase", [b"x", "pässwörd €".encode()])
def test_what_cryptography_writes_the_page_unlocks(visitor: Visitor, tmp_path: Path, passphrase: bytes) -> None:
    """PBES2 of another writer, and a passphrase beyond ASCII."""
    key = load_pem_private_key(PKCS8, None)
    assert isinstance(key, RSAPrivateKey)
    sealed = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(passphrase))
    assert key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).split() == PKCS8.split()
    page = visitor.open()
    page.set_input_files("#key-file", FilePayload(name="sealed.key", mimeType="", buffer=sealed))
    page.fill("#passphrase", passphrase.decode())
    page.click("#key-unlock")
    expect(page.locator("#key-identity")).to_have_text(BASELINE)


def test_an_ed25519_key_signs_in_where_engine_and_browser_have_them(visitor: Visitor, host: Host) -> None:
    """By WebCrypto, under EdDSA. An engine that accepts none says so by its setting's name, and a browser without them
    is told as that."""
    page = visitor.open()
    page.set_input_files("#key-file", KEYS / "ed25519.pem")
    expect(page.locator("#key-kind")).to_have_text("Ed25519")
    page.click("#key-submit")
    expect(page.locator("#key-refusal")).to_contain_text("key_types")
    host.command("config", "set", "key_types", "rsa,ed25519")
    host.command("engine", "reload")
    try:
        host.command("key", "register", str(KEYS / "ed25519.spki.pub"))
        page = visitor.sign_in("ed25519.pem", page=visitor.open())
        expect(page.locator("#facts")).to_contain_text(read_public_key_of("ed25519.spki.pub"))
        without = """() => {
          const read = crypto.subtle.importKey.bind(crypto.subtle);
          crypto.subtle.importKey = (form, bytes, kind, ...more) => kind === "Ed25519"
            ? Promise.reject(new DOMException("none", "NotSupportedError")) : read(form, bytes, kind, ...more);
        }"""
        page.click("#logout")
        page.evaluate(without)
        page.set_input_files("#key-file", KEYS / "ed25519.pem")
        expect(page.locator("#key-error")).to_contain_text("this browser's WebCrypto has none")
    finally:
        host.command("config", "unset", "key_types")
        host.command("engine", "reload")


def read_public_key_of(name: str) -> str:
    """The identity of a key of the corpus."""
    return read_public_key((KEYS / name).read_bytes(), KEY_TYPES).identity

"""Key files as editors and tools leave them, and the one reason why each broken one is refused (section 2.4)."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Callable

import pytest
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
)
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hatchway.engine.base.errors import KeyRefused
from hatchway.engine.keys import keys
from hatchway.engine.keys.keys import PassphraseWanted, read_private_key, read_public_key
from tests.support.fakes import key
from tests.support.key_data import BASELINE, BROKEN, HARMLESS, OPENSSH_PUBLIC, OWN, PKCS1, PKCS8, SPKI, refusal


@pytest.mark.parametrize("harm", HARMLESS)
@pytest.mark.parametrize("data", [PKCS8, PKCS1, SPKI], ids=["PKCS#8", "PKCS#1", "SPKI"])
def test_what_editors_and_tools_do_to_a_file_does_no_harm(data: bytes, harm: str) -> None:
    """Line ends, byte order mark, blank lines and surrounding words change nothing."""
    read = read_public_key if data is SPKI else read_private_key
    assert read(HARMLESS[harm](data)).identity == BASELINE


@pytest.mark.parametrize("harm", ["CRLF", "BOM", "blank lines"])
def test_a_private_key_with_a_passphrase_survives_them_too(harm: str) -> None:
    """Also with the headers of an encrypted PKCS#1 key."""
    for name in ("rsa2048.enc-pkcs1.pem", "rsa2048.enc-pkcs8.pem"):
        data = (OWN / name).read_bytes()
        if not (harm == "blank lines" and b"Proc-Type" in data):  # a blank line ends those headers
            assert read_private_key(HARMLESS[harm](data), b"x").identity == BASELINE


@pytest.mark.parametrize("case", BROKEN)
def test_each_broken_file_names_its_one_reason(case: str) -> None:
    """What is wrong is said, in one sentence that shows nothing of the file."""
    read, data, reason = BROKEN[case]
    with pytest.raises(KeyRefused, match=reason) as refused:
        read(data)
    assert "MII" not in refused.value.detail


def test_an_openssh_private_key_gets_the_contract_s_hint() -> None:
    """Section 7's recipe, and that it rewrites in place and serves RSA only."""
    detail = refusal(read_private_key, (OWN / "rsa2048.openssh.pem").read_bytes()).detail
    assert "ssh-keygen -p -m PEM -f <key>" in detail
    assert "RSA only; it rewrites in place, so copy first" in detail


def test_an_openssh_private_key_at_register_is_told_of_its_public_half() -> None:
    """Who registers ~/.ssh/id_rsa has the right file beside it; to convert the private one would mend nothing."""
    refused = refusal(read_public_key, (OWN / "rsa2048.openssh.pem").read_bytes())
    assert refused.cause == "private"
    assert ".pub" in refused.detail
    assert "ssh-keygen -p" not in refused.detail


def test_a_private_key_given_as_public_shows_nothing_of_itself() -> None:
    """No private byte reaches the message."""
    refused = refusal(read_public_key, PKCS8)
    assert refused.cause == "private"
    assert all(line.decode() not in str(refused.__dict__) for line in PKCS8.splitlines()[1:-1])


def test_what_we_write_is_what_we_read() -> None:
    """PKCS#8, SPKI and the OpenSSH line come back as the same key; the comment is as it was written."""
    own = key()
    assert read_private_key(own.pem()).identity == own.identity
    assert (
        read_public_key(own.public.openssh().encode() + b" me\xc2\xa0at\xe2\x80\xae home\n").comment
        == "me\xa0at\u202e home"
    )
    assert own.pem().startswith(b"-----BEGIN PRIVATE KEY-----")
    assert own.public.pem().startswith(b"-----BEGIN PUBLIC KEY-----")


@pytest.mark.parametrize("passphrase", [b"", b"wrong", "päss".encode()])
def test_a_passphrase_is_asked_for_and_told_when_wrong(passphrase: bytes) -> None:
    """A key with a passphrase wants it; a wrong one is said; one too many is no error."""
    data = key().key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"right"))
    assert isinstance(refusal(read_private_key, data, None), PassphraseWanted)
    assert "passphrase is wrong" in refusal(read_private_key, data, passphrase).detail
    assert read_private_key(data, b"right").identity == key().identity
    assert read_private_key(key().pem(), passphrase).identity == key().identity


def test_a_generated_key_is_one_we_take() -> None:
    """RSA-3072 with e = 65537, found good by our own checks."""
    made = keys.generate_key()
    assert made.public.bits == 3072
    assert made.public.rsa.public_numbers().e == 65537
    assert read_public_key(made.public.pem()).identity == made.identity


def test_the_token_key_is_ed25519_and_no_other() -> None:
    """`token-key.pem` comes back; an RSA key or rubbish in its place is refused."""
    made = keys.generate_token_key()
    again = keys.read_token_key(keys.token_key_pem(made))
    assert again.public_key() == made.public_key()
    for data in (key().pem(), b"", b"rubbish", (OWN / "ed25519.spki.pub").read_bytes()):
        assert "token key" in refusal(keys.read_token_key, data).detail


@given(st.binary(max_size=300) | st.text().map(str.encode))
def test_no_bytes_are_more_than_refused(data: bytes) -> None:
    """Whatever a file holds, both readers refuse it by our refusal."""
    for read in (read_public_key, read_private_key):
        assert refusal(read, data).detail


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_a_mutated_public_key_is_refused_or_itself(data: st.DataObject) -> None:
    """One byte changed, dropped or added gives a refusal, the same key, or another key that keeps every rule."""
    text = bytearray(data.draw(st.sampled_from([SPKI, OPENSSH_PUBLIC, (OWN / "rsa2048.pkcs1.pub").read_bytes()])))
    at = data.draw(st.integers(0, len(text) - 1))
    text[at : at + data.draw(st.integers(0, 2))] = data.draw(st.binary(max_size=2))
    try:
        public = read_public_key(bytes(text))
    except KeyRefused:
        return
    assert public.bits >= 2048
    assert read_public_key(public.pem()).identity == public.identity


def pem(label: str, der: bytes = bytes(100)) -> bytes:
    """A PEM block of these bytes."""
    return f"-----BEGIN {label}-----\n{b64encode(der).decode()}\n-----END {label}-----\n".encode()


RSA = bytes.fromhex("06092a864886f70d0101")
UNKNOWN = b64decode(b"".join(PKCS8.splitlines()[1:-1])).replace(RSA + b"\x01", RSA + b"\x7f")

OTHER_KINDS: dict[str, tuple[Callable[[bytes], object], bytes, str]] = {
    "a public key": (read_private_key, SPKI, "this is a public key; give the private one"),
    "a public key, PKCS#1": (read_private_key, pem("RSA PUBLIC KEY"), "this is a public key; give the private one"),
    "a private key": (read_public_key, PKCS8, "this is a private key; give the public one"),
    "no private key": (read_private_key, pem("DH PARAMETERS"), "no private key but a DH PARAMETERS"),
    "no public key": (read_public_key, pem("DH PARAMETERS"), "no public key but a DH PARAMETERS"),
    "no key in it": (read_private_key, pem("PRIVATE KEY"), "the private key is damaged: its bytes are no key"),
    "no key in it, PKCS#1": (read_private_key, pem("RSA PRIVATE KEY"), "damaged: its bytes are no key"),
    "a line of rubbish": (read_public_key, b"ssh-rsa AAA*B3 me\n", "its base64 does not decode"),
    "text that begins like DER": (read_private_key, b"0 hello\n", "no key in PEM form"),
    "text whose second byte could be DER's": (read_private_key, "#é hello\n".encode(), "no key in PEM form"),
    "BER of no stated length": (read_private_key, b"\x30\x80\x30\x80", "DER"),
    "words": (read_public_key, b"hello\n", "no key in PEM or OpenSSH form"),
    "a kind nobody knows": (read_private_key, pem("PRIVATE KEY", UNKNOWN), "of a kind that is not supported"),
    "no public key in it": (read_public_key, pem("PUBLIC KEY"), "damaged: its bytes are no key"),
}


@pytest.mark.parametrize("case", OTHER_KINDS)
def test_a_file_of_another_kind_is_told_as_what_it_is(case: str) -> None:
    """Whoever took the wrong file learns which one it is, and a damaged one is not taken for a mislabelled one."""
    read, data, words = OTHER_KINDS[case]
    assert words in refusal(read, data).detail


@pytest.mark.parametrize("body", ["QR==", "w0==", "QUJ=", "QQ", "Q*Q=="])
def test_base64_has_one_spelling(body: str) -> None:
    """Bits that count for nothing, and what a decoder passes over, are damage: nobody writes them on purpose."""
    data = f"-----BEGIN PUBLIC KEY-----\n{body}\n-----END PUBLIC KEY-----\n".encode()
    for of_one_kind in (data, f"ssh-rsa {body}\n".encode()):
        assert refusal(read_public_key, of_one_kind).cause == "base64"


def test_the_largest_file_is_one_of_64_kib() -> None:
    """One byte more is not looked at."""
    assert read_public_key(SPKI.ljust(65536)).identity == BASELINE
    assert refusal(read_public_key, SPKI.ljust(65537)).cause == "size"


@pytest.mark.parametrize(("number", "words"), [(1, "not the canonical one"), (10, "RSASSA-PSS")])
def test_the_algorithm_in_a_public_key_is_looked_at(number: int, words: str) -> None:
    """A library reads it without its NULL (RFC 3279, 2.3.1 wants it), and where the key is for another use: one of
    RSASSA-PSS alone."""
    der = b64decode(b"".join(SPKI.splitlines()[1:-1]))
    short = der.replace(b"\x30\x0d" + RSA + b"\1\5\0", b"\x30\x0b" + RSA + bytes([number]))
    short = short[:2] + (len(short) - 4).to_bytes(2) + short[4:]
    assert words in refusal(read_public_key, pem("PUBLIC KEY", short)).detail


@pytest.mark.parametrize("padded", [1, 2])
def test_one_key_has_one_spelling(padded: int) -> None:
    """A zero in front of a number is the same key to a library: to us it would be two lines of one identity."""
    blob = b64decode(OPENSSH_PUBLIC.split()[1])
    parts = []
    while blob:
        size = int.from_bytes(blob[:4])
        parts.append(blob[4 : 4 + size])
        blob = blob[4 + size :]
    parts[padded] = b"\0" + parts[padded]
    spelled = b"".join(len(part).to_bytes(4) + part for part in parts)
    assert "not the canonical one" in refusal(read_public_key, b"ssh-rsa " + b64encode(spelled)).detail

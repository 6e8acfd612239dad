"""The challenge: a nonce that only its engine made, only its minute knows, and nobody can bend (sections 2.1 and 5)."""

from __future__ import annotations

from base64 import b64encode, urlsafe_b64encode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hatchway.engine.access.challenges import ANY, LIFETIME, PREFIX, Challenges, decode_signature
from hatchway.engine.base.base64url import decode, encode
from hatchway.engine.base.errors import SignatureRefused
from tests.support.fakes import SetClock


def refused(challenges: Challenges, nonce: str) -> str:
    """Why a nonce is refused."""
    with pytest.raises(SignatureRefused) as raised:
        challenges.read(nonce)
    return raised.value.cause


def test_a_nonce_is_recognised_with_what_it_carries() -> None:
    """The identity comes back; the prefix, the host as dialled and 256 random bits are in it; it is printable ASCII."""
    challenges = Challenges(SetClock())
    nonce = challenges.issue("127.0.0.1:7420", "SHA256:a+b/c")
    parts = nonce.split(".")
    assert parts[0] == PREFIX
    assert decode(parts[1]) == b"127.0.0.1:7420"
    assert len(decode(parts[3])) == 32
    assert nonce.isascii()
    assert nonce.isprintable()
    challenge = challenges.read(nonce)
    assert challenge.identity == "SHA256:a+b/c"
    assert LIFETIME <= challenge.seconds_left <= LIFETIME + 1
    assert challenges.read(challenges.issue("x")).identity == ANY


@pytest.mark.parametrize(("issued", "age"), [(1000.0, 0.0), (1000.9, 59.9), (1000.0, 20.25)])
def test_what_is_left_of_its_minute(issued: float, age: float) -> None:
    """A nonce's digest is kept a second longer than the nonce is good, whatever its age, counted in milliseconds."""
    clock = SetClock()
    challenges = Challenges(clock)
    clock.now = issued
    nonce = challenges.issue("h")
    clock.now += age
    assert challenges.read(nonce).seconds_left == pytest.approx(LIFETIME - age + 1, abs=0.002)


def test_a_nonce_of_a_time_to_come_is_refused() -> None:
    """Of an engine whose clock is ahead, or of a clock that was set back."""
    clock = SetClock()
    challenges = Challenges(clock)
    nonce = challenges.issue("h")
    clock.now -= 1
    assert refused(challenges, nonce) == "old_nonce"


def test_nonces_never_repeat() -> None:
    """C4: ten thousand at one moment differ, and so do their random parts alone."""
    challenges = Challenges(SetClock())
    nonces = [challenges.issue("h") for _ in range(10_000)]
    assert (
        len({nonce.split(".")[3] for nonce in nonces}) == len({nonce.split(".")[3][:16] for nonce in nonces}) == 10_000
    )


def test_a_nonce_lasts_its_minute() -> None:
    """D2: good in its last millisecond, old in the next; its digest is remembered a little longer than it lasts."""
    clock = SetClock()
    challenges = Challenges(clock)
    nonce = challenges.issue("h")
    clock.now += LIFETIME
    left = challenges.read(nonce).seconds_left
    assert left > 0
    clock.now += 0.002
    assert refused(challenges, nonce) == "old_nonce"
    assert clock.now < 1000 + LIFETIME + left, "the used set forgets it only after that"


def test_another_start_makes_it_foreign() -> None:
    """D4: the MAC key lives in memory, so that a restart ends every nonce; a shared key is a fleet's."""
    nonce = Challenges(SetClock()).issue("h")
    assert refused(Challenges(SetClock()), nonce) == "foreign_nonce"
    shared = Challenges(SetClock(), b"k" * 32).issue("h")
    assert Challenges(SetClock(), b"k" * 32).read(shared).identity == ANY


@given(st.integers(0, 10_000), st.characters())
def test_a_changed_character_makes_it_foreign(position: int, letter: str) -> None:
    """D4: any one character, anywhere, to anything else."""
    challenges = Challenges(SetClock(), b"k" * 32)
    nonce = challenges.issue("127.0.0.1:7420", "SHA256:abc")
    position %= len(nonce)
    if nonce[position] != letter:
        assert refused(challenges, nonce[:position] + letter + nonce[position + 1 :]) == "foreign_nonce"


@given(st.text(st.characters(), max_size=300))
def test_no_text_is_a_nonce(text: str) -> None:
    """Whatever is sent, lone surrogates too, is refused by the one refusal."""
    challenges = Challenges(SetClock())
    assert refused(challenges, text) == "foreign_nonce"
    assert refused(challenges, f"{PREFIX}.{text}") == "foreign_nonce"
    assert refused(challenges, f"{challenges.issue('h')}{text or '.'}") == "foreign_nonce"


@given(st.binary(max_size=64))
def test_base64url_has_one_spelling(data: bytes) -> None:
    """RFC 7515 section 2: without padding, and the last character's spare bits are zero."""
    assert decode(encode(data)) == data
    for other in (encode(data) + "=", encode(data) + "\n", " " + encode(data)):
        with pytest.raises(ValueError, match=r".*"):
            decode(other)


@pytest.mark.parametrize("spelled", ["AB", "QUJDRB", "a", "+/", "é", "A===", "\ud800"])
def test_other_spellings_are_refused(spelled: str) -> None:
    """Spare bits set, one character over, the other alphabet, padding, no ASCII."""
    with pytest.raises(ValueError, match=r".*"):
        decode(spelled)


@given(st.binary(min_size=1, max_size=300))
def test_a_signature_in_either_alphabet(data: bytes) -> None:
    """base64 or base64url, padded or not, give the same bytes."""
    for text in (b64encode(data).decode(), urlsafe_b64encode(data).decode()):
        assert decode_signature(text) == decode_signature(text.rstrip("=")) == data


@given(st.text(st.characters(), max_size=80))
def test_no_text_breaks_the_signature_reader(text: str) -> None:
    """It is bytes, or the one refusal; what is read has no second spelling but padding and alphabet."""
    try:
        data = decode_signature(text)
    except SignatureRefused:
        return
    assert text.rstrip("=").replace("+", "-").replace("/", "_") == encode(data)


@pytest.mark.parametrize(
    "text", ["+_AA", "/-AA", "QQ=", "QQ===", "=QQ=", "QQ==\n", "Q Q==", "Q!Q=", "QR==", "0x4141", "A"]
)
def test_loose_signatures_are_refused(text: str) -> None:
    """V5: mixed alphabets, half or too much padding, spaces, strangers, spare bits."""
    with pytest.raises(SignatureRefused):
        decode_signature(text)


class Fleet:
    """What engines share: a time that each of them reads a little off, and one MAC key for each hundred seconds."""

    def __init__(self) -> None:
        self.time = 1050.0

    def now(self) -> float:
        return self.time

    def mac_key(self, issued: float) -> bytes | None:
        return b"%d" % (issued // 100) if issued >= 1000 else None


@pytest.mark.parametrize("age", [-2.0, 0.0, 60.0])
def test_engines_that_share_a_source_know_each_others_nonces(age: float) -> None:
    """Of a minute, give or take the two seconds by which they may read the time differently; used ones are kept as much
    longer, until a time of the source's own."""
    source = Fleet()
    nonce = Challenges(SetClock(), shared=source).issue("h", "SHA256:a")
    source.time += age
    challenge = Challenges(SetClock(), shared=source).read(nonce)
    assert (challenge.identity, challenge.seconds_left, challenge.until) == ("SHA256:a", 63 - age, 1113.0)


@pytest.mark.parametrize("age", [-2.001, 60.001])
def test_a_nonce_of_another_minute_is_refused_by_all(age: float) -> None:
    """It is from the future by more than their clocks differ, or too old."""
    source = Fleet()
    nonce = Challenges(SetClock(), shared=source).issue("h")
    source.time += age
    assert refused(Challenges(SetClock(), shared=source), nonce) == "old_nonce"


def test_a_nonce_of_a_time_without_a_key_is_refused() -> None:
    """Also one made with no key at all, which anybody could do."""
    source = Fleet()
    source.time = 999.0
    nonce = Challenges(SetClock(), shared=source).issue("h")
    assert refused(Challenges(SetClock(), shared=source), nonce) == "foreign_nonce"

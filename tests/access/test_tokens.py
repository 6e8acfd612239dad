"""Session tokens: one algorithm, one type, one spelling, and nothing of a stranger's believed (RFC 8725; case D14)."""

from __future__ import annotations

import json
import secrets
from typing import Any, NamedTuple

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hypothesis import given
from hypothesis import strategies as st

from hatchway.engine.access import tokens
from hatchway.engine.access.tokens import LONGEST_TOKEN, TYPE, Tokens, key_id
from hatchway.engine.base.base64url import decode, encode
from hatchway.engine.base.errors import TokenRefused
from tests.support.hostile_requests import token_attacks

ENGINE = "engine-1"
KEY = Ed25519PrivateKey.from_private_bytes(b"k" * 32)
GRANTED = ("SHELL", "AGENT")


class Made(NamedTuple):
    reader: Tokens
    token: str


@pytest.fixture
def made() -> Made:
    reader = Tokens(ENGINE, KEY)
    return Made(reader, reader.issue("SHA256:abc", "session-1", GRANTED, 1_700_000_000, 2_000_000_000))


def refused(reader: Tokens, token: str) -> bool:
    """Whether a token is refused, and by nothing else than our refusal."""
    try:
        reader.read(token)
    except TokenRefused:
        return True
    return False


def forged(payload: Any, key: Ed25519PrivateKey = KEY, **header: Any) -> str:
    """A token under a key, its payload as given, its header ours but for what is said."""
    named = {"typ": TYPE, "kid": key_id(KEY.public_key()), "alg": "EdDSA"} | header
    text = ".".join(encode(json.dumps(part).encode()) for part in (named, payload))
    return f"{text}.{encode(key.sign(text.encode()))}"


def claims(**changed: Any) -> dict[str, Any]:
    """A payload that is good, but for what is changed; `...` leaves a claim out."""
    good = {"iss": ENGINE, "aud": ENGINE, "sub": "SHA256:abc", "sid": "s", "jti": "j", "iat": 1, "exp": 2_000_000_000}
    return {name: value for name, value in (good | {"permissions": ["SHELL"]} | changed).items() if value is not ...}


def test_a_token_says_what_it_was_made_with(made: Made) -> None:
    """RFC 7519: type, key, issuer, audience, subject, session, id, times, permissions."""
    header = jwt.get_unverified_header(made.token)
    assert header == {"alg": "EdDSA", "typ": TYPE, "kid": key_id(KEY.public_key())}
    payload = made.reader.read(made.token)
    assert (payload.iss, payload.aud, payload.sub, payload.sid) == (ENGINE, ENGINE, "SHA256:abc", "session-1")
    assert (payload.iat, payload.exp, payload.permissions) == (1_700_000_000, 2_000_000_000, GRANTED)
    others = {made.reader.read(made.reader.issue("a", "s", (), 0, 1)).jti for _ in range(100)}
    assert len(others) == 100


def test_a_good_forgery_helper_is_accepted(made: Made) -> None:
    """The tests below fail for what they change, not for how they are built."""
    assert made.reader.read(forged(claims())).permissions == ("SHELL",)


@pytest.mark.parametrize("claim", ["iss", "aud", "sub", "sid", "jti", "iat", "exp", "permissions"])
def test_every_claim_is_wanted(made: Made, claim: str) -> None:
    """D14: our own signature over a payload that lacks one is no token."""
    assert refused(made.reader, forged(claims(**{claim: ...})))
    assert refused(made.reader, forged(claims(**{claim: None})))


@pytest.mark.parametrize(
    "changed",
    [
        {"iss": "engine-2"},
        {"aud": "engine-2"},
        {"aud": [ENGINE]},
        {"iss": [ENGINE]},
        {"sub": 1},
        {"sid": 1},
        {"jti": 1},
        {"exp": "2000000000"},
        {"exp": True},
        {"exp": 1e300},
        {"exp": 2_000_000_000.5},
        {"exp": float("nan")},
        {"exp": float("inf")},
        {"exp": [1]},
        {"iat": "1"},
        {"nbf": 4_000_000_000},
        {"permissions": "MASTER"},
        {"permissions": [1]},
        {"permissions": {"MASTER": True}},
    ],
    ids=repr,
)
def test_every_claim_has_its_type(made: Made, changed: dict[str, Any]) -> None:
    """D14, B9: even under our own key."""
    assert refused(made.reader, forged(claims(**changed)))


@pytest.mark.parametrize("payload", [[], "x", 1, None, {}, [claims()]], ids=repr)
def test_a_payload_is_an_object(made: Made, payload: Any) -> None:
    """Not a list, a text, a number or nothing."""
    assert refused(made.reader, forged(payload))


@pytest.mark.parametrize(
    "header",
    [
        {"typ": "JWT"},
        {"typ": TYPE.upper()},
        {"typ": "hatchway-license+jwt"},
        {"typ": None},
        {"kid": "other"},
        {"kid": ""},
        {"kid": None},
        {"kid": ["a"]},
        {"kid": {}},
        {"alg": "none"},
        {"alg": "Ed25519"},
        {"alg": "HS256"},
        {"crit": ["exp"]},
        {"crit": []},
        {"zip": "DEF"},
        {"b64": True},
        {"cty": "JWT"},
        {"jwk": {"kty": "OKP", "crv": "Ed25519", "x": "AAAA"}},
        {"jku": "http://127.0.0.1:9/"},
        {"x5u": "http://127.0.0.1:9/"},
        {"x5c": ["AA=="]},
        {"anything": 1},
    ],
    ids=repr,
)
def test_the_header_is_ours_exactly(made: Made, header: dict[str, Any]) -> None:
    """J1, RFC 8725 3.10 and 3.11: whatever else stands in it, signed by us or not, it is no session token."""
    assert refused(made.reader, forged(claims(), **header))


def test_another_key_is_another_engine(made: Made) -> None:
    """A stranger's key with our kid in the header; the old key after its time; the old one while it is kept."""
    stranger = Ed25519PrivateKey.generate()
    assert refused(made.reader, forged(claims(), stranger))
    made.reader.use(stranger, KEY.public_key())
    assert not refused(made.reader, made.token)
    assert [row["kid"] for row in made.reader.jwks()["keys"]] == [key_id(key.public_key()) for key in (stranger, KEY)]
    made.reader.use(stranger)
    assert refused(made.reader, made.token), "a verified token was kept past its key"


def test_the_93_attacks(made: Made, tmp_path: Any) -> None:
    """D14: every variant of a good token is refused; `ok-` ones only spell the scheme, which an endpoint reads."""
    public = tmp_path / "public.pem"
    public.write_bytes(KEY.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    variants = token_attacks(made.token, (public,))
    assert len(variants) >= 93
    schemes = ("no scheme", "Basic", "tab", "ok-")
    told = {
        name: refused(made.reader, text.partition(" ")[2]) for name, text in variants if not name.startswith(schemes)
    }
    assert [name for name, no in told.items() if not no] == []


def test_one_spelling(made: Made) -> None:
    """Finding 7: the text that was issued and no other, so that two texts are never one token."""
    header, payload, signature = made.token.split(".")
    for other in (
        f"{made.token}=",
        f"{made.token} ",
        f" {made.token}",
        f"{made.token}\n",
        f"{header}=.{payload}.{signature}",
        f"{header}.{payload}=.{signature}",
        f"{header}.{payload}.{signature[:-1]}{_other_letter(signature[-1])}",
        f"{header}.{payload}.{signature[:9]} {signature[9:]}",
        f"{header}.{payload}.{signature[:9]}!{signature[9:]}",
        made.token.upper(),
    ):
        assert refused(made.reader, other)


def _other_letter(letter: str) -> str:
    """The same 64 bytes end in either: four spare bits."""
    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    return letters[letters.index(letter) ^ 1]


def test_a_long_token_is_not_read(made: Made) -> None:
    """One character past the limit is refused before anything is decoded; so is a megabyte, in no time."""
    longest = forged(claims(sub="a" * 5000))
    assert len(longest) < LONGEST_TOKEN
    assert not refused(made.reader, longest)
    assert refused(made.reader, forged(claims(sub="a" * 6000)))
    assert refused(made.reader, "A" * 1_048_576)


def test_what_is_kept_is_bounded(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only verified tokens are kept, by their exact text, and not more than so many."""
    monkeypatch.setattr(tokens, "CACHED", 8)
    issued = [made.reader.issue("a", str(number), (), 0, 1) for number in range(50)]
    assert [made.reader.read(token).sid for token in issued] == [str(number) for number in range(50)]
    for token in issued:
        assert refused(made.reader, token + "=")
    assert len(made.reader._verified) == 8


@given(st.binary(max_size=120) | st.text(st.characters(codec="ascii")).map(str.encode), st.integers(0, 2))
def test_no_part_breaks_the_reader(part: bytes, which: int) -> None:
    """Any bytes in the place of any part are refused by the one refusal."""
    reader = Tokens(ENGINE, KEY)
    parts = reader.issue("a", "s", (), 0, 1).split(".")
    for spelled in (encode(part), part.decode("latin-1")):
        bent = ".".join([*parts[:which], spelled, *parts[which + 1 :]])
        assert spelled == parts[which] or refused(reader, bent)


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(), st.lists, max_leaves=8))
def test_no_claim_breaks_the_reader(value: Any) -> None:
    """Signed by ourselves, each claim set to anything JSON can say: a payload of the right types, or the refusal."""
    reader = Tokens(ENGINE, KEY)
    for claim in ("iss", "aud", "sub", "sid", "jti", "iat", "exp", "permissions", "nbf", secrets.choice(["x", "typ"])):
        try:
            payload = reader.read(forged(claims(**{claim: value})))
        except TokenRefused:
            continue
        assert type(payload.exp) is type(payload.iat) is int
        assert payload.iss == payload.aud == ENGINE


def test_the_published_key_verifies(made: Made) -> None:
    """RFC 7517, 8037: others verify with the key set and a plain library, and find the key by the token's `kid`."""
    rows = made.reader.jwks()["keys"]
    assert [set(row) for row in rows] == [{"kty", "crv", "x", "kid", "use", "alg"}]
    assert len(decode(rows[0]["x"])) == 32
    found = jwt.PyJWKSet.from_dict({"keys": [dict(row) for row in rows]})[jwt.get_unverified_header(made.token)["kid"]]
    told = jwt.decode(made.token, found.key, algorithms=["EdDSA"], audience=ENGINE, issuer=ENGINE)
    assert told["sid"] == "session-1"

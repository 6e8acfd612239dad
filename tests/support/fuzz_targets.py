"""Every parser that reads a stranger's bytes, as a function of bytes: it returns, or raises its refusal."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from hatchway.api.client.agent import read_keys, read_signature
from hatchway.api.client.wire import ClientFault, LineReader, as_type, check_nonce, read_json, started, token_facts
from hatchway.api.http.bodies import read_fields, read_object
from hatchway.api.http.endpoint import bearer
from hatchway.api.http.endpoints.auth import PairFields, VerifyFields
from hatchway.api.http.gateway import Addresses
from hatchway.api.http.proxies import forwarded_for
from hatchway.api.http.request import Request
from hatchway.engine.access.challenges import Challenges, decode_signature
from hatchway.engine.access.limits import source_of
from hatchway.engine.access.tokens import Tokens
from hatchway.engine.base.clock import SystemClock
from hatchway.engine.base.durations import lifetime
from hatchway.engine.base.errors import Refusal
from hatchway.engine.base.files import make_private_dir, write_private
from hatchway.engine.base.permissions import parse_permissions
from hatchway.engine.instances.confinement import confine
from hatchway.engine.instances.request import InstanceFields, Policy
from hatchway.engine.keys.key_lines import parse_file
from hatchway.engine.keys.keys import read_private_key, read_public_key
from hatchway.engine.pairings.claims import escaped_agent
from hatchway.engine.pairings.codes import ALPHABET, normalise
from hatchway.engine.settings.sources import load_settings, read_environment

KEY = Ed25519PrivateKey.from_private_bytes(b"k" * 32)
CHALLENGES = Challenges(SystemClock(), b"k" * 32)
TOKENS = Tokens("engine", KEY)
ADDRESSES = Addresses((("127.0.0.1", 7420),), ("gate.example:8443",))


def text_of(data: bytes) -> str:
    """Any text: UTF-8 where it is, else each byte a character; half surrogates come through as they may in JSON."""
    try:
        return data.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return data.decode("latin-1")


@cache
def folder() -> Path:
    """An engine's folder, for parsers of files."""
    home = Path(tempfile.mkdtemp(prefix="hatchway-fuzz-")) / "home"
    make_private_dir(home)
    write_private(home / "config.toml", b"")
    return home


def nonce(data: bytes) -> None:
    CHALLENGES.read(text_of(data))


def signature(data: bytes) -> None:
    decode_signature(text_of(data))


def token(data: bytes) -> None:
    TOKENS.read(text_of(data))


def authorization(data: bytes) -> None:
    TOKENS.read(bearer(Request("GET", "/", b"", ((b"authorization", data),), b"", ("127.0.0.1", 1), None)))


def public_key(data: bytes) -> None:
    read_public_key(data)


def private_key(data: bytes) -> None:
    read_private_key(data, None)


def authorized_keys(data: bytes) -> None:
    for line in parse_file(data):
        assert line.entry is None or line.entry.permissions


def duration(data: bytes) -> None:
    seconds, _ = lifetime(text_of(data))
    assert 60 <= seconds <= 86_400


def permission_list(data: bytes) -> None:
    assert parse_permissions(text_of(data))


def code(data: bytes) -> None:
    text = text_of(data)
    if not any("\ud800" <= sign <= "\udfff" for sign in text):  # no body holds one
        normalised = normalise(text)
        assert normalise(normalised) == normalised or not set(normalised) <= set(ALPHABET)


def agent(data: bytes) -> None:
    shown = escaped_agent(data)
    assert len(shown) <= 200
    assert all(" " <= sign <= "~" for sign in shown)


def host(data: bytes) -> None:
    ADDRESSES.check_host(data.decode("latin-1"), None, "127.0.0.1")


def origin(data: bytes) -> None:
    ADDRESSES.check_origin(data.decode("latin-1"), "127.0.0.1")


def hops(data: bytes) -> None:
    source_of(forwarded_for(((b"x-forwarded-for", data),), "10.0.0.1", ("10.0.0.0/8",)) or text_of(data))


def body(data: bytes) -> None:
    value = read_object(b"application/json", data)
    for kind in (VerifyFields, PairFields):
        try:
            read_fields(kind, value)
        except Refusal:
            continue


def instance(data: bytes) -> None:
    fields = read_fields(InstanceFields, read_object(b"application/json", data))
    request = confine(fields, Policy(folder(), (str(folder().parent),), ("docker.io",), (str(folder().parent),), True))
    assert "," not in "".join(volume.source + volume.destination for volume in request.volumes)
    assert not any(name.upper().startswith(("APPTAINER", "SINGULARITY")) for name in request.env)


def volume(data: bytes) -> None:
    fields = InstanceFields(image="a.sif", volume=text_of(data).split("\n"))
    request = confine(fields, Policy(folder(), (), (), ("/",), False))
    assert not any(Path(one.source).is_relative_to(folder()) for one in request.volumes)


def variables(data: bytes) -> None:
    confine(InstanceFields(image="docker://a", env=text_of(data).split("\n")), Policy(folder(), (), ("docker.io",)))


def quantities(data: bytes) -> None:
    cpu, memory, gpu, image = (text_of(data).split("\n") + [""] * 4)[:4]
    confine(InstanceFields(image=image, cpu=cpu, memory=memory, gpu=gpu), Policy(folder(), (), ("docker.io",)))


def settings_file(data: bytes) -> None:
    (folder() / "config.toml").write_bytes(data)  # no fsync: this runs often
    load_settings(folder(), {}, {})


def environment(data: bytes) -> None:
    name, _, value = text_of(data).partition("=")
    read_environment({f"HATCHWAY_{name}": value})


def client_lines(data: bytes) -> None:
    reader = LineReader()
    lines = [line for cut in range(0, len(data), 7) for line in reader.feed(data[cut : cut + 7])]
    for line in [*lines, *reader.rest()]:
        as_type(read_json(line), dict)


def client_answer(data: bytes) -> None:
    token_facts(text_of(data))
    started(read_json(data))


def client_nonce(data: bytes) -> None:
    check_nonce(text_of(data), "127.0.0.1:7420", "SHA256:abc")


def agent_answer(data: bytes) -> None:
    for found in read_keys(data):
        found.kind, found.identity, found.line  # noqa: B018
    read_signature(data)


TARGETS: tuple[Callable[[bytes], None], ...] = (
    nonce,
    signature,
    token,
    authorization,
    public_key,
    private_key,
    authorized_keys,
    duration,
    permission_list,
    code,
    agent,
    host,
    origin,
    hops,
    body,
    instance,
    volume,
    variables,
    quantities,
    settings_file,
    environment,
    client_lines,
    client_answer,
    client_nonce,
    agent_answer,
)
"""In a fixed order: a crash that was kept names its target by the number that is its first byte."""


def run(data: bytes) -> None:
    """One input: the first byte picks the parser, the rest is for it. Raises only what nobody documents."""
    if data:
        try:
            TARGETS[data[0] % len(TARGETS)](data[1:])
        except (Refusal, ClientFault):
            return


def seeds() -> list[bytes]:
    """Inputs that each parser takes, or nearly: where a fuzzer should begin."""
    issued = CHALLENGES.issue("127.0.0.1:7420", "SHA256:abc")
    own = Path(__file__).parents[1] / "data" / "own" / "keys"
    keys = [path.read_bytes() for path in sorted(own.iterdir()) if path.stat().st_size < 2_000]
    lines = (Path(__file__).parents[1] / "data" / "public_keys.txt").read_bytes()[:3000]
    good: dict[Callable[[bytes], None], list[bytes]] = {
        nonce: [issued.encode()],
        signature: [b"QUJD", b"QUI=", b"-_8="],
        token: [TOKENS.issue("SHA256:abc", "s", ("SHELL",), 0, 1).encode()],
        authorization: [b"Bearer " + TOKENS.issue("a", "s", (), 0, 1).encode(), b"bearer x"],
        public_key: keys,
        private_key: keys,
        authorized_keys: [lines, b'permissions="SHELL,AGENT" ' + lines, b'from="a",command="b" ssh-rsa AAAA x\n#\n\n'],
        duration: [b"30m", b"2h", b"1m0s", b"0", b"99999999999999h"],
        permission_list: [b"SHELL,AGENT:READ", b"MASTER", b","],
        code: [b"ABCD-1234", "\uff21\uff22\uff23\uff24\uff11\uff12\uff13\uff14".encode(), b" o0 iIlL "],
        agent: [b'Mozilla/5.0 "\\\x1b[2J'],
        host: [b"127.0.0.1:7420", b"[::1]:7420", b"x.localhost:7420", b"evil.test"],
        origin: [b"http://127.0.0.1:7420", b"null", b"https://gate.example:8443"],
        hops: [b"203.0.113.9, 10.0.0.2", b"2001:db8::1", b"fe80::1%eth0"],
        body: [b'{"nonce":"a","signature":"b","algorithm":"PS256","lifetime":null}', b'{"code":"\\ud83d\\ude00"}'],
        instance: [b'{"image":"a.sif","command":["a"],"env":["A=1"],"volume":["/a:/b:ro"],"cpu":"0.5","gpu":"all"}'],
        volume: [b"/tmp:/data:rw\n/tmp:/x", b"/proc/self/root:/x"],
        variables: [b"A=1\nB=$(id)", b"APPTAINER_BIND=/"],
        quantities: [b"500m\n2Gi\n1\ndocker://a/b:c", b"2\n512M\nall\noras://r.example/a@sha256:" + b"a" * 64],
        settings_file: [b'port = 1\n[limits]\nwrong_codes = 5\n[log]\nlevel = "debug"\n', b'addresses = ["a:1"]\n'],
        environment: [b"PORT=1", b"ADDRESSES=a:1,b:2", b"SESSION_MAX_AGE_KEY=2h", b"TRUSTED_PROXIES=10.0.0.0/8"],
        client_lines: [b'{"accepted":true,"match":"42","expires_in":30}\n\n{"token":"a"}'],
        client_answer: [b'[{"kind":"status","payload":{"code":0,"message":"a"}},{"kind":"entity","payload":"b"},{}]'],
        client_nonce: [issued.encode()],
        agent_answer: [b"\x0c\0\0\0\1\0\0\0\x0b\0\0\0\7ssh-rsa\0\0\0\1a", b"\x0e\0\0\0\x0a\0\0\0\1r\0\0\0\1s"],
    }
    assert set(good) == set(TARGETS)
    return [bytes([number]) + seed for number, target in enumerate(TARGETS) for seed in good[target]]

"""Options of authorized_keys as a real sshd reads them: generated lines, judged by both (sshd(8), AUTHORIZED_KEYS)."""

from __future__ import annotations

import os
import pwd
import random
import re
import shutil
import socket
import subprocess
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import combinations, islice
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicNumbers
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from hatchway.engine.keys.key_lines import parse_file
from hatchway.engine.keys.keys import generate_key
from tests.conftest import SYSTEM_PATH
from tests.support.fakes import effort, key, key_file
from tests.support.ports import free_port

pytestmark = pytest.mark.ssh

LINES = 300
"""Of CI; HATCHWAY_EFFORT multiplies them."""

OFFERED = 30
"""Keys that one connection offers; ssh takes no more than a hundred."""

SOURCES = ("127.0.0.1", "127.1.2.3", "127.9.9.9", "127.200.0.7")
"""Addresses of loopback that a connection may come from."""

STRICTER = {
    "stands twice": "of two options sshd takes the earlier time; an edit could not tell which of them is meant",
    "neither a key nor options that can be read": "sshd passes over a comma behind the last option",
    "is no address": "sshd reads 127.1 and 0x7f.1 as addresses, and 999.1.1.1 as a name that nobody has",
    "is neither an address, a network": "sshd takes a text with a space for a name that never matches, negated or not",
    "is no time": "sshd reads the 30th of February as the 2nd of March, a second 60, and spaces for digits",
    "the option FROM": "sshd reads names of options in either case",
    "the option Expiry-Time": "as before",
}
"""What our reader says of a line that sshd accepts and we do not, and why we are stricter."""

PATTERNS = (
    *("127.0.0.1", "127.0.0.0/8", "127.1.0.0/16", "127.1.2.3", "127.*", "127.?.2.3", "127.*.9", "*", "?*", "*.9.9"),
    *("!127.1.2.3", "!127.9.0.0/16", "!127.*.9.*", "!*", "!127.200.0.7/32", "!localhost", "!10.0.0.0/8"),
    *("10.0.0.0/8", "localhost", "*.example.com", "::1", "fe80::/10", "::ffff:127.0.0.1", "2001:DB8::*", "12[7].*"),
    *(
        "127.0.0.1/8",
        "127.0.0.1/33",
        "127.0.0.0/8/8",
        "127.0.0.0/",
        "127.0.0.0/08",
        "",
        "!",
        "127.1",
        "0x7f.1",
        "999.1.1",
    ),
    *(" 127.0.0.1", "! 127.1.2.3", "127.0.0.1 ", "!!127.0.0.1", "face", "127.0.0.1-9"),
)


def moment(dice: random.Random) -> str:
    """A time within two years, written in one of the ways that there are, or not quite."""
    at = time.time() + dice.choice((-1, 1)) * dice.randrange(2 * 86_400, 600 * 86_400)
    form = dice.choice(("%Y%m%d", "%Y%m%d%H%M", "%Y%m%d%H%M%S")) + dice.choice(("", "", "Z", "z", "UTC", "Utc"))
    odd = (
        *("", "Z", "always", "20270230", "20271301", "20270132Z", "2027010", "202701011", "2027-01-01", "202701012460"),
        *("20270101235960", "20270101240000", "+2027010", "2027 1 1", "19690101", "19700101Z", "99991231235959Z"),
        *("20270101ZZ", "20270101 Z", "00000101", "2027010112", "20270101UT"),
    )
    return dice.choice(odd) if dice.random() < 0.3 else time.strftime(form, time.gmtime(at))


def option(dice: random.Random) -> str:
    """An option that both know, mostly well written."""
    name = dice.choices(("from", "expiry-time", "FROM", "Expiry-Time"), (8, 8, 1, 1))[0]
    value = ",".join(dice.choices(PATTERNS, k=dice.randrange(1, 4))) if name.lower() == "from" else moment(dice)
    quoting = dice.choices(("{}", '\\"{}', "{}\\", "{}\\\\", '{}\\"'), (30, 1, 1, 1, 1))[0].format(value)
    form = dice.choices(
        ('{}="{}"', "{}={}", '{}="{}', '{} ="{}"', '{}= "{}"', "{}", '{}="{}"x'), (30, 1, 1, 1, 1, 1, 1)
    )[0]
    return form.format(name, quoting)


def line_of(dice: random.Random, public: str) -> str:
    """Options, and a key."""
    joint = dice.choices((",", ", ", " ,", ",,", " "), (30, 1, 1, 1, 1))[0]
    options = joint.join(option(dice) for _ in range(dice.choices((0, 1, 2, 3), (1, 6, 6, 2))[0]))
    end = dice.choices((" ", "\t", "  ", ", ", ""), (30, 2, 2, 1, 1))[0]
    return f"{options}{end}{public} somebody\n"


def publics(count: int) -> list[str]:
    """As many sound RSA-2048 public keys, in OpenSSH's form: a few keys' primes, each multiplied by each."""
    primes: list[int] = []
    while len(primes) * (len(primes) - 1) // 2 < count:
        numbers = generate_key(2048).rsa.private_numbers()
        primes += [numbers.p, numbers.q]
    pairs = islice(combinations(primes, 2), count)
    keys = (RSAPublicNumbers(65537, one * other).public_key() for one, other in pairs)
    return [made.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode() for made in keys]


class Sshd:
    """A real sshd on a free port of loopback, with one file of keys for everybody."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.port = folder, free_port()
        self.keys = folder / "authorized_keys"
        host = folder / "host"
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(host)], check=True)
        config = folder / "sshd_config"
        config.write_text(
            f"ListenAddress 127.0.0.1:{self.port}\nHostKey {host}\nAuthorizedKeysFile {self.keys}\nPidFile none\n"
            "StrictModes no\nUsePAM no\nUseDNS no\nPasswordAuthentication no\nPermitRootLogin yes\n"
            "KbdInteractiveAuthentication no\nMaxAuthTries 1000\nLoginGraceTime 0\n"
        )
        if os.geteuid() == 0:
            Path("/run/sshd").mkdir(exist_ok=True)  # it starts only where there is one
        program = shutil.which("sshd", path=SYSTEM_PATH)
        assert program is not None
        with (folder / "log").open("wb") as log:
            self._process = subprocess.Popen([program, "-D", "-e", "-f", str(config)], stdout=log, stderr=log)
        until = time.monotonic() + 30
        while time.monotonic() < until:
            try:
                socket.create_connection(("127.0.0.1", self.port)).close()
            except OSError:
                time.sleep(0.05)
            else:
                return
        raise AssertionError((folder / "log").read_text())

    def _ssh(self, source: str, identities: Sequence[Path]) -> subprocess.CompletedProcess[str]:
        user = pwd.getpwuid(os.geteuid()).pw_name
        options = ("BatchMode=yes", "StrictHostKeyChecking=no", "UserKnownHostsFile=/dev/null", "IdentitiesOnly=yes")
        arguments = [word for one in options for word in ("-o", one)]
        offered = [word for one in identities for word in ("-i", str(one))]
        done = subprocess.run(
            [
                *("ssh", "-F", "none", "-v", *arguments, *offered, "-b", source),
                *("-p", str(self.port), f"{user}@127.0.0.1", "true"),
            ],
            env={"PATH": os.environ["PATH"]},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode in (0, 255), done
        return done

    def accepted(self, lines: Sequence[tuple[str, str]], source: str) -> list[bool]:
        """Of lines and the keys in them: whether each key is accepted from there, by the file of all of them.

        One connection offers every key without a signature, which sshd answers once it has read the key's line and
        judged its options (RFC 4252 section 7). ssh then has no private key to go on with, and offers the next.
        """
        self.keys.write_text("".join(line for line, _ in lines))
        offered = [self.folder / f"offered-{number}.pub" for number in range(len(lines))]
        for path, (_, public) in zip(offered, lines, strict=True):
            path.write_text(f"{public}\n")
        told = self._ssh(source, offered).stderr
        found = {
            kind: set(re.findall(rf"{kind} key: \S*/offered-(\d+)\.pub", told))
            for kind in ("Offering public", "accepts")
        }
        assert len(found["Offering public"]) == len(lines), told
        return [str(number) in found["accepts"] for number in range(len(lines))]

    def logs_in(self, line: str, source: str) -> bool:
        """Whether the test key `one` logs in by this line, from there."""
        self.keys.write_text(line)
        return self._ssh(source, [key_file(self.folder / "id")]).returncode == 0

    def close(self) -> None:
        """End it."""
        self._process.terminate()
        self._process.wait()


@pytest.fixture
def sshd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Sshd]:
    """One in a time zone that has a summer time; ours is in it too."""
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    server = Sshd(tmp_path)
    yield server
    server.close()
    monkeypatch.undo()
    time.tzset()


def ours(line: str, source: str) -> tuple[bool, str]:
    """Whether we accept, and the fault of a line that grants nothing."""
    (read,) = parse_file(line.encode())
    if read.entry is None:
        return False, read.fault or ""
    options = read.entry.options
    return options is None or (options.ends_by(0) > time.time() and options.admits(source)), ""


def test_generated_lines_are_judged_as_by_sshd(sshd: Sshd) -> None:
    """We accept nothing that sshd refuses, and refuse nothing that it accepts but for a reason in the list."""
    dice = random.Random(17)
    keys = publics(int(LINES * effort()))
    seen: Counter[str] = Counter()
    for first in range(0, len(keys), OFFERED):
        lines = [(line_of(dice, public), public) for public in keys[first : first + OFFERED]]
        source = dice.choice(SOURCES)
        for (line, _), theirs in zip(lines, sshd.accepted(lines, source), strict=True):
            mine, fault = ours(line, source)
            reasons = [words for words in STRICTER if words in fault]
            assert mine == theirs or (theirs and reasons), (line.partition("ssh-rsa")[0], source, mine, theirs, fault)
            seen[f"both {mine}" if mine == theirs else reasons[0]] += 1
    print(dict(seen))
    assert seen["both True"] > LINES / 20
    assert seen["both False"] > LINES / 5


def test_a_key_that_is_accepted_logs_in(sshd: Sshd) -> None:
    """What sshd answers to a key that is offered without a signature is what it does at a login."""
    public = key().public.openssh()
    for options, source in (
        *(('from="127.1.0.0/16" ', "127.1.2.3"), ('from="127.1.0.0/16" ', "127.0.0.1")),
        *(('expiry-time="20990101Z" ', "127.0.0.1"), ('expiry-time="20190101Z" ', "127.0.0.1")),
    ):
        line = f"{options}{public}\n"
        assert sshd.accepted([(line, public)], source) == [sshd.logs_in(line, source)] == [ours(line, source)[0]], line


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ('from="127.0.0.1",expiry-time="20990101Z",expiry-time="20980101Z" ', "stands twice"),
        ('from="127.0.0.1", ', "neither a key nor options that can be read"),
        ('from="127.1" ', "is no address"),
        ('from="127.0.0.1,! 10.0.0.1" ', "is neither an address, a network"),
        ('expiry-time="20990230" ', "is no time"),
        ('FROM="127.0.0.1" ', "the option FROM"),
        ('Expiry-Time="20990101Z" ', "the option Expiry-Time"),
    ],
)
def test_each_way_in_which_we_are_stricter(sshd: Sshd, line: str, why: str) -> None:
    """The list says what is so: sshd accepts, and our reader refuses in those words."""
    assert why in STRICTER
    public = key().public.openssh()
    whole = f"{line}{public}\n"
    assert sshd.accepted([(whole, public)], "127.0.0.1") == [True]
    assert why in ours(whole, "127.0.0.1")[1]

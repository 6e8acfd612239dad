"""The license: what it grants, until when, and what is said of one that is no good (section 5, rule 4)."""

from __future__ import annotations

import json
import os
from base64 import urlsafe_b64encode
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jwt
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hatchway.engine.access.license import MODULES, License, load_license
from hatchway.engine.base.errors import ModuleNotLicensed, SettingRefused
from tests.support.fakes import SetClock, key
from tests.support.licenses import EXPIRY, PEM, STRANGER, issued


def loaded(
    tmp_path: Path, text: str | bytes | None, clock: SetClock | None = None, vendor: str | None = PEM
) -> License:
    """The license that a file of this text is."""
    path = tmp_path / "license.jwt"
    if text is not None:
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return load_license(path, vendor, clock or SetClock(EXPIRY - 1))


def granted(license_: License) -> list[str]:
    """The modules that may be used now."""
    return [module for module in MODULES if license_.grants(module)]


def test_without_a_vendor_key_everything_is_granted(tmp_path: Path) -> None:
    """The community license needs no file, looks at none, and has no end."""
    community = loaded(tmp_path, "rubbish", vendor=None)
    assert granted(community) == ["shell", "artifact", "runtime", "workflow", "agent"]
    assert (community.licensee, community.expiry(), community.why_not()) == ("community", None, None)


def test_a_license_grants_its_modules_and_no_other(tmp_path: Path) -> None:
    """A module that isn't listed, or isn't one of ours, is not granted; the refusal names it."""
    licensed = loaded(tmp_path, issued(modules=["runtime", "shell", "teleport"]) + "\n")
    assert granted(licensed) == ["shell", "runtime"]
    assert not licensed.grants("teleport")
    licensed.require("runtime")
    with pytest.raises(ModuleNotLicensed, match="'agent'"):
        licensed.require("agent")
    assert (licensed.licensee, licensed.expiry()) == ("Lab 4", "2027-01-31 12:00:00 UTC")


def test_a_license_ends_on_its_second_by_our_clock(tmp_path: Path) -> None:
    """Also while the engine runs; expired is said with the moment and its time zone."""
    clock = SetClock(EXPIRY - 0.1)
    licensed = loaded(tmp_path, issued(), clock)
    assert licensed.grants("shell")
    clock.now = EXPIRY
    assert granted(licensed) == []
    assert licensed.why_not() == "the license expired on 2027-01-31 12:00:00 UTC"
    clock.now += 1000
    assert granted(licensed) == []
    assert granted(loaded(tmp_path, issued(), clock)) == []


def test_the_system_s_clock_does_not_matter(tmp_path: Path) -> None:
    """A license long over for the host is good while our clock says so, and one of the future has begun."""
    licensed = loaded(tmp_path, issued(exp=1000, nbf=4_000_000_000, iat=4_000_000_000), SetClock(500))
    assert licensed.grants("shell")


def unsigned(header: dict[str, Any]) -> str:
    """A license whose header asks for no signature."""
    parts = (header, {"licensee": "x", "modules": ["shell"], "exp": EXPIRY})
    return ".".join(urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts) + "."


YEAR_9999 = 253_370_764_800
"""Its first second. What is later may be past what a date can say."""

BAD = {
    "missing": (None, "there is no license"),
    "empty": ("", "not one"),
    "rubbish": (b"\xff\x00", "not one"),
    "too large": ("x" * 70000, "larger than 64 KiB"),
    "forged": (issued(STRANGER), "forged"),
    "damaged": (issued()[:-6] + "AAAAAA", "forged"),
    "alg none": (unsigned({"alg": "none"}), "not one"),
    "RSA": (issued(key().key, "RS256"), "not one"),
    "HMAC with the public key": (
        jwt.encode({"licensee": "x", "modules": ["shell"], "exp": EXPIRY}, b"x" * 32, "HS256"),
        "not one",
    ),
    "no licensee": (issued(licensee=None), "names no licensee"),
    "blank licensee": (issued(licensee=" "), "names no licensee"),
    "no modules": (issued(modules=None), "modules"),
    "modules in a string": (issued(modules="shell"), "modules"),
    "modules of numbers": (issued(modules=[1]), "modules"),
    "no end": (issued(exp=None), "exp is not a time"),
    "end in words": (issued(exp="9999999999"), "exp is not a time"),
    "end true": (issued(exp=True), "exp is not a time"),
    "end for ever": (issued(exp=1e300), "exp is not a time"),
    "end in the year 9999": (issued(exp=YEAR_9999), "exp is not a time"),
    "end at no time": (issued(exp=0), "exp is not a time"),
    "end before time": (issued(exp=-1), "exp is not a time"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_license_grants_nothing_and_says_plainly_why(tmp_path: Path, case: str) -> None:
    """Missing, forged or damaged: no module, and one sentence."""
    text, reason = BAD[case]
    licensed = loaded(tmp_path, text)
    assert granted(licensed) == []
    assert reason in (licensed.why_not() or "")


def test_a_license_may_be_for_as_long_as_a_date_can_say(tmp_path: Path) -> None:
    """Until the last second of the year 9998; also from a vendor whose licenses say more than ours need."""
    assert granted(loaded(tmp_path, issued(exp=YEAR_9999 - 1, aud="lab", iss="vendor"))) == ["shell", "runtime"]


def test_a_license_on_a_disk_that_fails_grants_nothing(tmp_path: Path) -> None:
    """It opens, and can't be read: the system's own words are told."""
    (tmp_path / "license.jwt").symlink_to("/proc/self/mem")
    assert loaded(tmp_path, None).why_not() == f"{tmp_path / 'license.jwt'} can't be read: Input/output error"


@pytest.mark.parametrize("make", [os.mkdir, os.mkfifo])
def test_a_folder_or_a_pipe_in_its_place_grants_nothing(tmp_path: Path, make: Callable[[Path], None]) -> None:
    """It is no license, and nobody waits for it."""
    make(tmp_path / "license.jwt")
    assert "not a plain file" in (loaded(tmp_path, None).why_not() or "")


def test_a_licensee_is_made_fit_for_a_terminal(tmp_path: Path) -> None:
    """Escapes in a signed license reach no screen either."""
    assert loaded(tmp_path, issued(licensee="Lab \x1b[2J\n4")).licensee == "Lab ?[2J 4"


def test_the_vendor_key_is_text_or_a_path(tmp_path: Path) -> None:
    """Both read alike; what is neither stops the start with words."""
    (tmp_path / "vendor.pub").write_text(PEM)
    assert granted(loaded(tmp_path, issued(), vendor=str(tmp_path / "vendor.pub"))) == ["shell", "runtime"]
    for bad in (str(tmp_path / "none.pub"), str(tmp_path), PEM[:60], key().public.pem().decode(), "", "\0"):
        with pytest.raises(SettingRefused, match="vendor_key"):
            loaded(tmp_path, issued(), vendor=bad)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, 199), st.binary(min_size=1, max_size=2))
def test_no_changed_license_grants_more(tmp_path: Path, at: int, new: bytes) -> None:
    """One place changed: nothing is granted, or exactly what was."""
    text = bytearray(issued().encode())
    text[at : at + 1] = new
    assert granted(loaded(tmp_path, bytes(text))) in ([], ["shell", "runtime"])


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=200))
def test_no_bytes_are_a_license(tmp_path: Path, text: bytes) -> None:
    """Whatever the file holds, it is said to be none."""
    assert granted(loaded(tmp_path, text)) == []

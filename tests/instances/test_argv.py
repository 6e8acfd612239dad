"""The argument vectors that the runtime is called with, and which limits this host can keep (section 2.6)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hatchway.engine.base.errors import ResourcesUnavailable
from hatchway.engine.instances.apptainer.host import Host, check_limits
from hatchway.engine.instances.argv import exec_argv, start_argv, stop_argv, variables
from hatchway.engine.instances.request import Image, InstanceRequest, Volume

CGROUPS = Host(cpus=4, memory=8 << 30, controllers=frozenset({"cpu", "memory"}), gpus=2)
BARE = Host(cpus=4, memory=8 << 30, controllers=frozenset(), gpus=0)
FOLDER = Path("/i")
values = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=30)


def request(**changes: Any) -> InstanceRequest:
    return InstanceRequest("name", Image("/images/box.sif"), **changes)


def options(argv: list[str], name: str) -> list[str]:
    return [argv[place + 1] for place, word in enumerate(argv[: argv.index("--")]) if word == name]


@given(st.dictionaries(st.from_regex("[A-Za-z_][A-Za-z0-9_]{0,8}", fullmatch=True), values, max_size=5))
def test_each_variable_arrives_as_one(env: dict[str, str]) -> None:
    """Commas, quotes, equals signs and newlines in a value make no second variable and change nothing."""
    env = {name: value.replace("\r\n", "") for name, value in env.items()}
    asked = request(env=tuple(f"{name}={value}" for name, value in env.items()), command=("id",))
    assert variables(asked) == {f"APPTAINERENV_{name}": value for name, value in env.items()}
    for argv in (start_argv("apptainer", asked, FOLDER), exec_argv("apptainer", asked)):
        assert "--env" not in argv


@given(st.lists(values, min_size=1, max_size=5))
def test_a_command_is_never_an_option(command: list[str]) -> None:
    """What the caller chose stands behind `--`, where nothing is parsed."""
    argv = exec_argv("apptainer", request(command=tuple(command)))
    assert argv[argv.index("--") :] == ["--", "instance://name", *command]


def test_what_always_isolates() -> None:
    """Every vector that starts or enters a container carries the three options."""
    asked = request(command=("id",))
    for argv in (start_argv("apptainer", asked, FOLDER), exec_argv("apptainer", asked)):
        assert {"--containall", "--cleanenv", "--no-eval"} <= set(argv[: argv.index("--")])
    assert "--userns" in start_argv("apptainer", asked, FOLDER, userns=True)
    assert stop_argv("apptainer", "name", 10)[-2:] == ["--", "name"]


def test_the_whole_vector() -> None:
    """Limits, GPU, fakeroot, volumes and variables each as the runtime takes them, in its order."""
    volumes = (Volume("/v/a b", "/data", False), Volume('/v/q"', "/q", True, folder=False))
    asked = request(cpu=1500, memory=64 << 20, gpu="all", fakeroot=True, env=("A=1",), volumes=volumes)
    assert start_argv("/usr/bin/apptainer", asked, FOLDER) == [
        *("/usr/bin/apptainer", "instance", "start", "--containall", "--cleanenv", "--no-eval", "--fakeroot"),
        *("--cpus", "1.500", "--memory", "67108864", "--nv"),
        *("--mount", 'type=bind,"source=/i/empty","destination=/data/",ro'),
        *("--mount", 'type=bind,"source=/v/a b","destination=/data",ro'),
        *("--mount", 'type=bind,"source=/v/q""","destination=/q"'),
        *("--", "/images/box.sif", "name"),
    ]


def test_plain_http_is_for_this_host_alone() -> None:
    """A registry elsewhere must speak TLS, whatever it is called."""
    for registry, plain in (
        ("127.0.0.1:5000", True),
        ("localhost", True),
        ("localhost.evil", False),
        ("docker.io", False),
    ):
        asked = InstanceRequest("name", Image(f"docker://{registry}/x", registry))
        assert ("--no-https" in start_argv("apptainer", asked, FOLDER)) == plain


@pytest.mark.parametrize(("name", "value"), [("cpu", 500), ("memory", 64 << 20), ("gpu", 1), ("gpu", "all")])
def test_a_limit_that_nobody_enforces_is_refused_by_name(name: str, value: Any) -> None:
    """Never dropped: the answer names the field."""
    with pytest.raises(ResourcesUnavailable) as refused:
        check_limits(request(**{name: value}), BARE)
    assert list(refused.value.errors) == [name]
    assert refused.value.detail.startswith(f"{name}: ")


@pytest.mark.parametrize(("name", "value"), [("cpu", 4001), ("memory", (8 << 30) + 1), ("gpu", 1), ("gpu", 3)])
def test_more_than_there_is(name: str, value: Any) -> None:
    """More than the host has, or fewer GPUs than the runtime can keep from a container."""
    with pytest.raises(ResourcesUnavailable) as refused:
        check_limits(request(**{name: value}), CGROUPS)
    assert list(refused.value.errors) == [name]


def test_what_the_host_can_keep_is_passed_on() -> None:
    """With cgroups handed down and GPUs there, each limit is taken, and stands in the vector."""
    asked = request(cpu=4000, memory=8 << 30, gpu=2)
    check_limits(asked, CGROUPS)
    argv = start_argv("apptainer", asked, FOLDER)
    assert options(argv, "--cpus") == ["4.000"]
    assert options(argv, "--memory") == [str(8 << 30)]
    assert "--nv" in argv
    assert not {"--cpus", "--memory"} & set(start_argv("apptainer", asked, FOLDER, limits=False))
    check_limits(request(), BARE)

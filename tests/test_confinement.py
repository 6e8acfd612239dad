"""What may be asked of the platform, field by field, and the argument vectors that come of it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import ImageNotFound, InvalidRequest, Refusal, ResourcesUnavailable
from engine.platform.argv import exec_argv, start_argv, stop_argv, variables
from engine.platform.confinement import confine
from engine.platform.host import Host, check_limits
from engine.platform.quantities import read_cpu, read_gpu, read_memory
from engine.platform.request import Image, InstanceFields, InstanceRequest, Policy, Volume
from engine.settings import SlurmSettings
from tests.traps import BODIES, Place, filled


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


@pytest.mark.parametrize("case", BODIES, ids=lambda case: json.dumps(case["body"])[:60])
def test_the_corpus_of_bodies(place: Place, case: dict[str, Any]) -> None:
    """Every row of the corpus is refused with the fields it is about, or kept as it was written."""
    body = filled(place, case["body"])
    if (
        case["expect"] in ("value arrives literally", "passed as arguments, no option of apptainer")
        or body.get("memory") == "64M"
    ):
        request = place.confine(**body)
        assert list(request.env) == body.get("env", [])
        assert list(request.command) == body.get("command", [])
    elif case["expect"].startswith("one variable X"):
        assert place.confine(**body).env == ("X=a,Y=b",)
    else:
        with pytest.raises((Refusal, msgspec.ValidationError)) as refused:
            place.confine(**body)
        assert "connection refused" not in str(refused.value)
        if isinstance(refused.value, InvalidRequest):
            assert set(refused.value.errors) == set(body)


@pytest.mark.parametrize("name", ["a", "A.b_c-9", "0", "a" * 63])
def test_names_that_are_taken(place: Place, name: str) -> None:
    """A letter or digit first, then letters, digits, '_', '.', '-': 63 at most."""
    assert place.confine(identity=name).identity == name


@given(st.text(max_size=70))
def test_no_other_name_is_taken(name: str) -> None:
    """Whatever reaches the runtime as a name is no option, no path and no pattern."""
    try:
        taken = confine(InstanceFields("docker://x", identity=name), Policy(Path("/e"), registries=("docker.io",)))
    except InvalidRequest as refused:
        assert list(refused.errors) == ["identity"]  # noqa: PT017 - most are refused, some are names
    else:
        assert re.fullmatch("[A-Za-z0-9][A-Za-z0-9_.-]{0,62}", taken.identity, re.ASCII)


def test_a_name_is_drawn(place: Place) -> None:
    """Without an identity each request gets one of its own."""
    assert len({place.confine().identity for _ in range(20)}) == 20


@pytest.mark.parametrize("text", ["box.sif", "deep/box.sif", "link-inside.sif"])
def test_images_under_a_folder(place: Place, text: str) -> None:
    """By name or by absolute path; what is passed on is the resolved path."""
    want = str((place.images / text).resolve())
    assert place.confine(image=text).image == Image(want)
    assert place.confine(image=str(place.images / text)).image == Image(want)


@pytest.mark.parametrize("text", ["gone.sif", "../outside.sif", "folder.sif", "link-to-outside.sif", "/etc/x.sif"])
def test_images_elsewhere_are_not_found(place: Place, text: str) -> None:
    """Absent, outside, a folder, a link that leads out: one answer, which tells nothing of the host."""
    with pytest.raises(ImageNotFound) as refused:
        place.confine(image=text)
    assert refused.value.detail == "there is no such .sif image in the image folders"


def test_no_image_out_of_the_engines_folder(place: Place) -> None:
    """Not even where somebody lists it, or a folder above it, as an image folder."""
    for folder in (place.home, place.home.parent):
        policy = place.policy(image_folders=(str(folder),))
        with pytest.raises(ImageNotFound):
            place.confine(policy, image=str(place.home / "in-home.sif"))


def test_roots_are_compared_by_component(tmp_path: Path, place: Place) -> None:
    """`/volumes2` is not under `/volumes` (the mistake of CVE-2026-48785)."""
    (tmp_path / "volumes2").mkdir()
    with pytest.raises(InvalidRequest):
        place.confine(volume=[f"{tmp_path}/volumes2:/mnt"])


@pytest.mark.parametrize(
    ("text", "registry"),
    [
        ("docker://alpine", "docker.io"),
        ("docker://library/alpine:3.20", "docker.io"),
        ("docker://docker.io/library/alpine@sha256:" + "a" * 64, "docker.io"),
        ("docker://registry.example:5000/a/b:1", "registry.example:5000"),
        ("oras://registry.example:5000/a/b:1", "registry.example:5000"),
        ("library://registry.example:5000/a/b/c:1", "registry.example:5000"),
    ],
)
def test_images_of_a_listed_registry(place: Place, text: str, registry: str) -> None:
    """docker, oras and library references of the registries in the settings."""
    assert place.confine(image=text).image == Image(text, registry)


@pytest.mark.parametrize(
    "text", ["docker://other.example/a", "docker://docker.io.evil/a", "docker://registry.example/a"]
)
def test_images_of_an_unlisted_registry(place: Place, text: str) -> None:
    """Refused by the registry's name, before anything is asked of it."""
    with pytest.raises(ImageNotFound, match="registries"):
        place.confine(image=text)


@pytest.mark.parametrize(
    "text",
    [
        *("docker://", "docker:///x", "docker://a b", "docker://x@y", "docker://A/b", "docker://u@docker.io/x"),
        *("docker://docker.io/../x", "docker://docker.io/x?y", "oras://x/y", "library://a/b/c", "shub://x/y"),
        *("https://docker.io/x", "x.img"),
    ],
)
def test_odd_references(place: Place, text: str) -> None:
    """What is no reference never reaches the runtime's own reading of it."""
    with pytest.raises(InvalidRequest) as refused:
        place.confine(image=text)
    assert list(refused.value.errors) == ["image"]


def test_volumes_are_resolved_and_read_only(place: Place) -> None:
    """Read-only unless `rw` is said; the source as it really is."""
    found = place.confine(volume=[f"{place.roots}/x/../x:/data/", f"{place.roots}:/all:rw"]).volumes
    assert found == (Volume(f"{place.roots}/x", "/data", False), Volume(str(place.roots), "/all", True))


@pytest.mark.parametrize("root", ["/", "home", "engine"])
def test_no_volume_reaches_the_engines_folder(place: Place, root: str) -> None:
    """Not itself, nothing above it, nothing below it, not through a link; whatever the roots allow."""
    policy = place.policy(volume_roots=("/",))
    below = place.home / "deep"
    below.mkdir()
    for source in (place.home, place.home.parent, below, place.roots / "symlink-to-home", Path("/")):
        with pytest.raises(InvalidRequest) as refused:
            place.confine(policy, volume=[f"{source}:/mnt"])
        assert "volume_roots" in refused.value.errors["volume"]


def test_no_volume_reaches_the_folder_of_jobs(place: Place, tmp_path: Path) -> None:
    """Whoever could write there could run what they like as the engine's user."""
    shared = tmp_path / "shared"
    (shared / "job").mkdir(parents=True)
    policy = place.policy(volume_roots=("/",), slurm=SlurmSettings(folder=shared))
    for source in (shared, shared / "job", tmp_path):
        with pytest.raises(InvalidRequest) as refused:
            place.confine(policy, volume=[f"{source}:/mnt"])
        assert "volume_roots" in refused.value.errors["volume"]


OURS = SlurmSettings(partition="main", time_limit=3600, allow_request=("partition", "time_limit"))


def test_what_of_a_job_may_be_asked_for(place: Place) -> None:
    """The request's own where the settings allow it, else theirs; nothing where the platform is no cluster."""
    policy = place.policy(slurm=OURS)
    found = place.confine(policy, partition="gpu,main", time_limit="30m")
    assert (found.partition, found.account, found.time_limit) == ("gpu,main", None, 1800)
    found = place.confine(policy, partition="")
    assert (found.partition, found.account, found.time_limit) == ("main", None, 3600)
    assert place.confine().partition is None
    for asked, field in ((policy, "account"), (place.policy(), "partition")):
        with pytest.raises(InvalidRequest) as refused:
            place.confine(asked, **{field: "x"})
        assert list(refused.value.errors) == [field]


@pytest.mark.parametrize(
    ("field", "value"),
    [("partition", "-x"), ("partition", "a b"), ("partition", "a\nb"), ("time_limit", "0m"), ("time_limit", "1-00:00")],
)
def test_what_is_no_partition_or_time(place: Place, field: str, value: str) -> None:
    """Refused by the field's name before Slurm is asked."""
    with pytest.raises(InvalidRequest) as refused:
        place.confine(place.policy(slurm=OURS), **{field: value})
    assert list(refused.value.errors) == [field]


@pytest.mark.parametrize("source", ["/proc", "/proc/self/root", "/sys", "/dev", "/dev/shm", "/run", "/etc", "/var/run"])
def test_no_volume_of_the_system(place: Place, source: str) -> None:
    """The host's own folders are out, even under the root `/`."""
    with pytest.raises(InvalidRequest):
        place.confine(place.policy(volume_roots=("/",)), volume=[f"{source}:/mnt"])


@pytest.mark.parametrize(
    "text", ["/", "//", "/proc", "/dev/null", "/sys/x", "/.singularity.d/env", "x", "/a/../../etc", ""]
)
def test_destinations_that_are_the_runtimes_own(place: Place, text: str) -> None:
    """A volume hides nothing that confines the container."""
    with pytest.raises(InvalidRequest):
        place.confine(volume=[f"{place.roots}:{text}"])


def test_fakeroot_wants_the_setting(place: Place) -> None:
    """Off by default; and never together with a volume that may be written."""
    with pytest.raises(InvalidRequest, match="allow_fakeroot"):
        place.confine(fakeroot=True)
    allowed = place.policy(allow_fakeroot=True)
    assert place.confine(allowed, fakeroot=True, volume=[f"{place.roots}:/m"]).fakeroot
    with pytest.raises(InvalidRequest, match="written"):
        place.confine(allowed, fakeroot=True, volume=[f"{place.roots}:/m:rw"])


@pytest.mark.parametrize(
    "item",
    [
        *("HOME=/x", "UID=0", "EUID=0", "GID=0", "apptainer_x=1", "Singularity=1", "SINGULARITYENV_A=1"),
        *("A=x\r\ny", "1A=x", "A B=x", "A-B=x", "É=x", "A=" + "x" * 40_000, "\uff21=x"),
    ],
)
def test_variables_that_would_not_arrive(place: Place, item: str) -> None:
    """What the runtime would drop, change, or take for its own is refused, never lost in silence."""
    with pytest.raises(InvalidRequest) as refused:
        place.confine(env=[item])
    assert list(refused.value.errors) == ["env"]


def test_a_variable_is_named_once(place: Place) -> None:
    """Of two values one would be lost."""
    with pytest.raises(InvalidRequest, match="once"):
        place.confine(env=["A=1", "A=2"])


@pytest.mark.parametrize("command", [["a"] * 65, ["x" * 8193], [""], ["", "x"], ["é" * 4097]])
def test_commands_out_of_measure(place: Place, command: list[str]) -> None:
    """64 items of 8 KiB at most, and a program first."""
    with pytest.raises(InvalidRequest, match="command"):
        place.confine(command=command)


def test_every_wrong_field_is_named(place: Place) -> None:
    """One answer for all that is wrong."""
    with pytest.raises(InvalidRequest) as refused:
        place.confine(image="-x", identity="", cpu="0", memory="0", gpu="0", env=["x"], command=["\0"], volume=["x"])
    assert set(refused.value.errors) == {"image", "identity", "cpu", "memory", "gpu", "env", "command", "volume"}


@pytest.mark.parametrize(
    ("text", "value"), [("", None), ("2", 2000), ("0.5", 500), ("500m", 500), ("1.25", 1250), ("0.01", 10)]
)
def test_processors(text: str, value: int | None) -> None:
    """Whole, in decimals, in thousandths; an empty text is no limit."""
    assert read_cpu(text) == value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", None),
        ("1", 1),
        ("512M", 512 << 20),
        ("2Gi", 2 << 30),
        ("3K", 3072),
        ("4Ki", 4096),
        ("5G", 5 << 30),
        ("6Mi", 6 << 20),
    ],
)
def test_memory(text: str, value: int | None) -> None:
    """K, M, G and Ki, Mi, Gi are powers of 1024."""
    assert read_memory(text) == value


@given(st.text(max_size=12))
def test_odd_quantities(text: str) -> None:
    """A reader gives a positive number, nothing for nothing, or says what is wanted; it takes ASCII digits only."""
    for reader in (read_cpu, read_memory, read_gpu):
        try:
            value = reader(text)
        except ValueError as wrong:
            assert str(wrong)  # noqa: PT017 - any text may be refused; what counts is that words come with it
        else:
            assert value is None if text == "" else value == "all" or (text.isascii() and int(value or 0) > 0)


@pytest.mark.parametrize(
    "text", ["1_0", "\uff11\uff10", "\u0663", " 5", "5 ", "+5", "0x5", "5\n", "1e3", "-1", "NaN", "inf", ".5", "5."]
)
def test_numbers_as_python_reads_them(text: str) -> None:
    """What int() and float() would take and people did not mean is refused."""
    for reader in (read_cpu, read_memory, read_gpu):
        with pytest.raises(ValueError, match="must be"):
            reader(text)


# The argument vectors


def request(**changes: Any) -> InstanceRequest:
    return InstanceRequest("name", Image("/images/box.sif"), **changes)


def options(argv: list[str], name: str) -> list[str]:
    return [argv[place + 1] for place, word in enumerate(argv[: argv.index("--")]) if word == name]


values = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=30)


@given(st.dictionaries(st.from_regex("[A-Za-z_][A-Za-z0-9_]{0,8}", fullmatch=True), values, max_size=5))
def test_each_variable_arrives_as_one(env: dict[str, str]) -> None:
    """Commas, quotes, equals signs and newlines in a value make no second variable and change nothing."""
    env = {name: value.replace("\r\n", "") for name, value in env.items()}
    asked = request(env=tuple(f"{name}={value}" for name, value in env.items()), command=("id",))
    assert variables(asked) == {f"APPTAINERENV_{name}": value for name, value in env.items()}
    for argv in (start_argv("apptainer", asked), exec_argv("apptainer", asked)):
        assert "--env" not in argv


@given(st.lists(values, min_size=1, max_size=5))
def test_a_command_is_never_an_option(command: list[str]) -> None:
    """What the caller chose stands behind `--`, where nothing is parsed."""
    argv = exec_argv("apptainer", request(command=tuple(command)))
    assert argv[argv.index("--") :] == ["--", "instance://name", *command]


def test_what_always_isolates() -> None:
    """Every vector that starts or enters a container carries the three options."""
    asked = request(command=("id",))
    for argv in (start_argv("apptainer", asked), exec_argv("apptainer", asked)):
        assert {"--containall", "--cleanenv", "--no-eval"} <= set(argv[: argv.index("--")])
    assert "--userns" in start_argv("apptainer", asked, userns=True)
    assert stop_argv("apptainer", "name", 10)[-2:] == ["--", "name"]


def test_the_whole_vector() -> None:
    """Limits, GPU, fakeroot, volumes and variables each as the runtime takes them, in its order."""
    volumes = (Volume("/v/a b", "/data", False), Volume('/v/q"', "/q", True))
    asked = request(cpu=1500, memory=64 << 20, gpu="all", fakeroot=True, env=("A=1",), volumes=volumes)
    assert start_argv("/usr/bin/apptainer", asked) == [
        *("/usr/bin/apptainer", "instance", "start", "--containall", "--cleanenv", "--no-eval", "--fakeroot"),
        *("--cpus", "1.500", "--memory", "67108864", "--nv"),
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
        assert ("--no-https" in start_argv("apptainer", asked)) == plain


# What the host can keep

CGROUPS = Host(cpus=4, memory=8 << 30, controllers=frozenset({"cpu", "memory"}), gpus=2)
BARE = Host(cpus=4, memory=8 << 30, controllers=frozenset(), gpus=0)


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
    argv = start_argv("apptainer", asked)
    assert options(argv, "--cpus") == ["4.000"]
    assert options(argv, "--memory") == [str(8 << 30)]
    assert "--nv" in argv
    assert not {"--cpus", "--memory"} & set(start_argv("apptainer", asked, limits=False))
    check_limits(request(), BARE)

"""What may be asked of the platform, field by field (section 2.6)."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hatchway.engine.base.errors import ImageNotFound, InvalidRequest, Refusal
from hatchway.engine.instances.confinement import confine
from hatchway.engine.instances.request import Image, InstanceFields, Policy, Volume
from hatchway.engine.settings.settings import SlurmSettings
from tests.support.instance_requests import BODIES, Place, filled


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
    policy = place.policy(volume_roots=("/",), own=(shared,))
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


@pytest.mark.parametrize(
    ("one", "other"),
    [
        *(("/v", "/v"), ("/v", "/v/root/x"), ("/v/x", "/v"), ("/v", "/v//x/"), ("/v/.", "/v/x"), ("//v", "/v/x")),
        ("/v/", "/./v/a/b"),
    ],
)
def test_no_destination_inside_another(place: Place, one: str, other: str) -> None:
    """In no order and no spelling: the runtime would make the inner one on the host, and follow links there."""
    for pair in ((one, other), (other, one)):
        with pytest.raises(InvalidRequest, match="inside another") as refused:
            place.confine(volume=[f"{place.roots}/x:{destination}" for destination in pair])
        assert list(refused.value.errors) == ["volume"]
    assert len(place.confine(volume=[f"{place.roots}/x:/v", f"{place.roots}/x:/v2"]).volumes) == 2


@pytest.mark.parametrize("before", ["/var/lib", "/usr/local/var", "/opt/a"])
@pytest.mark.parametrize("runtime", ["apptainer", "singularity"])
def test_no_destination_where_containers_are_put_together(place: Place, before: str, runtime: str) -> None:
    """There the runtime takes it for a path of the host, and a link of the image leads it anywhere."""
    for end in ("", "/final/evil/etc", "2"):
        with pytest.raises(InvalidRequest, match="puts containers together"):
            place.confine(volume=[f"{place.roots}:{before}/{runtime}/mnt/session{end}"])


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

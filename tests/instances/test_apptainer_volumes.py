"""Volumes and Apptainer for real, as an ordinary user: the runtime follows no link to the host, and binds no other."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import trio

from hatchway.engine.base.errors import InvalidRequest
from hatchway.engine.instances import binds
from hatchway.engine.instances.protocol import StartFailed
from tests.support.containers import IMAGE, Place, living, place

__all__ = ["place"]

AS_ORDINARY_USER = True
pytest_plugins = ["tests.support.ordinary_user"]
pytestmark = pytest.mark.apptainer


def image_with(place: Place, name: str, links: dict[str, str]) -> str:
    """The image of the tests with these links in it."""
    root = place.images / f"{name}-root"
    begin = IMAGE.read_bytes().index(b"hsqs")
    subprocess.run(["unsquashfs", "-q", "-o", str(begin), "-d", root, IMAGE], check=True, capture_output=True)
    (root / "opt" / "deep").mkdir(parents=True)
    for link, target in links.items():
        if (root / link).exists():
            shutil.rmtree(root / link)
        (root / link).symlink_to(target)
    path = place.images / f"{name}.sif"
    subprocess.run(["mksquashfs", root, path, "-quiet", "-no-progress", "-all-root"], check=True, capture_output=True)
    shutil.rmtree(root)
    return path.name


def listing(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


async def start(place: Place, **fields: Any) -> str:
    """What its command wrote, empty where the start failed; nothing of it is left."""
    request = place.request(**fields)
    try:
        started = await place.platform.start(request)
    except StartFailed as failed:
        words = (place.home / "instances" / request.identity / "start.log").read_text().partition("FATAL")[2]
        await place.platform.undo(request.identity)
        assert not living()
        return f"failed: {failed.refusal.detail} {words}"
    with trio.fail_after(60):
        await place.platform.wait_ended(request, started)
    return place.output(started)


@pytest.mark.parametrize("kind", ["folder", "file"])
async def test_a_link_of_the_image_leads_into_a_volume(place: Place, kind: str) -> None:
    """The image turns a harmless destination into one inside the other volume, which holds a link to the host's root:
    nothing is made in the engine's folder, nor anywhere else outside the container."""
    volume, other = place.volumes / "v", place.volumes / "w"
    volume.mkdir()
    other.mkdir() if kind == "folder" else other.touch()
    (volume / "root").symlink_to("/")
    target = place.home / "keys"
    target.mkdir()
    before = listing(place.volumes), listing(target)
    image = image_with(place, "leads", {"x": "/v"})
    volumes = [f"{volume}:/v:rw", f"{other}:/x/root{target}/planted"]
    failed = await start(place, image=image, volume=volumes, command=["sh", "-c", "true"])
    assert "doesn't exist in container" in failed
    assert (listing(place.volumes), listing(target)) == before


async def test_the_runtimes_own_files_are_not_made_in_a_volume(place: Place) -> None:
    """Nor is what the runtime itself mounts made behind a link, where the image has that in a volume."""
    volume, target = place.volumes / "v", place.home / "keys"
    volume.mkdir()
    target.mkdir()
    (volume / "root").symlink_to("/")
    image = image_with(place, "home", {"etc": f"/v/root{target}"})
    await start(place, image=image, volume=[f"{volume}:/v:rw"], command=["sh", "-c", "true"])
    assert listing(target) == []
    assert listing(volume) == ["root"]


async def test_links_of_an_image_that_do_no_harm(place: Place) -> None:
    """A destination behind a link of the image is where the link leads, and as writable as was asked."""
    for name in ("a", "b"):
        (place.volumes / name).mkdir()
        (place.volumes / name / "word").write_text(name)
    image = image_with(place, "kind", {"data": "/opt/deep"})
    script = "read x </opt/deep/word; echo $x; read x </w/word; echo $x; echo y >/w/new; echo n >/data/new"
    volumes = [f"{place.volumes}/a:/data", f"{place.volumes}/b:/w:rw"]
    assert await start(place, image=image, volume=volumes, command=["sh", "-c", script]) == "a\nb\n"
    assert listing(place.volumes) == ["a", "a/word", "b", "b/new", "b/word"]


@pytest.mark.parametrize("back", [True, False])
async def test_a_source_that_is_a_link_while_the_runtime_binds(
    place: Place, monkeypatch: pytest.MonkeyPatch, back: bool
) -> None:
    """Swapped after the last look and before the runtime binds it, and even swapped back after: the command does not
    run, and the refusal names the field."""
    source, secret = place.volumes / "in", place.home / "keys"
    for folder, word in ((source, "mine"), (secret, "SECRET")):
        folder.mkdir()
        (folder / "word").write_text(word)
    request = place.request(command=["cat", "/in/word"], volume=[f"{source}:/in", f"{source}:/out:rw"])
    moved = binds.moved

    def swap(*arguments: Any) -> str:
        why = moved(*arguments)
        source.rename(place.volumes / "kept")
        source.symlink_to(secret)
        return why

    differs = binds.differs

    def swap_back(*arguments: Any) -> str:
        if back:
            source.unlink()
            (place.volumes / "kept").rename(source)
        return differs(*arguments)

    monkeypatch.setattr(binds, "moved", swap)
    monkeypatch.setattr(binds, "differs", swap_back)
    with pytest.raises(StartFailed) as failed:
        await place.platform.start(request)
    assert isinstance(failed.value.refusal, InvalidRequest)
    assert failed.value.refusal.errors == {"volume": binds.CHANGED}
    await place.platform.undo(request.identity)
    assert not living()
    assert listing(secret) == ["word"]


async def test_a_source_that_is_a_link_by_its_turn(place: Place) -> None:
    """What was swapped while the start waited is refused before the runtime is asked."""
    source = place.volumes / "in"
    source.mkdir()
    request = place.request(volume=[f"{source}:/in"])
    source.rmdir()
    source.symlink_to(place.home)
    with pytest.raises(StartFailed, match="no longer what it was"):
        await place.platform.start(request)
    await place.platform.undo(request.identity)


async def test_what_is_bound_is_compared(place: Place) -> None:
    """Of a container that stands: another folder, none, or one that may be written although it must not, is seen; a
    file, and a folder behind a link of the image, are right."""
    for name in ("a", "b"):
        (place.volumes / name).mkdir()
    (place.volumes / "file").touch()
    image = image_with(place, "kind", {"data": "/opt/deep", "loop": "/loop"})
    volumes = [f"{place.volumes}/a:/data", f"{place.volumes}/b:/w:rw", f"{place.volumes}/file:/mnt/f"]
    request = place.request(image=image, volume=volumes)
    started = await place.platform.start(request)
    a, b, pid = str(place.volumes / "a"), str(place.volumes / "b"), started.entry.pid
    assert binds.differs(pid, [(a, "/data", False), (a, "/opt/../opt/deep", False), (b, "/w", True)]) == ""
    for wrong in (
        *((b, "/data", False), (a, "/gone", False), (a, "/loop", False), (b, "/w", False), (a, "/", False)),
        (f"{place.volumes}/gone", "/data", False),
    ):
        assert binds.differs(pid, [wrong]) == binds.CHANGED, wrong
    assert binds.differs(1, [(a, "/data", False)]) == binds.UNSEEN
    await place.platform.stop(request, started)
    await place.platform.wait_ended(request, started)
    assert binds.differs(pid, [(a, "/data", False)]) == binds.CHANGED

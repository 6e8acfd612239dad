"""Images out of a real registry on loopback: fetched where it is listed, not asked for where it is not."""

from __future__ import annotations

import hashlib
import io
import json
import secrets
import shutil
import socket
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

from hatchway.engine.base.errors import ImageNotFound
from hatchway.engine.instances.protocol import StartFailed
from hatchway.engine.instances.request import Policy
from tests.support.containers import Place, place
from tests.support.ports import free_port

__all__ = ["place"]

AS_ORDINARY_USER = True
pytest_plugins = ["tests.support.ordinary_user"]
pytestmark = [pytest.mark.apptainer, pytest.mark.registry]

CONFIG = """version: 0.1
storage: {{filesystem: {{rootdirectory: {data}}}}}
http: {{addr: "127.0.0.1:{port}"}}
"""


def archive(folder: Path) -> Path:
    """A small image of one layer, busybox and a mark, as `docker save` writes it."""
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as tar:
        tar.add(str(shutil.which("busybox")), "bin/busybox")
        # New every time: the runtime keeps what it fetched before.
        mark = tarfile.TarInfo("mark")
        mark.size = 16
        tar.addfile(mark, io.BytesIO(secrets.token_bytes(16)))
        for name in ("bin/sh", "bin/cat", "bin/echo"):
            link = tarfile.TarInfo(name)
            link.type, link.linkname = tarfile.SYMTYPE, "busybox"
            tar.addfile(link)
    digest = hashlib.sha256(layer.getvalue()).hexdigest()
    config = {"architecture": "amd64", "os": "linux", "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]}}
    manifest = [{"Config": "config.json", "RepoTags": ["test/box:1"], "Layers": ["layer.tar"]}]
    parts = {"config.json": json.dumps(config).encode(), "manifest.json": json.dumps(manifest).encode()}
    with tarfile.open(folder / "image.tar", "w") as tar:
        for name, data in {**parts, "layer.tar": layer.getvalue()}.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))
    return folder / "image.tar"


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[str]:
    """Debian's docker-registry, holding test/box:1."""
    name = f"127.0.0.1:{free_port()}"
    config = tmp_path / "registry.yml"
    config.write_text(CONFIG.format(data=tmp_path / "registry", port=name.partition(":")[2]))
    server = subprocess.Popen(
        ["docker-registry", "serve", config], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=tmp_path
    )
    # Without credentials: those of whoever ran it before may not be ours to read.
    open_to_all = ["--insecure-policy", "--dest-tls-verify=false", "--dest-no-creds"]
    copy = ["skopeo", "copy", *open_to_all, "--retry-times", "5"]
    try:
        source, target = f"docker-archive:{archive(tmp_path)}", f"docker://{name}/test/box:1"
        copied = subprocess.run([*copy, source, target], capture_output=True, text=True, check=False)
        assert copied.returncode == 0, copied.stderr
        yield name
    finally:
        server.kill()
        server.wait()


def listing(place: Place, *registries: str) -> Policy:
    return Policy(place.home, registries=registries)


async def test_an_image_of_a_listed_registry(place: Place, registry: str) -> None:
    """It is fetched and converted, which is told meanwhile, and its command runs."""
    request = place.request(
        listing(place, registry), image=f"docker://{registry}/test/box:1", command=["/bin/echo", "hello"]
    )
    seen: set[str] = set()

    async def look() -> None:
        while True:
            seen.add(place.platform.progress(request.identity))
            await trio.sleep(0.01)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(look)
        started = await place.platform.start(request)
        nursery.cancel_scope.cancel()
    assert await place.platform.wait_ended(request, started) == 0
    assert place.output(started) == "hello\n"
    assert started.entry.img
    assert seen & {"fetching image", "converting image"}


async def test_no_other_registry_is_asked(place: Place, registry: str) -> None:
    """Unlisted, an open port and a closed one get one answer, and no connection is made."""
    answers = set()
    with socket.create_server(("127.0.0.1", 0)) as trap:
        trap.setblocking(False)
        for port in (trap.getsockname()[1], free_port()):
            with pytest.raises(ImageNotFound) as refused:
                place.request(listing(place, registry), image=f"docker://127.0.0.1:{port}/test/box:1")
            answers.add(refused.value.detail.replace(str(port), "PORT"))
        with pytest.raises(BlockingIOError):
            trap.accept()
    assert len(answers) == 1


async def test_a_listed_registry_that_has_it_not(place: Place, registry: str) -> None:
    """An image that is not there and a registry that is not there: the same words, none of them the runtime's."""
    answers = set()
    for name in (registry, f"127.0.0.1:{free_port()}"):
        request = place.request(listing(place, name), image=f"docker://{name}/test/none:1")
        with pytest.raises(StartFailed) as failed:
            await place.platform.start(request)
        await place.platform.undo(request.identity)
        assert isinstance(failed.value.refusal, ImageNotFound)
        answers.add(failed.value.refusal.detail)
    assert len(answers) == 1

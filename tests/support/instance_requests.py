"""A host with traps in every folder, and the corpus of what is asked of the platform."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec

from hatchway.engine.instances.confinement import confine
from hatchway.engine.instances.request import InstanceFields, InstanceRequest, Policy

BODIES = json.loads((Path(__file__).parents[1] / "data" / "own" / "instance_bodies.json").read_text())["cases"]


class Place:
    """A host with an image folder, a volume root and an engine's folder, and traps in each."""

    def __init__(self, base: Path) -> None:
        self.home, self.images, self.roots = base / "home" / "engine", base / "images", base / "volumes"
        for folder in (self.home, self.images / "deep", self.roots / "x"):
            folder.mkdir(parents=True)
        for image in (self.images / "box.sif", self.images / "deep" / "box.sif", base / "outside.sif"):
            image.write_bytes(b"SIF")
        (self.images / "link-to-outside.sif").symlink_to(base / "outside.sif")
        (self.images / "link-inside.sif").symlink_to(self.images / "box.sif")
        (self.images / "folder.sif").mkdir()
        (self.images / "a:b.sif").write_bytes(b"SIF")
        (self.home / "in-home.sif").write_bytes(b"SIF")
        (self.roots / "symlink-to-etc").symlink_to("/etc")
        (self.roots / "symlink-to-home").symlink_to(self.home)

    def policy(self, **changes: Any) -> Policy:
        usual: dict[str, Any] = {
            "image_folders": (str(self.images),),
            "registries": ("docker.io", "registry.example:5000"),
            "volume_roots": (str(self.roots),),
        }
        return Policy(self.home, **usual | changes)

    def confine(self, policy: Policy | None = None, **body: Any) -> InstanceRequest:
        fields = msgspec.convert({"image": "box.sif", **body}, InstanceFields, strict=True)
        return confine(fields, policy or self.policy())

    def fill(self, text: str) -> str:
        """The corpus's marks, as they are on this host."""
        marks = {
            "<E>": self.home,
            "<parent of E>": self.home.parent,
            "<65 x a>": "a" * 65,
            "<3 MiB string>": "s" * (3 << 20),
        }
        text = text.replace("<allowed>", str(self.images if text.endswith(".sif") else self.roots))
        for mark, value in marks.items():
            text = text.replace(mark, str(value))
        return text


def filled(place: Place, value: Any) -> Any:
    if isinstance(value, str):
        return place.fill(value)
    if isinstance(value, list):
        return [filled(place, item) for item in value]
    return {name: filled(place, item) for name, item in value.items()} if isinstance(value, dict) else value

"""Makes the links that an editable install imports `hatchway` through; hatchling runs it."""

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class EditableLinks(BuildHookInterface):
    """In a checkout, `hatchway/api` is a link to the top-level folder `api`, so that editors and mypy find it there.

    An sdist can't hold links to folders, and a clone on some systems can't either: so they are made, not kept.
    """

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version != "editable":
            return
        for name in ("api", "engine", "statecharts"):
            link = Path(self.root, ".packages", "hatchway", name)
            if not link.exists():
                link.symlink_to(Path("..", "..", name), target_is_directory=True)

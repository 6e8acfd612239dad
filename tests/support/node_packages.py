"""What tests fetch by npm, once a machine: no part of the product."""

from __future__ import annotations

import subprocess
from pathlib import Path


def node_package(wanted: str) -> Path:
    """The folder with `node_modules` that holds a package, such as `axe-core@4.14.1`."""
    folder = Path.home() / ".cache" / "hatchway-tests" / wanted
    if not (folder / "node_modules" / wanted.partition("@")[0]).is_dir():
        folder.mkdir(parents=True, exist_ok=True)
        options = ["--no-audit", "--no-fund", "--ignore-scripts", "--prefix", str(folder)]
        subprocess.run(["npm", "install", *options, wanted], check=True, capture_output=True)
    return folder

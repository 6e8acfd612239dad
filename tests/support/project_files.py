"""The project's own files, from a clone or from an unpacked sdist."""

from __future__ import annotations

import shutil
import subprocess
import tomllib
from pathlib import Path

from tests.support.fakes import ROOT


def project_files() -> list[str]:
    """Their paths below the root: what git tracks; where this is no clone, what an sdist holds."""
    if (ROOT / ".git").exists():
        listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
        return [name for name in listed.split("\0") if name]
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    held = [ROOT / name for name in settings["tool"]["hatch"]["build"]["targets"]["sdist"]["include"]]
    found = [path for top in held for path in (top.rglob("*") if top.is_dir() else [top]) if path.is_file()]
    return [str(path.relative_to(ROOT)) for path in found if "__pycache__" not in path.parts]


def copy_project(folder: Path) -> None:
    """A copy of them, as a tag would be."""
    for name in project_files():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, folder / name, follow_symlinks=False)

"""Which Hatchway this is."""

import os
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path


def installed_version() -> str:
    """The installed distribution's version, or that there is none."""
    try:
        return version("hatchway")
    except PackageNotFoundError:
        return "a checkout that is not installed"


def installed_command() -> Path | None:
    """The command `hatchway` beside this Python, as in a virtual environment; None where there is none."""
    beside = Path(sys.executable).parent / "hatchway"
    return beside if os.access(beside, os.X_OK) else None

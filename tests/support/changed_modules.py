"""Runs tests against a changed module: no file is written, a forked interpreter imports the changed text instead."""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import spec_from_file_location
from types import CodeType
from typing import Any

import pytest

from tests.support.fakes import ROOT

PACKAGES = ROOT / ".packages"
"""What an editable install imports `hatchway` from."""


class ChangedModule(MetaPathFinder, SourceFileLoader):  # type: ignore[misc]  # their stubs disagree
    """Imports one module from a text. `file` is its path from the project's root."""

    def __init__(self, file: str, text: str) -> None:
        name = "hatchway." + file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        super().__init__(name, str(PACKAGES / "hatchway" / file))
        self.code = compile(text, self.path, "exec")

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        return spec_from_file_location(fullname, self.path, loader=self) if fullname == self.name else None

    def get_code(self, fullname: str) -> CodeType:
        return self.code


def preload(arguments: Sequence[str]) -> None:
    """Import what these tests import, then forget our own. Raises SystemExit where they can't be collected."""
    if pytest.main(["--collect-only", "-qq", *arguments]):
        raise SystemExit(f"can't be collected: {' '.join(arguments)}")
    for name in [name for name in sys.modules if name.partition(".")[0] in ("hatchway", "tests")]:
        del sys.modules[name]
    gc.collect()
    gc.freeze()  # what is here now stays, and no child need look through it


def outcome(file: str, text: str, arguments: Sequence[str], seconds: float = 0) -> int:
    """How pytest ends, asked for `arguments` with `text` in the file's place: its exit code (1 where a test failed), or
    minus the signal that ended it, SIGALRM after `seconds`."""
    child = os.fork()
    if not child:
        signal.alarm(int(seconds))
        silent = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silent, 1)
        os.dup2(silent, 2)
        sys.meta_path.insert(0, ChangedModule(file, text))
        # To rewrite assertions pytest would import our modules itself, since they bring a plugin.
        os._exit(int(pytest.main(["-x", "--assert=plain", *arguments])))
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

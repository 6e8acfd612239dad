"""What keeps libraries from loading what is not used, or not yet."""

from __future__ import annotations

import subprocess
import sys

from tests.support.fakes import ROOT


def run(code: str) -> list[str]:
    """The lines that a Python of its own prints."""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def test_a_module_waits_until_something_of_it_is_used() -> None:
    """Importing it loads nothing, as often as it is imported; then all of it is there, for those who have it already
    and for those who import it later."""
    assert run(
        """
import sys
from hatchway.engine.base.imports import lazily
lazily("wave", "sys")
import wave
import wave as again
print("chunk" in sys.modules or "audioop" in sys.modules, hasattr(sys, "modules"))
print(wave.WAVE_FORMAT_PCM, "struct" in sys.modules)
from wave import Wave_read
import wave as later
print(wave.Wave_read is Wave_read is later.Wave_read, again.open is later.open)
try:
    wave.nothing
except AttributeError as error:
    print("nothing" in str(error))
"""
    ) == ["False True", "1 True", "True True", "True"]


def test_a_module_without_others() -> None:
    """What a block hides is not found in it, and is again after it; what was loaded before stays."""
    assert run(
        """
import json
from hatchway.engine.base.imports import without
with without("wave", "json"):
    import json
    try:
        import wave
    except ImportError:
        print("hidden")
import wave
print(wave.WAVE_FORMAT_PCM)
"""
    ) == ["hidden", "1"]

"""The README's five lines of Python sign in, and reach the engine's own answer to a start."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.readme import CHAPTERS, README
from tests.support.fakes import key, key_file
from tests.support.processes import running_engine


@pytest.mark.process
def test_the_five_lines(home: Path, tmp_path: Path) -> None:
    """Run as they stand, in README and handbook alike; without that image: signed in, then the engine's own refusal."""
    (block,) = re.findall(r"^```python client\n(.*?)^```$", README.read_text(), re.DOTALL | re.MULTILINE)
    assert f"```python client\n{block}```" in CHAPTERS["client"].read_text()
    key_file(tmp_path / "alice.pem")
    with running_engine(home, HATCHWAY_IMAGE_FOLDERS=str(tmp_path)) as engine:
        script = block.replace("http://127.0.0.1:7420", engine.url).replace("alice.pem", str(tmp_path / "alice.pem"))
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 1
        assert re.search(r"Refused: .*(no such \.sif image|allow_root_instances|apptainer)", done.stderr), done.stderr
        rows = json.loads(engine.command("session", "list", "--json"))
        assert any(row["identity"] == key().identity for row in rows), rows

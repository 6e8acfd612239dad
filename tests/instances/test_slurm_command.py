"""The command and the client at an engine on a real Slurm, by the handbook's own lines."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from hatchway.api.client import AsyncClient
from hatchway.engine.instances import supervisor
from hatchway.engine.settings.sources import load_settings
from tests.readme import CHAPTERS
from tests.support.containers import Place, new_name, place
from tests.support.fakes import key_file
from tests.support.live_engine import command, live_engine
from tests.support.slurm_cluster import Cluster
from tests.support.slurm_engine import at_cluster, cluster

__all__ = ["at_cluster", "cluster", "place"]

AS_ORDINARY_USER = True
pytest_plugins = ["tests.support.ordinary_user"]
pytestmark = [pytest.mark.slurm, pytest.mark.apptainer, pytest.mark.process]


def handbook_lines() -> tuple[list[list[str]], list[str], str]:
    """What the chapter's transcript sets, starts, and is told."""
    block = CHAPTERS["slurm"].read_text().partition("```console\n")[2].partition("```")[0]
    typed = [shlex.split(line)[2:] for line in block.splitlines() if line.startswith("$ hatchway")]
    settings = [words for words in typed if words[0] == "config"]
    (start,) = (words for words in typed if words[0] == "instance")
    return settings, start, block.splitlines()[-1]


async def test_the_handbooks_lines(
    place: Place, at_cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Settings and start as they stand: the job is as asked, the answer as printed; the client may ask the same."""
    monkeypatch.setattr(supervisor, "QUEUE_HELD", 3.0)
    at_cluster.drain()
    settings, start, printed = handbook_lines()
    for words in settings:
        await command(place.home, *words)
    known = load_settings(place.home, {}, {})
    more: dict[str, Any] = {"platform": known.platform, "slurm": known.slurm, "image_folders": (str(place.images),)}
    async with live_engine(place.home, **more) as live:
        told = (await command(place.home, *start)).stdout.decode().rstrip("\n")
        job = at_cluster.jobs()["job"]
        assert re.sub(r"\(.*\)", "()", told) == re.sub(r"\(.*\)", "()", printed.replace("4711", str(job["job_id"])))
        asked = (job["partition"], job["time_limit"], job["cpus"], job["memory_per_node"], job["tres_per_job"])
        assert asked == ("main", 30, 2, 4096, "gres:gpu:1")
        why = (await command(place.home, "instance", "list")).stdout.decode().splitlines()[1].split()[2]
        assert told.endswith(f"({why})")
        shown = (await command(place.home, "instance", "show", "job")).stdout.decode()
        facts = dict(line.split(maxsplit=1) for line in shown.splitlines())
        assert (facts["memory"], facts["time_limit"]) == ("4.0 GiB", "30m")
        unread = await command(place.home, "instance", "log", "job", code=1)
        assert unread.stderr.decode().startswith("the instance has not started yet: it has no log")
        monkeypatch.setattr(supervisor, "QUEUE_HELD", 0.1)
        key_file(tmp_path / "one.pem")
        async with AsyncClient(live.url, key=tmp_path / "one.pem") as engine:
            await engine.sign_in()
            name = new_name()
            started = await engine.start_instance(image="box.sif", identity=name, partition="short", time_limit="5m")
            assert (started.instance, started.pid) == (name, 0)
            job = at_cluster.jobs()[name]
            assert (job["partition"], job["time_limit"]) == ("short", 5)
            await engine.stop_instance(name)
        await command(place.home, "instance", "stop", "job")
        refused = await command(place.home, "instance", "start", "box.sif", "--account", "other", code=1)
        assert refused.stderr.decode().startswith(
            "account: may not be asked for here: the setting `slurm.allow_request`"
        )

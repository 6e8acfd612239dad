"""slurmctld away, and back without its memory: what runs on a real Slurm then, what is refused, what is lost."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

import pytest
import trio

from hatchway.engine.instances.slurm.slurm import HEARD_WITHIN
from tests.support.containers import LONG, Place, living, new_name, place
from tests.support.fakes import Reply
from tests.support.slurm_cluster import NODE_CPUS, Cluster
from tests.support.slurm_engine import at_cluster, cluster, signed_in

__all__ = ["at_cluster", "cluster", "place"]

AS_ORDINARY_USER = True
pytest_plugins = ["tests.support.ordinary_user"]
pytestmark = [pytest.mark.slurm, pytest.mark.apptainer]


async def refused_for_now(ask: Callable[[], Awaitable[Reply]], seconds: float) -> None:
    with trio.fail_after(seconds):
        refused = await ask()
    assert (refused.status, refused.json()["code"]) == (503, "runtime_unavailable")
    assert "retry-after" in refused.headers


async def test_the_controller_is_away(place: Place, at_cluster: Cluster) -> None:
    """A start is refused with a later try, so is a stop, soon; what was told to stop does so once it is back."""
    async with signed_in(place) as at:
        name, queued = new_name(), new_name()
        await at.start(identity=name, command=["sleep", LONG])
        async with trio.open_nursery() as nursery:
            nursery.start_soon(partial(at.start, identity=queued, cpu=str(NODE_CPUS)))
            await at.until("queued", queued)
            nursery.cancel_scope.cancel()
        at_cluster.stop_controller()
        try:
            assert (await at.show(name))["state"] == "running"
            async with trio.open_nursery() as nursery:
                nursery.start_soon(refused_for_now, partial(at.start, identity=new_name()), 60)
                for one in (name, queued):
                    nursery.start_soon(refused_for_now, partial(at.ask, "DELETE", f"{one}/"), 2 * HEARD_WITHIN)
            assert [(await at.show(one))["state"] for one in (name, queued)] == ["stopping"] * 2
        finally:
            at_cluster.start_controller()
        await at.until("stopped", name)
        await at.until("failed", queued)
        assert not living()


async def test_slurm_forgets(place: Place, at_cluster: Cluster) -> None:
    """It keeps ended jobs for minutes only: an exit code is found all the same; an instance that it dropped is lost."""
    name, dropped = new_name(), new_name()
    async with signed_in(place) as at:
        await at.start(identity=name, command=["sh", "-c", "sleep 1; exit 4"])
        await at.start(identity=dropped)
    at_cluster.until(lambda: at_cluster.jobs()[name]["job_state"] == "COMPLETED")
    at_cluster.stop_controller()
    at_cluster.start_controller("-c")
    assert name not in at_cluster.jobs()
    async with signed_in(place) as at:
        assert (await at.until("stopped", name))["exit_code"] == 4
        assert "no longer knows" in (await at.until("failed", dropped))["failure"]
    at_cluster.until(lambda: not living())

"""A fleet before a real Slurm: each job is its engine's, and every engine shows, reads and stops it."""

from __future__ import annotations

import threading

import pytest

from tests.support.containers import LONG, Place, living, new_name, place
from tests.support.fleet import client, fleet
from tests.support.fleet_instances import HOST, InstancesClient
from tests.support.processes import sign_in
from tests.support.redis_server import RedisServer
from tests.support.slurm_cluster import Cluster
from tests.support.slurm_engine import at_cluster, cluster
from tests.support.waits import until

__all__ = ["at_cluster", "cluster", "place"]

AS_ORDINARY_USER = True
pytest_plugins = ["tests.support.ordinary_user"]
pytestmark = [pytest.mark.apptainer, pytest.mark.redis, pytest.mark.slurm, pytest.mark.process]


def test_a_job_of_another_engine(place: Place, redis: RedisServer, at_cluster: Cluster) -> None:
    """Queued, its reason is shown by the other engine too; placed, its node and its log; stopped there, it is over."""
    folder = place.home.parent
    settings = {
        "HATCHWAY_IMAGE_FOLDERS": str(place.images),
        "HATCHWAY_PLATFORM": "slurm",
        "HATCHWAY_SLURM_FOLDER": str(folder / "jobs"),
    }
    with fleet(folder, redis.url, redis.url, **settings) as (one, other), client(one) as here, client(other) as there:
        token, name = sign_in(here)["token"], new_name()
        a, b = InstancesClient(one, here, token), InstancesClient(other, there, token)
        at_cluster.drain()
        starting = threading.Thread(target=a.start, args=(name, "sh", "-c", f"echo placed; sleep {LONG}"))
        starting.start()
        until(lambda: (b.show(name).get("progress") or "").startswith("queued ("), what="Slurm's reason")
        assert b.show(name)["state"] == "queued"
        at_cluster.resume()
        starting.join()
        until(lambda: b.show(name)["state"] == "running", 60, what="its start")
        until(lambda: b.ask("GET", f"{name}/log/").content == b"placed\n", what="its output")
        assert b.show(name) == a.show(name)
        assert (b.show(name)["host"], b.show(name)["node"]) == (HOST, "first")
        assert b.ask("DELETE", f"{name}/").json()["state"] == "stopped"
        assert name not in living()

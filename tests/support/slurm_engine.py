"""What the tests on a real Slurm share: a cluster for each file, and an engine that runs its instances there."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from hatchway.api.http.app import make_app
from hatchway.engine.engine import open_engine
from hatchway.engine.instances.slurm import jobs
from hatchway.engine.settings.settings import Settings, SlurmSettings
from tests.support.containers import Place
from tests.support.fakes import Browser, sign_in
from tests.support.instance_client import InstanceClient
from tests.support.processes import prepare
from tests.support.slurm_cluster import Cluster, running_cluster


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster | None]:
    """One cluster for all tests of a file, found by every engine of this process; each leaves it without jobs."""
    if os.geteuid() == 0:
        yield None  # the tests run elsewhere, as an ordinary user
        return
    with running_cluster() as here, pytest.MonkeyPatch.context() as patch:
        patch.setenv("SLURM_CONF", str(here.conf))
        # It is asked more often than one that others use too.
        patch.setattr(jobs, "FIRST_PAUSE", 0.3)
        patch.setattr(jobs, "LONGEST_PAUSE", 1.0)
        yield here


@pytest.fixture
def at_cluster(cluster: Cluster | None) -> Iterator[Cluster | None]:
    """The cluster, its first node ready."""
    yield cluster
    if cluster is not None:
        cluster.resume()


@asynccontextmanager
async def signed_in(place: Place, **slurm: Any) -> AsyncIterator[InstanceClient]:
    """An engine on the cluster, and a browser signed in at it."""
    prepare(place.home)
    images, volumes = (str(place.images),), (str(place.volumes),)
    known = Settings(platform="slurm", image_folders=images, volume_roots=volumes, slurm=SlurmSettings(**slurm))
    async with open_engine(place.home, lambda: known) as engine:
        browser = Browser(make_app(engine))
        yield InstanceClient(browser, (await sign_in(browser))["token"])

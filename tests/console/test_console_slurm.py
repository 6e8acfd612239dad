"""The console at an engine on a real Slurm: the fields that it lets a start have, and why one is queued."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

from tests.support.browser import INSTANCE, Host, Visitor, running_host
from tests.support.containers import new_name
from tests.support.slurm_cluster import Cluster, running_cluster

pytestmark = [pytest.mark.browser, pytest.mark.process, pytest.mark.slurm, pytest.mark.apptainer]

SOON = 30_000
"""Milliseconds that Slurm may take on a busy machine."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with running_cluster() as here:
        yield here


@pytest.fixture(scope="module")
def host(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    """An engine that lets a start have a partition and a time, and no account."""
    settings = {"HATCHWAY_PLATFORM": "slurm", "HATCHWAY_SLURM_ALLOW_REQUEST": "partition,time_limit"}
    with running_host(tmp_path_factory.mktemp("host"), SLURM_CONF=str(cluster.conf), **settings) as running:
        yield running


def fill(page: Page, name: str, **fields: str) -> None:
    page.click("#start-open")
    page.fill("#start-image", "box.sif")
    page.fill("#start-identity", name)
    page.fill("#start-command", "sleep\n1000")
    page.click("#start-more summary")
    for field, text in fields.items():
        page.fill(f"#start-{field}", text)
    page.click("#start-form button.main")


def test_an_instance_that_has_to_wait(visitor: Visitor, cluster: Cluster) -> None:
    """Queued, its row says why, in Slurm's word, then where it runs; a stop that waits for slurmctld says so too."""
    page, name = visitor.sign_in(), new_name()
    row = page.locator(f"#instances-list [data-key='{name}']")
    cluster.drain()
    expect(page.locator("#start-partition")).to_be_attached()
    fill(page, name, partition="short", time_limit="30m")
    expect(row.locator(".tag")).to_have_text("queued", timeout=SOON)
    expect(row.locator(".row-facts")).to_contain_text("queued\u00a0(", timeout=SOON)
    job = cluster.jobs()[name]
    assert (job["partition"], job["time_limit"]) == ("short", 30)
    expect(row.locator(".row-facts")).to_contain_text(f"job\u00a0{job['job_id']}")
    cluster.resume()
    expect(row.locator(".tag")).to_have_text("running", timeout=SOON)
    expect(row.locator(".row-facts")).to_contain_text("on\u00a0first")
    expect(page.locator("#start-form")).to_be_hidden()
    cluster.stop_controller()
    try:
        row.get_by_role("button", name="Stop").click()
        page.get_by_role("dialog").get_by_role("button", name="Stop").click()
        expect(page.locator("#instances-problem")).to_contain_text("Slurm does not answer", timeout=SOON)
        with page.expect_response(f"**{INSTANCE}"):
            pass  # the list is fresh, and it is still said
        expect(row.locator(".tag")).to_have_text("stopping")
        expect(page.locator("#instances-problem")).to_contain_text("Slurm does not answer")
    finally:
        cluster.start_controller()
    expect(row.locator(".tag")).to_have_text("stopped", timeout=SOON)
    expect(page.locator("#instances-problem")).to_be_hidden()


def test_what_may_be_asked_for_is_shown(visitor: Visitor) -> None:
    """A field for each that the engine allows; what is wrong with one stands beside it, in Slurm's words too."""
    page = visitor.sign_in()
    expect(page.locator("#instances-empty, #instances-list > li").first).to_be_visible()
    fill(page, new_name(), partition="--x", time_limit="soon")
    expect(page.locator("#start-account")).to_be_hidden()
    expect(page.locator("#start-partition-error")).to_be_visible()
    expect(page.locator("#start-time_limit-error")).to_be_visible()
    expect(page.locator("#start-partition")).to_be_focused()
    page.fill("#start-partition", "nowhere")
    page.fill("#start-time_limit", "30m")
    page.click("#start-form button.main")
    expect(page.locator("#start-partition-error")).to_contain_text("nvalid partition", timeout=SOON)
    expect(page.locator("#start-time_limit-error")).to_be_hidden()
    page.fill("#start-partition", "")
    page.fill("#start-gpu", "99")
    page.click("#start-form button.main")
    expect(page.locator("#start-problem")).to_contain_text("node configuration is not available", timeout=SOON)
    expect(page.locator("#start-partition-error")).to_be_hidden()

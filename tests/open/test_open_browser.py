"""`hatchway open` to a real console in Chromium: on two hosts at once, over a lost connection; and how fast."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.support.opened_page import opened, sign_in
from tests.support.ssh_server import SshHost, ssh_hosts
from tests.support.waits import until

pytestmark = [pytest.mark.process, pytest.mark.sshd, pytest.mark.browser]

BEYOND = 1.5
"""Seconds beyond `ssh HOST true` that a warm host's page may take to be opened."""


def inspected_by_the_page(page: Page) -> int:
    """What the engine answers to a request of the page's; it waits while the tunnel is dialled again."""
    status: int = page.evaluate("async () => (await fetch('/readyz')).status")
    return status


def test_two_hosts_at_once(tmp_path: Path, chromium: Browser) -> None:
    """Each console is its own engine's; a lost connection is dialled again, and the page goes on."""
    one, two = SshHost(tmp_path, "one"), SshHost(tmp_path, "two")
    for host in (one, two):
        host.install_command()
    with (
        ssh_hosts(one, two) as config,
        opened(tmp_path / "first", "one", config) as (first, first_link),
        opened(tmp_path / "second", "two", config) as (second, second_link),
    ):
        page, other = sign_in(chromium, first, first_link), sign_in(chromium, second, second_link)
        assert page.url != other.url
        for pid in one.connections():
            os.kill(pid, signal.SIGKILL)
        first.wait_for("the connection was lost")
        assert inspected_by_the_page(page) == 200
        first.wait_for("connected again", 60)
        expect(page.locator("#view-home")).to_be_visible()
        assert inspected_by_the_page(other) == 200
        page.context.close()
        other.context.close()


def test_a_warm_host_is_quick(tmp_path: Path) -> None:
    """The page is opened at most 1.5 s after what `ssh HOST true` takes, in the best of a few runs."""
    host = SshHost(tmp_path)
    host.install_command()
    with ssh_hosts(host) as config:
        host.engine("engine", "start", "--detach", "--listen", "unix")
        beyond = []
        for _ in range(5):
            began = time.monotonic()
            subprocess.run(["ssh", "-F", config, "lab", "true"], check=True)
            plain = time.monotonic() - began
            began = time.monotonic()
            with opened(tmp_path / "laptop", "lab", config) as (_, link):
                until(link.exists, what="the browser to be opened")
                beyond.append(time.monotonic() - began - plain)
        print(f"beyond ssh: {', '.join(f'{seconds:.2f}' for seconds in beyond)} s")
        assert min(beyond) <= BEYOND

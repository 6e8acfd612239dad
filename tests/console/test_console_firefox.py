"""The console in Firefox: both sign-ins, tabs, a private window, and a browser that keeps no site data."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.browser import Host
from tests.support.firefox import Firefox, Tab, running_firefox

pytestmark = [pytest.mark.firefox, pytest.mark.node, pytest.mark.process]


@pytest.fixture(scope="module")
def firefox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Firefox]:
    with running_firefox(tmp_path_factory.mktemp("firefox")) as running:
        yield running
        assert running.faults() == []


def log_out(tab: Tab) -> None:
    tab.click("#logout")
    tab.says("#signin-notice", "You are logged out.")


def test_a_key_and_its_tabs(firefox: Firefox, host: Host) -> None:
    """A private key's file signs in; what the engine has is told; the session ends in its other tab too."""
    tab = firefox.open(host.url)
    tab.sign_in()
    tab.says("#sessions-list", "this session")
    other = firefox.open(host.url)
    other.see("#view-home")
    log_out(tab)
    other.see("#view-signin")


def test_a_key_that_is_remembered(firefox: Firefox, host: Host) -> None:
    """Kept in the browser as a key that can't be read out: the next sign-in needs no file."""
    tab = firefox.open(host.url)
    tab.choose_key()
    tab.choose("#remember")
    tab.click("#key-submit")
    tab.see("#view-home")
    log_out(tab)
    again = firefox.open(host.url)
    again.says("#key-kind", "remembered on this device")
    again.click("#key-submit")
    again.see("#view-home")
    log_out(again)


def test_a_code(firefox: Firefox, host: Host) -> None:
    """The link's code is filled in; the number is the operator's; his `y` signs in."""
    with host.pairing() as terminal:
        tab = firefox.open(f"{host.url}#pair={terminal.code()}")
        tab.click("#pair-submit")
        number = terminal.match_number()
        assert tab.text("#match") == number
        terminal.type("y\n")
        tab.see("#view-home")
    log_out(tab)


def test_a_private_window(host: Host, tmp_path: Path) -> None:
    """Both sign-ins as elsewhere, nothing of them on the disk's profile afterwards."""
    with running_firefox(tmp_path, browser__privatebrowsing__autostart=True) as private:
        tab = private.open(host.url)
        tab.sign_in()
        log_out(tab)
        with host.pairing() as terminal:
            tab = private.open(f"{host.url}#pair={terminal.code()}")
            tab.click("#pair-submit")
            terminal.match_number()
            terminal.type("y\n")
            tab.see("#view-home")
        log_out(tab)
        assert private.faults() == []
    assert not list(tmp_path.glob("storage/default/http*127.0.0.1*"))


def test_no_site_data(host: Host, tmp_path: Path) -> None:
    """With "block all cookies" the session lives in the tab's memory, with a sentence; a key can't be remembered."""
    with running_firefox(tmp_path, network__cookie__cookieBehavior=2) as firefox:
        tab = firefox.open(host.url)
        assert tab.evaluate("(() => { try { return sessionStorage && false } catch { return true } })()")
        tab.says("#no-site-data", "This browser keeps no site data")
        tab.choose_key()
        tab.choose("#remember")
        tab.click("#key-submit")
        tab.says("#key-refusal", "can't remember the key")
        tab.click("#key-submit")
        tab.see("#view-home")
        tab.says("#sessions-list", "this session")
        log_out(tab)
        assert firefox.faults() == []

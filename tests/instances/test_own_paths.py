"""What the settings call the engine's own is closed to every volume and image, whatever the roots allow."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hatchway.engine.base.errors import InvalidRequest
from hatchway.engine.instances.own_paths import GIVEN
from hatchway.engine.instances.request import Policy
from hatchway.engine.settings.settings import TABLE, Settings, SlurmSettings
from tests.support.instance_requests import Place


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def settings(place: Place, **changes: Any) -> Settings:
    usual: dict[str, Any] = {"image_folders": (str(place.images),), "volume_roots": ("/",)}
    return Settings(**usual | changes)


def closed(place: Place, known: Settings, source: Path, mode: str = "ro") -> bool:
    """Whether the engine with these settings refuses that folder or file of the host."""
    try:
        place.confine(Policy.of(place.home, known), volume=[f"{source}:/mnt:{mode}"])
    except InvalidRequest as refused:
        return "volume_roots" in refused.errors["volume"]
    return False


NAMED: dict[str, Callable[[Path], dict[str, Any]]] = {
    "keys": lambda path: {"keys": str(path)},
    "tls_cert": lambda path: {"tls_cert": path},
    "tls_key": lambda path: {"tls_key": path},
    "vendor_key": lambda path: {"vendor_key": str(path)},
    "slurm.folder": lambda path: {"slurm": SlurmSettings(folder=path)},
    "key": lambda path: {"key": path},
    "ssh": lambda path: {"ssh": str(path)},
    "remote_command": lambda path: {"remote_command": str(path)},
    "authorized_keys_command": lambda path: {"authorized_keys_command": (str(path), "--uid", "7")},
    "store": lambda path: {"store": f"unix://{path}?db=0"},
}
"""Every setting that names a path of ours, with that path as its value."""


@pytest.mark.parametrize("name", NAMED)
def test_no_volume_reaches_what_a_setting_names(place: Place, tmp_path: Path, name: str) -> None:
    """Not itself, nothing above it, nothing below it, not through a link; a folder beside it is as open as before."""
    ours, beside = tmp_path / "shared" / "ours", tmp_path / "shared2"
    (ours / "deep").mkdir(parents=True)
    beside.mkdir()
    (beside / "link").symlink_to(ours)
    known = settings(place, **NAMED[name](ours))
    for source in (ours, ours / "deep", ours.parent, tmp_path, beside / "link"):
        assert closed(place, known, source), source
        assert not closed(place, settings(place), source) or place.home.is_relative_to(source)
    assert not closed(place, known, beside)


@pytest.mark.parametrize("query", ["ssl_ca_certs", "ssl_certfile", "ssl_keyfile"])
def test_the_files_of_a_stores_address(place: Place, tmp_path: Path, query: str) -> None:
    """What the fleet's store is reached with is ours too."""
    (tmp_path / "tls").mkdir()
    for name in ("a.pem", "b.pem"):
        (tmp_path / "tls" / name).touch()
    other = "&ssl_certfile=/b.pem" if query == "ssl_keyfile" else ""
    known = settings(place, store=f"rediss://host:6379/0?{query}={tmp_path}/tls/a.pem{other}")
    assert closed(place, known, tmp_path / "tls")
    assert closed(place, known, tmp_path / "tls" / "a.pem")
    assert not closed(place, known, tmp_path / "tls" / "b.pem")


def test_a_link_that_leads_to_what_is_ours(place: Place, tmp_path: Path) -> None:
    """Whoever may write where the link lies decides what the engine reads next."""
    for folder in ("certs", "live", "archive"):
        (tmp_path / folder).mkdir()
    (tmp_path / "archive" / "key.pem").touch()
    (tmp_path / "live" / "key.pem").symlink_to("../archive/key.pem")
    (tmp_path / "certs" / "now").symlink_to(tmp_path / "live")
    known = settings(place, tls_key=tmp_path / "certs" / "now" / "key.pem")
    for folder in ("certs", "live", "archive"):
        assert closed(place, known, tmp_path / folder), folder


def test_a_home_behind_a_link(place: Place, tmp_path: Path) -> None:
    """The folder that holds the link to the engine's folder is as closed as the engine's folder."""
    (tmp_path / "links").mkdir()
    (tmp_path / "links" / "home").symlink_to(place.home)
    place.home = tmp_path / "links" / "home"
    assert closed(place, settings(place), tmp_path / "links")


def test_a_loop_of_links_is_no_fault(place: Place, tmp_path: Path) -> None:
    """A setting whose path can't be resolved closes nothing else and stops no start."""
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    known = settings(place, tls_key=tmp_path / "loop" / "key.pem")
    assert not closed(place, known, place.roots)


def test_the_runtimes_own_folder(place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the runtime keeps what it knows of instances no container may write."""
    entry = type("Entry", (), {"pw_dir": str(tmp_path / "svc")})
    monkeypatch.setattr("pwd.getpwuid", lambda uid: entry)
    (tmp_path / "svc" / ".apptainer").mkdir(parents=True)
    assert closed(place, settings(place), tmp_path / "svc")
    assert closed(place, settings(place), tmp_path / "svc" / ".apptainer")


def test_images_are_not_written_through_a_volume(place: Place) -> None:
    """A volume that may be written must not hold the images that the settings vouch for; read-only it may."""
    policy = Policy.of(place.home, settings(place))
    assert place.confine(policy, volume=[f"{place.images}:/mnt"]).volumes
    for source in (place.images, place.images / "deep"):
        with pytest.raises(InvalidRequest, match="hold images"):
            place.confine(policy, volume=[f"{source}:/mnt:rw"])


def test_no_setting_is_forgotten() -> None:
    """A setting that takes a path either tells that it names one, or is there for containers by name."""
    for name, setting in TABLE.items():
        text = "unix:///srv/ours" if name == "store" else "/srv/ours"
        try:
            value = setting.kind.read(text)
        except ValueError:
            continue
        assert setting.kind.paths is not None, f"{name} takes a path: give its kind `paths`"
        assert list(setting.kind.paths(value)) == ["/srv/ours"], name
        assert (name in NAMED) != (name in GIVEN), f"{name}: ours, or given to containers?"

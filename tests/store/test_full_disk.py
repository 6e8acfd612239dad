"""A file system of the engine's own that has no room left: what can't be written is refused in words, and as it was."""

from __future__ import annotations

import io
import json
import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from hatchway.engine.base.errors import FileRefused
from hatchway.engine.journal.logs import LineWriter
from hatchway.engine.keys.authorized_keys import AuthorizedKeys
from hatchway.engine.store.backup import back_up
from hatchway.engine.store.sqlite import PROBED
from tests.support.command import completed
from tests.support.fakes import key
from tests.support.processes import EngineProcess, bearer, sign_in
from tests.support.waits import until as wait_until

pytestmark = [pytest.mark.process, pytest.mark.mount]

NO_ROOM = "No space left on device"
NO_ROOM_HERE = "database or disk is full"
KEPT = ("authorized_keys", "private-key.pem", "token-key.pem")


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A small file system, empty."""
    place = tmp_path / "disk"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m,mode=700", "tmpfs", str(place)], check=True)
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


@contextmanager
def filled(disk: Path) -> Iterator[None]:
    """Not one more page of it is free."""
    rest = disk / "rest"
    with rest.open("wb", buffering=0) as file:
        try:
            while file.write(bytes(4096)):
                pass
        except OSError:
            assert os.statvfs(disk).f_bfree == 0
    try:
        yield
    finally:
        rest.unlink()


def engine_on(disk: Path) -> EngineProcess:
    """Its folder is on the disk, what it prints is not."""
    engine = EngineProcess(disk / "hatchway")
    engine.log_path = disk.parent / "printed"
    return engine


def run(engine: EngineProcess, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A command in a folder on the engine's own disk."""
    where = engine.home.parent
    return completed(engine.environ, *arguments, folder=where)


def refused(engine: EngineProcess, *arguments: str) -> str:
    """What a command that fails says on standard error."""
    done = run(engine, *arguments)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done.stderr


def contents(home: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in home.iterdir() if path.is_file() and "engine.db" not in path.name}


def test_keys_settings_and_sessions(disk: Path, tmp_path: Path) -> None:
    """Each write says what there is no room for, and leaves what was there; with room again all of them go through,
    and nothing that was answered is lost."""
    engine = engine_on(disk)
    (tmp_path / "two.pub").write_bytes(key("two").public.pem())
    writes = (
        ("key", "register", str(tmp_path / "two.pub"), "--permissions", "SHELL"),
        ("key", "unregister", key().public.identity),
        ("key", "rotate-token"),
        ("key", "rotate-engine"),
        ("key", "generate", "three"),
        ("config", "set", "max_instances", "5"),
    )
    try:
        with httpx.Client(base_url=engine.start().url) as client:
            tokens = [sign_in(client)["token"] for _ in range(3)]
            engine.command("config", "set", "max_instances", "7")
            before = contents(engine.home)
            with filled(disk):
                _sessions_are_kept(client, tokens)
                for arguments in writes:
                    assert NO_ROOM in refused(engine, *arguments), arguments
                assert {name: data for name, data in contents(engine.home).items() if data} == {
                    name: data for name, data in before.items() if data
                }
            tokens.append(sign_in(client)["token"])
            assert client.post("/api/auth/logout/", headers=bearer(tokens.pop(1))).status_code == 204
            for arguments in (writes[0], *writes[2:]):
                assert run(engine, *arguments).returncode == 0, arguments
            statuses = {client.get("/api/auth/inspect/", headers=bearer(token)).status_code for token in tokens}
            assert statuses == {200}
        engine.terminate()
    finally:
        engine.close()
    assert {entry.key.identity for entry in AuthorizedKeys(engine.home / "authorized_keys").entries()} >= {
        key().public.identity,
        key("two").public.identity,
    }
    for line in (engine.home / "log" / "events.jsonl").read_bytes().splitlines():
        json.loads(line)


def _sessions_are_kept(client: httpx.Client, tokens: list[str]) -> None:
    """The store's own pages may take a few writes more; then each is refused, and none half done."""
    for _ in range(200):
        answer = client.post("/api/auth/renew/", headers=bearer(tokens[0]))
        if answer.status_code == 503:
            break
        tokens.append(answer.json()["token"])
    assert answer.json()["code"] == "store_unavailable"
    assert client.post("/api/auth/logout/", headers=bearer(tokens[1])).status_code == 503
    for token in tokens:
        assert client.get("/api/auth/inspect/", headers=bearer(token)).status_code == 200


def test_readiness(disk: Path) -> None:
    """503 for as long as sign-ins are refused, whoever asks how often, and 200 once there is room: a probe that changed
    nothing would go through. Where nobody signs in at all it shows too, a little later."""
    engine = engine_on(disk)
    try:
        with httpx.Client(base_url=engine.start().url) as client:
            tokens = [sign_in(client)["token"] for _ in range(2)]
            with filled(disk):
                _sessions_are_kept(client, tokens)
                until = time.monotonic() + 3 * PROBED
                while time.monotonic() < until:
                    answer = client.get("/readyz")
                    assert (answer.status_code, answer.json()["code"]) == (503, "store_unavailable")
                    time.sleep(PROBED / 10)
                assert NO_ROOM_HERE in answer.json()["detail"]
            wait_until(lambda: client.get("/readyz").status_code == 200, what="readiness with room")
            with filled(disk):
                wait_until(lambda: client.get("/readyz").status_code == 503, what="readiness to tell without a sign-in")
                assert NO_ROOM_HERE in run(engine, "engine", "status").stdout
        engine.terminate()
        told = [json.loads(line) for line in engine.log().splitlines() if line.startswith("{")]
        lines = [line for line in told if line["event"] in ("store_not_written", "store_written_again")]
        assert [line["event"] for line in lines] == ["store_not_written", "store_written_again", "store_not_written"]
        assert NO_ROOM_HERE in lines[0]["why"]
    finally:
        engine.close()


@pytest.mark.parametrize("unbuffered", [False, True])
def test_a_log_on_the_disk(disk: Path, unbuffered: bool) -> None:
    """As that of an engine which was started by `--detach` is: with room again every line comes, and none is cut."""
    lines = [f"line {number} {'.' * 90}" for number in range(100)]
    file = (disk / "engine.log").open("ab", buffering=0 if unbuffered else -1)
    with io.TextIOWrapper(file, write_through=unbuffered) as stream:
        writer = LineWriter(stream)
        writer.msg(lines[0])
        wait_until(lambda: (disk / "engine.log").stat().st_size > 0, what="the first line")
        with filled(disk):
            for line in lines[1:]:
                writer.msg(line)
            wait_until(lambda: (disk / "engine.log").stat().st_size == 4096, what="the last page to be full")
            time.sleep(0.3)
        wait_until(lambda: (disk / "engine.log").read_text().splitlines() == lines, what="all lines")
        writer.close()


def test_a_first_start(disk: Path) -> None:
    """An engine that can't make its keys says so and ends; with room it starts as if it were the first time."""
    engine = engine_on(disk)
    try:
        with filled(disk):
            engine.begin(fresh=True)
            assert engine.process.wait(30) == 1
            assert NO_ROOM in engine.log()
            assert "Traceback" not in engine.log()
        engine.begin(fresh=True)
        engine.wait_ready()
        assert all((engine.home / name).stat().st_size for name in KEPT)
        engine.terminate()
    finally:
        engine.close()


def test_a_later_start(disk: Path) -> None:
    """With no room for its files beside the database an engine says that, and does not call the database damaged: with
    room again it starts with every session that it had."""
    engine = engine_on(disk)
    try:
        with httpx.Client(base_url=engine.start().url) as client:
            token = sign_in(client)["token"]
        engine.terminate()
        with filled(disk):
            engine.begin()
            assert engine.process.wait(30) == 1
            assert "Traceback" not in engine.log()
            (said,) = [line for line in engine.log().splitlines() if not line.startswith("{")]
            assert NO_ROOM in said
            assert "move it away" not in said
        with httpx.Client(base_url=engine.start().url) as client:
            assert client.get("/api/auth/inspect/", headers=bearer(token)).status_code == 200
        engine.terminate()
    finally:
        engine.close()


def test_a_backup_that_finds_no_room(disk: Path, tmp_path: Path) -> None:
    """One sentence says why, and the disk is as empty as before."""
    home = tmp_path / "home"
    (home / "log").mkdir(parents=True)
    for name in ("engine.lock", "private-key.pem", "authorized_keys", "log/events.jsonl"):
        (home / name).write_bytes(bytes(1_500_000))
    with pytest.raises(FileRefused, match=rf"^\S+ can't be copied: {NO_ROOM}$"):
        back_up(home, disk / "copy")
    assert list(disk.iterdir()) == []

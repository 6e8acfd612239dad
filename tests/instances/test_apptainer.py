"""Apptainer for real, as an ordinary user: what is asked arrives, nothing else gets in or out, nothing is left."""

from __future__ import annotations

import os
import pwd
import signal
import subprocess
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio

from hatchway.engine.base.errors import (
    FileRefused,
    ImageNotFound,
    InstanceExists,
    Refusal,
    ResourcesUnavailable,
    RuntimeUnavailable,
)
from hatchway.engine.instances import processes, tails
from hatchway.engine.instances.apptainer import watcher
from hatchway.engine.instances.apptainer.apptainer import Apptainer
from hatchway.engine.instances.apptainer.calls import ASKED_AGAIN, PATH, Calls
from hatchway.engine.instances.apptainer.host import Host, this_host
from hatchway.engine.instances.protocol import ConfirmedStart, StartFailed
from hatchway.engine.instances.request import InstanceRequest
from tests.support.containers import LONG, Gate, Place, listed, living, new_name, place, principals

__all__ = ["place"]

AS_ORDINARY_USER = True
pytest_plugins = ["tests.support.ordinary_user"]
pytestmark = pytest.mark.apptainer

CAPABLE = Host(cpus=64, memory=1 << 50, controllers=frozenset({"cpu", "memory"}), gpus=0)
"""A host that says it could enforce anything: for what the runtime itself then does."""


async def run(place: Place, **fields: Any) -> tuple[int | None, str, str]:
    """Exit code, output and errors of a command in an instance of its own."""
    request = place.request(**fields)
    started = await place.platform.start(request)
    with trio.fail_after(60):
        code = await place.platform.wait_ended(request, started)
    return code, place.output(started), place.output(started, "err")


async def test_what_is_asked_arrives(place: Place) -> None:
    """Variables, volumes and arguments are inside what they were outside; the entry is the runtime's own."""
    (place.volumes / "in").mkdir()
    (place.volumes / "in" / "word").write_text("from outside")
    (place.volumes / "out").mkdir()
    gate = Gate(place)
    script = 'cat /in/word; echo "|$A|$#|$1|$2"; echo done > /out/word; touch /in/x 2>/dev/null || echo read-only; '
    request = place.request(
        command=["sh", "-c", script + gate.wait, "sh", "a b", "$(id)"],
        env=["A=x y"],
        volume=[f"{place.volumes}/in:/in", f"{place.volumes}/out:/out:rw", gate.volume],
    )
    started = await place.platform.start(request)
    entry, raw = started.entry, listed()[request.identity]
    assert raw == {
        "instance": entry.instance,
        "pid": entry.pid,
        "img": entry.img,
        "ip": entry.ip,
        "logErrPath": entry.log_err_path,
        "logOutPath": entry.log_out_path,
    }
    assert (entry.instance, entry.img) == (request.identity, str(place.images / "box.sif"))
    gate.open()
    assert await place.platform.wait_ended(request, started) == 0
    assert place.output(started) == "from outside|x y|2|a b|$(id)\nread-only\n"
    assert (place.volumes / "out" / "word").read_text() == "done\n"
    assert request.identity not in listed()


VALUES = {
    "PLAIN": "1",
    "COMMA": "a,Y=b",
    "SHELL": "$(id)`id`${PATH}",
    "QUOTED": '"quoted"',
    "SAY": 'say "hi"',
    "ENDS": 'x"',
    "EQUALS": "b=c==",
    "LINES": "\nnew\nlines\n",
    "EMPTY": "",
    "SPACES": "  a\tb  ",
    "UNICODE": "é€😀",
    "CONTROL": "\x01\x1b\r",
    "SIGNS": "!#;&|<>*?[]{}~%^'\\",
    "PATH": "/usr/bin:/bin:/mine",
    "_": "underscore",
}


async def test_every_value_arrives_whole(place: Place) -> None:
    """Commas, quotes, newlines, shell signs and control characters: one variable each, to the byte."""
    env = [f"{name}={value}" for name, value in VALUES.items()]
    code, out, _ = await run(place, command=["/bin/busybox", "cat", "/proc/self/environ"], env=env)
    inside = dict(item.split("=", 1) for item in out.rstrip("\0").split("\0"))
    assert code == 0
    assert {name: inside.get(name) for name in VALUES} == VALUES
    ours = {"APPTAINER", "SINGULARITY"}
    rest = {name for name in inside if name not in VALUES and name.split("_")[0] not in ours}
    assert rest <= {"HOME", "LANG", "LD_LIBRARY_PATH", "PROMPT_COMMAND", "PS1", "PWD", "SHLVL", "USER_PATH"}


@pytest.mark.parametrize("command", [["-c", "id"], ["--help"], ["--bind=/etc:/mnt", "id"], ["no-such-program"]])
async def test_a_command_is_no_option(place: Place, command: list[str]) -> None:
    """What begins with a hyphen is looked for as a program, and not found."""
    code, out, errors = await run(place, command=command)
    assert (code, out) == (255, "")
    assert "not found" in errors or "no such file" in errors


@pytest.mark.parametrize(("script", "code"), [("exit 0", 0), ("exit 7", 7), ("kill -9 $$", 137), ("kill -15 $$", 143)])
async def test_the_exit_code_is_the_commands(place: Place, script: str, code: int) -> None:
    """Its own, or 128 and the signal's number; and its end ends the instance."""
    assert (await run(place, command=["sh", "-c", script]))[0] == code


async def test_the_log_begins_anew(place: Place) -> None:
    """The runtime appends to the log of an earlier instance of the name; ours begins where that one ended."""
    name = new_name()
    assert (await run(place, identity=name, command=["echo", "first"]))[1] == "first\n"
    assert (await run(place, identity=name, command=["sh", "-c", "echo second; echo oops >&2"]))[1:] == (
        "second\n",
        "oops\n",
    )


async def test_a_log_is_bounded(place: Place) -> None:
    """A command that writes without end fills no disk: beginning, newest and what is left out are there, and it all
    goes with the instance's record."""
    place.platform = Apptainer(place.home / "instances", lambda: False, log_bytes=lambda: 1 << 18)
    request = place.request(command=["sh", "-c", "echo first; yes | head -c 20000000; echo; echo last"])
    started = await place.platform.start(request)
    with trio.fail_after(60):
        assert await place.platform.wait_ended(request, started) == 0
    path, begin = place.platform.log(started, "out")
    whole = tails.pieces(tails.LogFile(path, begin), lambda: False, None, tails.Tails())
    text = b"".join([piece async for piece in whole])
    assert text.startswith(b"first\n")
    assert text.endswith(b"\nlast\n")
    assert b" bytes are left out here" in text
    assert len(text) <= 1 << 18
    assert len(list(path.parent.glob(f"{path.name}.*"))) == 2
    place.platform.forget(request.identity)
    assert not list(path.parent.glob(f"{request.identity}.*"))


async def test_an_instance_killed_from_outside(place: Place) -> None:
    """Its end is noticed at once, nothing of it stays, and its name starts again."""
    for command in ([], ["sleep", LONG]):
        request = place.request(command=command)
        for _ in range(2):
            started = await place.platform.start(request)
            if command:
                await until(sleeping)
            os.kill(started.entry.pid, signal.SIGKILL)
            with trio.fail_after(20):
                code = await place.platform.wait_ended(request, started)
            assert code == (137 if command else None)
            assert not living()


async def test_the_process_that_minds_an_instance_is_killed(place: Place) -> None:
    """With it goes the instance; the file system's process that it leaves behind is ended too."""
    request = place.request()
    started = await place.platform.start(request)
    (minder, *_) = [process for process in processes.own() if process.pid == started.session]
    os.kill(minder.pid, signal.SIGKILL)
    with trio.fail_after(20):
        assert await place.platform.wait_ended(request, started) is None
    assert not living()
    assert not principals(place.images)


def sleeping() -> bool:
    """Whether the command itself runs, past all the runtime's own stages."""
    return any(process.argv == ("/bin/sleep", LONG) for process in processes.own())


def ps() -> str:
    return "\n".join(" ".join(process.argv) for process in processes.own())


async def until(true: Any, seconds: float = 30) -> None:
    with trio.fail_after(seconds):
        while not true():
            await trio.sleep(0.02)


async def test_a_stop_ends_the_command(place: Place) -> None:
    """Told to stop, the instance goes with all that runs in it."""
    request = place.request(command=["sleep", LONG])
    started = await place.platform.start(request)
    await until(sleeping)
    await place.platform.stop(request, started)
    with trio.fail_after(20):
        assert await place.platform.wait_ended(request, started) not in (0, None)


async def test_a_watcher_that_is_killed(place: Place) -> None:
    """Nobody could tell the command's end any more: the instance is ended rather than left to run for ever."""
    request = place.request(command=["sleep", LONG])
    started = await place.platform.start(request)
    await until(sleeping)
    watcher = next(process for process in processes.own() if process.argv[-1].endswith("/" + request.identity))
    assert Path(f"/proc/{watcher.pid}/environ").read_text().count("\0") <= 4
    rss = int(Path(f"/proc/{watcher.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    assert rss < 16 << 20
    os.kill(watcher.pid, signal.SIGKILL)
    with trio.fail_after(20):
        assert await place.platform.wait_ended(request, started) is None


async def test_a_container_that_calls_itself_a_watcher(place: Place) -> None:
    """A process with the arguments of another instance's watcher is none: that instance's command runs, and ends."""
    name = new_name()
    pretended = [watcher.__file__, str(place.home / "instances" / name)]
    false = place.request(command=["sh", "-c", f"sleep {LONG}; true", *pretended])
    started = await place.platform.start(false)

    def pretends() -> bool:
        return any(
            process.argv[0].endswith("sh") and list(process.argv[-2:]) == pretended for process in processes.own()
        )

    await until(pretends)
    assert (await run(place, identity=name, command=["echo", "ran"]))[:2] == (0, "ran\n")
    assert pretends()
    await place.platform.stop(false, started)
    await place.platform.wait_ended(false, started)


async def test_arguments_name_nobody(place: Place) -> None:
    """Nobody waits for a process that looks like a start of the runtime's, or ends one that looks like a minder."""
    gate = Gate(place)  # a start is adopted while its instance runs
    request = place.request(command=["sh", "-c", gate.wait], volume=[gate.volume])
    title = f"Apptainer instance: {pwd.getpwuid(os.geteuid()).pw_name} [{request.identity}]"
    false = [
        subprocess.Popen([title, LONG], executable="/bin/sleep", start_new_session=True),
        subprocess.Popen(["yes", "instance", "start", request.identity], stdout=subprocess.PIPE),
    ]
    try:
        started = await place.platform.start(request)
        with trio.fail_after(60):
            adopted = await place.runtime().adopt(request)
            gate.open()
            assert await place.platform.wait_ended(request, adopted) == 0
        await place.platform.undo(request.identity)
        assert started.since == adopted.since
        assert [process.poll() for process in false] == [None, None]
    finally:
        for process in false:
            process.kill()
            process.communicate()


async def test_nothing_begins_before_it_is_written_down(tmp_path: Path) -> None:
    """A program that is begun does nothing without the whole of its plan, which it gets once its pid is on disk."""
    note = tmp_path / "note"
    with (tmp_path / "said").open("wb") as said:
        child = await processes.launch(["/bin/sh", "-c", f"cat {note}; exit 7"], {}, note, stdout=said)
    assert await child.wait() == 7
    assert (tmp_path / "said").read_text() == note.read_text()
    assert note.read_text().split()[0] == str(child.pid)
    assert processes.noted(note) is None
    with pytest.raises(FileRefused):
        await processes.launch(["/bin/touch", str(tmp_path / "ran")], {}, tmp_path / "no" / "note")
    assert not (tmp_path / "ran").exists()


async def test_values_are_in_no_process_list(place: Place) -> None:
    """While a command runs, no argument vector on the host shows its variables."""
    request = place.request(command=["sleep", LONG], env=["TOKEN=hidden-value"])
    started = await place.platform.start(request)
    await until(sleeping)
    assert "hidden-value" not in ps()
    await place.platform.stop(request, started)
    await place.platform.wait_ended(request, started)


async def test_another_engine_takes_over(place: Place) -> None:
    """A backend made anew finds what the one before it began, runs no command twice, and tells its exit code."""
    gate = Gate(place)
    request = place.request(command=["sh", "-c", f"{gate.wait}; echo late; exit 5"], volume=[gate.volume])
    started = await place.platform.start(request)
    place.platform = place.runtime()
    adopted = await place.platform.adopt(request)
    assert (adopted.entry, adopted.since) == (started.entry, started.since)
    gate.open()
    assert await place.platform.wait_ended(request, adopted) == 5
    assert place.output(started) == "late\n"


async def test_a_start_is_adopted_while_it_goes_on(place: Place) -> None:
    """An engine that dies leaves its start to go on; the next one waits for it and confirms it."""
    request = place.request(command=["echo", "once"])
    async with trio.open_nursery() as nursery:
        nursery.start_soon(place.platform.start, request)
        await until(lambda: any(process.argv[-1] == request.identity for process in processes.own()))
        nursery.cancel_scope.cancel()
    successor = place.runtime()
    adopted = await successor.adopt(request)
    assert await successor.wait_ended(request, adopted) == 0
    assert place.output(adopted) == "once\n"


@pytest.mark.parametrize("round_", range(20))
async def test_a_start_that_is_given_up(place: Place, round_: int) -> None:
    """Undone at any moment of it, a start leaves no process and no entry; the name is free at once."""
    request = place.request(command=["sleep", LONG])
    with trio.move_on_after(round_ * 0.02):
        await place.platform.start(request)
    await place.platform.undo(request.identity)
    assert not living()
    assert request.identity not in listed()
    if round_ % 5 == 0:
        started = await place.platform.start(request)
        await place.platform.stop(request, started)
        await place.platform.wait_ended(request, started)


async def failed_start(place: Place, request: InstanceRequest) -> StartFailed:
    with pytest.raises(StartFailed) as failed:
        await place.platform.start(request)
    await place.platform.undo(request.identity)
    for path in (place.home, place.images, Path.home()):
        assert str(path) not in failed.value.refusal.detail
    assert failed.value.exit_code > 0
    return failed.value


async def test_a_foreign_instance_of_that_name(place: Place) -> None:
    """It is refused, and neither touched nor taken for ours."""
    request = place.request()
    env = {"PATH": PATH, "HOME": str(Path.home())}
    by_hand = partial(subprocess.run, env=env, check=True, capture_output=True)
    by_hand(["apptainer", "instance", "start", "--containall", request.image.name, request.identity])
    with pytest.raises(StartFailed) as failed:
        await place.platform.start(request)
    assert isinstance(failed.value.refusal, InstanceExists)
    await place.platform.undo(request.identity)
    with pytest.raises(StartFailed):
        await place.runtime().adopt(request)
    await place.runtime().undo(request.identity)
    assert request.identity in listed()
    by_hand(["apptainer", "instance", "stop", request.identity])


async def test_an_image_that_is_none(place: Place) -> None:
    """A file that only calls itself an image is refused in words that name no path of the host."""
    (place.images / "none.sif").write_bytes(os.urandom(4096))
    assert isinstance((await failed_start(place, place.request(image="none.sif"))).refusal, ImageNotFound)


@pytest.mark.parametrize(("field", "value"), [("cpu", "0.5"), ("memory", "64M"), ("gpu", "1")])
async def test_each_limit_is_kept_or_refused(place: Place, field: str, value: str) -> None:
    """Where the host can't enforce it, it is refused by its name; where it can, the instance runs under it."""
    request = place.request(None, **{field: value})
    here = this_host()
    if field in here.controllers or (field == "gpu" and here.gpus):
        started = await place.platform.start(request)
        await place.platform.stop(request, started)
        await place.platform.wait_ended(request, started)
        return
    with pytest.raises(ResourcesUnavailable) as refused:
        place.platform.admit(request)
    assert list(refused.value.errors) == [field]


async def test_the_runtimes_own_word_on_limits(place: Place) -> None:
    """Even if the host is misjudged, the instance never runs without the limit it was asked for."""
    if "memory" in this_host().controllers:
        return  # here the limit is kept, as the test above shows
    place.platform = place.runtime(CAPABLE)
    request = place.request(memory="64M")
    place.platform.admit(request)
    assert isinstance((await failed_start(place, request)).refusal, ResourcesUnavailable)


async def test_what_the_engines_environment_does(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """APPTAINER_BIND, APPTAINERENV_ and a secret in the engine's own environment reach no container."""
    monkeypatch.setenv("APPTAINER_BIND", f"{place.home}:/mnt")
    monkeypatch.setenv("SINGULARITY_BIND", "/etc:/mnt")
    monkeypatch.setenv("APPTAINERENV_CANARY", "tweet")
    monkeypatch.setenv("CANARY", "tweet")
    monkeypatch.setenv("HOME", str(place.home))
    place.platform = place.runtime()
    code, out, _ = await run(place, command=["sh", "-c", "ls -A /mnt; env; cat /proc/*/environ"])
    assert code == 0
    assert "tweet" not in out
    assert "private-key" not in out


KEY = b"-----BEGIN PRIVATE KEY----- canary"

PRY = """
for path in {home}/private-key.pem {user}/.hatchway/private-key.pem /root/.hatchway/private-key.pem \
    /proc/1/root{home}/private-key.pem /proc/self/root{home}/private-key.pem; do
  cat "$path" 2>/dev/null && echo "READ $path"
done
for pid in {pid} $(seq 2 40); do [ -e /proc/$pid/cmdline ] && tr '\\0' ' ' < /proc/$pid/cmdline; done
kill -0 {pid} 2>/dev/null && echo "SIGNALLED"
ls -A {user} /home 2>/dev/null
[ -e {home}/operator.sock ] && echo "SOCKET"
for name in $(cat /proc/net/unix | grep -o '@.*'); do echo "ABSTRACT $name"; done
true
"""


@pytest.mark.parametrize("fakeroot", [False, True])
async def test_the_engine_is_out_of_reach(place: Place, fakeroot: bool) -> None:
    """From inside: no key, process, socket or home of the engine's; not even where the container calls itself root."""
    (place.home / "private-key.pem").write_bytes(KEY)
    script = PRY.format(home=place.home, user=Path.home(), pid=os.getpid())
    code, out, _ = await run(place, command=["sh", "-c", script + "id -u"], fakeroot=fakeroot)
    assert code == 0
    assert out.splitlines()[-1] == ("0" if fakeroot else str(os.geteuid()))
    assert KEY.decode() not in out
    for word in ("READ", "SIGNALLED", "SOCKET", "pytest", str(place.home)):
        assert word not in out.replace(script, "")


async def test_a_runtime_that_is_missing(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without one says so."""
    monkeypatch.setattr("shutil.which", lambda *arguments, **options: None)
    with pytest.raises(RuntimeUnavailable, match="not installed"):
        place.platform.admit(place.request())


async def test_twenty_names_at_once(place: Place) -> None:
    """Twenty starts side by side: each is confirmed, and each one stopped."""
    requests = [place.request() for _ in range(20)]
    started: dict[str, ConfirmedStart | Refusal] = {}

    async def one(request: InstanceRequest) -> None:
        begun = await place.platform.start(request)
        started[request.identity] = begun
        await place.platform.kill(request, begun)
        await place.platform.wait_ended(request, begun)

    with trio.fail_after(120):
        async with trio.open_nursery() as nursery:
            for request in requests:
                nursery.start_soon(one, request)
    assert len(started) == 20


def record(identity: str) -> Path:
    """Where the runtime keeps its record of an instance."""
    folder = Calls().config / "instances" / "app" / os.uname().nodename / pwd.getpwuid(os.geteuid()).pw_name
    return folder / identity / f"{identity}.json"


@pytest.mark.parametrize("left", [b"", b'{"pid":5'])
async def test_a_record_that_was_not_written_to_its_end(place: Place, left: bytes) -> None:
    """As a full disk leaves it: the runtime lists nothing for its sake. It is removed, and the next start succeeds."""
    broken = record(new_name())
    broken.parent.mkdir(parents=True)
    broken.write_bytes(left)
    code, out, _ = await run(place, command=["echo", "runs"])
    assert (code, out) == (0, "runs\n")
    assert not broken.exists()
    broken.parent.rmdir()


async def test_a_record_that_is_being_written(place: Place) -> None:
    """A start beside that of another instance, in the moment in which the record of that one is empty."""
    request = place.request(command=["sleep", LONG])
    started = await place.platform.start(request)
    whole = record(request.identity).read_bytes()

    async def be_written() -> None:
        await trio.sleep(sum(ASKED_AGAIN) / 3)
        record(request.identity).write_bytes(whole)

    record(request.identity).write_bytes(b"")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(be_written)
        assert (await run(place, command=["true"]))[0] == 0
    assert request.identity in listed()
    await place.platform.kill(request, started)
    await place.platform.wait_ended(request, started)


async def test_records_that_cannot_be_read(place: Place) -> None:
    """As on a network folder that is away: the runtime's list is empty then, which is no reason to think that anything
    has ended. What runs goes on, and is found again."""
    request = place.request(command=["sleep", LONG])
    started = await place.platform.start(request)
    folder = record(request.identity).parent.parent
    mode = folder.stat().st_mode
    folder.chmod(0)
    try:
        with pytest.raises(RuntimeUnavailable, match="can't be read"):
            await place.platform.undo(request.identity)
        with trio.move_on_after(1) as waited:
            await place.platform.wait_ended(request, started)
        assert waited.cancelled_caught
    finally:
        folder.chmod(mode)
    assert processes.since(started.entry.pid) == started.since
    await place.platform.undo(request.identity)
    assert processes.since(started.entry.pid) != started.since

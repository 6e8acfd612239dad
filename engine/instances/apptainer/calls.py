"""Calls of the runtime's program: argument vectors, an environment of its own, and no standard input."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import tempfile
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from subprocess import CompletedProcess
from typing import NamedTuple

import msgspec
import structlog
import trio

from hatchway.engine.base.errors import RuntimeUnavailable
from hatchway.engine.base.files import make_private_dir, reason
from hatchway.engine.instances import processes
from hatchway.engine.instances.argv import list_argv
from hatchway.engine.instances.protocol import ListedInstance

log = structlog.get_logger(__name__)

ASKED_AGAIN = (0.1, 0.2, 0.4, 0.8)  # seconds after each try to read the list
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class _Listing(msgspec.Struct):
    instances: list[ListedInstance]


class _Broken(NamedTuple):
    """A record of the runtime's that is no JSON, and what is in it."""

    path: Path
    content: bytes


class Calls:
    """The runtime, as the engine's user calls it.

    `folder` is where the runtime keeps its records of instances if the user's home can't be written; None where the
    caller sets that in the environment.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self.user, self._known = _own_user()
        self._folder = folder

    @cached_property
    def config(self) -> Path:
        """The runtime's own folder. It is asked for when it is needed: an engine without instances needs no home.

        Where there is one in `folder`, that is used from then on: instances must be found where they were started.
        """
        usual = Path(self.user.pw_dir) / ".apptainer"
        if self._folder is None or (not self._folder.exists() and takes_files(usual)):
            return usual
        make_private_dir(self._folder)
        log.info("runtime_folder", folder=str(self._folder), why=f"{self.user.pw_dir} takes no files")
        return self._folder

    @cached_property
    def env(self) -> dict[str, str]:
        """The environment of every call."""
        own = {"APPTAINER_CONFIGDIR": str(self._folder)} if self.config == self._folder else {}
        return _environment(self.user) | own

    def check_user(self) -> None:
        """Raises RuntimeUnavailable where the system does not know our user: the runtime starts nothing then."""
        if not self._known:
            raise RuntimeUnavailable(
                f"the engine's user {os.geteuid()} had no entry on this host (getent passwd) when the engine started:"
                " instances need one"
            )

    @property
    def program(self) -> str:
        """The program's path. Raises RuntimeUnavailable."""
        self.check_user()
        found = shutil.which("apptainer", path=PATH) or shutil.which("apptainer")
        if found is None:
            raise RuntimeUnavailable("Apptainer is not installed on this host")
        return found

    async def run(self, arguments: list[str]) -> CompletedProcess[bytes]:
        """Call the program. Raises RuntimeUnavailable where the host can't start it at the moment, or it hangs."""
        return await processes.call(arguments, self.env)

    async def list(self) -> dict[str, ListedInstance]:
        """The runtime's own list, by name. Raises RuntimeUnavailable.

        The runtime writes the record of an instance in place, and lists nothing at all while one is half written: so it
        is asked again. A record that stays so was left by a disk that was full or a start that was killed. It would
        hide all others for good, and tells of no instance itself: it is removed.
        """
        broken: set[_Broken] | None = None
        for seconds in ASKED_AGAIN:
            if (listed := _read_list(await self._ask())) is not None:
                self._check_records()
                return listed
            broken = self._broken_records() if broken is None else broken
            await trio.sleep(seconds)
        for record in (broken or set()) & self._broken_records():
            with suppress(OSError):
                record.path.unlink()
                log.warning("runtime_record_removed", path=str(record.path), why="it was not written to its end")
        answer = await self._ask()
        if (listed := _read_list(answer)) is None:
            log.warning("runtime_list_unreadable", words=answer.stderr[-2000:].decode(errors="replace"))
            raise RuntimeUnavailable("the runtime's list of instances can't be read", retry_after=30)
        return listed

    async def _ask(self) -> CompletedProcess[bytes]:
        return await self.run(list_argv(self.program))

    @property
    def _records(self) -> Path:
        """The folder in which the runtime keeps the records of this host's instances."""
        return self.config / "instances" / "app" / socket.gethostname() / self.user.pw_name

    def _check_records(self) -> None:
        """Raises RuntimeUnavailable where the records can't be read: the runtime lists none then, as if each instance
        had ended."""
        try:
            os.listdir(self._records)
        except FileNotFoundError:
            return  # no instance was started yet
        except OSError as error:
            raise RuntimeUnavailable(f"{self._records} can't be read: {reason(error)}", retry_after=30) from error

    def _broken_records(self) -> set[_Broken]:
        found = set()
        for path in self._records.glob("*/*.json"):
            with suppress(OSError):
                content = path.read_bytes()
                try:
                    msgspec.json.decode(content, type=msgspec.Raw)
                except msgspec.DecodeError:
                    found.add(_Broken(path, content))
        return found

    def logs(self, identity: str) -> tuple[str, str]:
        """Where the runtime is going to keep the logs, out and err. Once the instance runs, the runtime's list says
        it."""
        folder = f"{self.config}/instances/logs/{socket.gethostname()}/{self.user.pw_name}"
        return f"{folder}/{identity}.out", f"{folder}/{identity}.err"


def _read_list(answer: CompletedProcess[bytes]) -> dict[str, ListedInstance] | None:
    """The instances of the runtime's list, by name; None where it is none."""
    try:
        listing = msgspec.json.decode(answer.stdout, type=_Listing)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    return {entry.instance: entry for entry in listing.instances}


def takes_files(folder: Path) -> bool:
    """Whether a file can be made in the folder, or, where there is no such folder yet, in the one that it would be in.

    It can't where permissions or room are missing.
    """
    try:
        with tempfile.TemporaryFile(dir=folder if folder.exists() else folder.parent) as file:
            file.write(b"-")
            file.flush()
    except OSError:
        return False
    return True


def _own_user() -> tuple[pwd.struct_passwd, bool]:
    """The engine's user, and whether the system knows that user.

    It does not in a container that was started with a user by number, or while a directory server is down.
    """
    uid = os.geteuid()
    try:
        return pwd.getpwuid(uid), True
    except KeyError:
        return pwd.struct_passwd((str(uid), "", uid, os.getegid(), "", "/", "")), False


def _environment(user: pwd.struct_passwd) -> dict[str, str]:
    """The environment of the runtime. Nothing of the engine's own is in it, such as APPTAINER_BIND or secrets."""
    env = {"PATH": PATH, "HOME": user.pw_dir}
    run = Path(f"/run/user/{user.pw_uid}")
    if (run / "bus").exists():
        # The addresses of the user's systemd, which sets limits for an ordinary user.
        env |= {"XDG_RUNTIME_DIR": str(run), "DBUS_SESSION_BUS_ADDRESS": f"unix:path={run}/bus"}
    return env

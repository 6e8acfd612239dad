"""The folder in which an engine and the command keep their files, and what `~` stands for."""

from __future__ import annotations

import os
import pwd
from collections.abc import Mapping
from pathlib import Path

from hatchway.engine.base.errors import SettingRefused

NAME_IT = "set HATCHWAY_HOME to the folder that is to hold the engine's keys"


def home_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """The engine's folder: `HATCHWAY_HOME`, or `~/.hatchway`.

    Raises SettingRefused where there is no home folder to put it in, or it is another user's: keys are never written
    to where nobody looks for them.
    """
    named = environ.get("HATCHWAY_HOME")
    try:
        if named:
            return expanded(named, environ).absolute()
        home = user_folder(environ)
    except ValueError as fault:
        raise SettingRefused(f"{fault}: {NAME_IT}") from None
    _refuse_anothers(home)
    return home / ".hatchway"


def user_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """What `~` stands for: `HOME`, or without it what the system knows of the user. Raises ValueError in words."""
    told = environ.get("HOME")
    if told is None:
        try:
            told = pwd.getpwuid(os.getuid()).pw_dir
        except KeyError:
            raise ValueError(f"HOME is not set, and the user {os.getuid()} has no entry on this system") from None
    if not os.path.isabs(told):
        raise ValueError(f"HOME is {told!r}, which is no path from /" if told else "HOME is empty")
    return Path(told)


def expanded(path: str, environ: Mapping[str, str] = os.environ) -> Path:
    """`path` with the folder that a `~` or `~name` at its beginning stands for. Raises ValueError in words."""
    user, _, rest = path.partition("/")
    if not user.startswith("~"):
        return Path(path)
    if user == "~":
        return user_folder(environ) / rest
    try:
        return Path(pwd.getpwnam(user[1:]).pw_dir) / rest
    except KeyError:
        raise ValueError(f"there is no user {user[1:]!r} whose home folder {user} would be") from None


def _refuse_anothers(home: Path) -> None:
    """Raises SettingRefused where `home` is another user's, as root's is where sudo keeps HOME.

    That user could replace the files that root makes there, and could not use them.
    """
    try:
        owner = os.stat(home).st_uid
    except OSError:
        return  # making a folder there will fail, and say why
    if owner not in (0, os.geteuid()):
        raise SettingRefused(
            f"HOME is {home}, which belongs to the user {owner} and not to {os.geteuid()}: give HOME its own value"
            f" (sudo -H), or {NAME_IT}"
        )

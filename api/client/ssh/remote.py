"""The script that is run on the host: it finds the engine's command there and executes it."""

from __future__ import annotations

import base64
import secrets
import shlex
from typing import NamedTuple

FIND = r"""
umask 077
shell=${SHELL:-/bin/sh}
case ${shell##*/} in
  csh|tcsh) set -- "$shell" -c "if ( -r ~/.login ) source ~/.login >& /dev/null; echo; echo $mark; env" ;;
  *) set -- "$shell" -l -c "echo; echo $mark; env" ;;
esac
limit=$(command -v timeout) && set -- "$limit" 10 "$@"
told=$("$@" </dev/null 2>/dev/null | sed -n "/^$mark\$/,\$p")
value() { printf '%s\n' "$told" | sed -n "s/^$1=//p" | head -n 1; }
path=$(value PATH)
[ -n "$path" ] && PATH=$path:$PATH && export PATH
[ -n "$LD_LIBRARY_PATH" ] || LD_LIBRARY_PATH=$(value LD_LIBRARY_PATH)
[ -n "$LD_LIBRARY_PATH" ] && export LD_LIBRARY_PATH || unset LD_LIBRARY_PATH
[ -n "$HATCHWAY_HOME" ] || HATCHWAY_HOME=$(value HATCHWAY_HOME)
[ -n "$HATCHWAY_HOME" ] && export HATCHWAY_HOME || unset HATCHWAY_HOME
runtime=$HOME/.hatchway/runtime
found=
[ -n "$wanted" ] && case $wanted in
  /*) found=$wanted ;;
  "~/"*) found=$HOME/${wanted#"~/"} ;;
  *) found=$(command -v "$wanted") ;;
esac
if [ -z "$wanted" ]; then
  [ -n "$upgrade" ] || found=$(command -v hatchway)
  [ -x "$runtime/$version/bin/hatchway" ] && [ -n "$upgrade" -o -z "$found" ] && found=$runtime/$version/bin/hatchway
  [ -n "$found$upgrade" ] || found=$(ls -d "$runtime"/*/bin/hatchway 2>/dev/null | sort -V | tail -n 1)
  [ -n "$found$upgrade" ] || found=$(head -n 1 "${HATCHWAY_HOME:-$HOME/.hatchway}/engine.lock" 2>/dev/null)
fi
"""
"""Sets `found`, with PATH, HATCHWAY_HOME, and the LD_LIBRARY_PATH of a loaded module, as a login shell has them. Where
there is no command in PATH or `runtime`, it is the one that the engine's lock names: the engine that runs there may be
of an environment in no PATH. Wants `mark`, `version`, `wanted`, `upgrade`."""

ATTACH = r"""
[ -n "$found" ] && [ -x "$found" ] || { printf '\n%s none\n' "$mark"; exit 0; }
printf '\n%s found %s\n' "$mark" "$found"
exec "$found" engine attach $flags
"""


class RemoteScript(NamedTuple):
    """A command line for the host's login shell, and the marker that begins each line which is meant for us."""

    command: str
    mark: str


def script(*parts: str, **values: str) -> RemoteScript:
    """`parts` as one script, run by `sh` with these variables and `mark`."""
    mark = f"hatchway-{secrets.token_hex(8)}"
    sets = "".join(f"{name}={shlex.quote(value)}\n" for name, value in {"mark": mark, **values}.items())
    text = base64.b64encode((sets + "".join(parts)).encode()).decode()
    # Letters that every login shell leaves alone; the script's own input stays whoever asked's.
    return RemoteScript(f"exec /bin/sh -c 'eval \"$(echo {text} | base64 -d)\"'", mark)


def attach_script(version: str, wanted: str | None, flags: str, *, upgrade: bool = False) -> RemoteScript:
    """Find the command and become `engine attach`. `wanted` is the setting's command, looked for where it is None."""
    upgrading = "yes" if upgrade else ""
    return script(FIND, ATTACH, version=version, wanted=wanted or "", upgrade=upgrading, flags=flags)

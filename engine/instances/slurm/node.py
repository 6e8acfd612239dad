"""Runs an instance in a Slurm job, on the job's node. A program on the standard library alone, from Python 3.9 on.

It reads its plan from the folder that it is given, and leaves there what the engine looks for: the runtime's messages,
the runtime's entry once the instance runs, or the exit code of a start that failed. It ends when all processes of the
instance have ended.
"""

from __future__ import annotations

import ctypes
import json
import os
import runpy
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from typing import Any

PLAN, WORDS, STARTED, FAILED, ENDED = "plan.json", "start.log", "started.json", "failed", "ended"
"""Files in the folder: the plan; the runtime's messages; its entry; its exit code if it failed; that all is over."""

CLEARED_WITHIN = 5.0
"""Seconds that the processes of an ended instance have to end too, before they are killed."""

_DEATH_SIGNAL, _SUBREAPER = 1, 36
"""PR_SET_PDEATHSIG and PR_SET_CHILD_SUBREAPER of prctl(2)."""

Plan = dict[str, Any]
Process = tuple[int, str]
"""A pid, and the tick in which that process began."""


def main() -> int:
    folder = sys.argv[1]
    with open(os.path.join(folder, PLAN), encoding="utf-8") as file:
        plan: Plan = json.load(file)
    # As a subreaper, this process becomes the parent of whatever the runtime detaches, and so sees its end.
    _prctl(_SUBREAPER, 1)
    guard = os.getpid()
    if os.fork():
        return _guard()
    _prctl(_DEATH_SIGNAL, signal.SIGTERM)
    _prctl(_SUBREAPER, 1)
    return run(folder, plan) if os.getppid() == guard else 1


def _guard() -> int:
    """Fork: the child goes on to run the instance, and the parent kills what the child leaves, also where it is killed.

    Returns 0 in the child.
    """
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    code = os.waitstatus_to_exitcode(os.wait()[1])
    _clear(0 if code == 0 else CLEARED_WITHIN)
    return code if code >= 0 else 128 - code


def run(folder: str, plan: Plan) -> int:
    """Run the instance to its end. Returns 0 where it ran, else the runtime's exit code."""
    env = {**allotted(os.environ), **plan["env"]}
    program = shutil.which("apptainer", path=env["PATH"]) or "apptainer"
    for name in ("start", "list", "exec", "stop"):
        plan[name][:1] = [program] * len(plan[name][:1])
    told: list[int] = []
    signal.signal(signal.SIGTERM, lambda *_: told.append(1))
    code, entry = _start(folder, plan, env)
    if entry is None:
        _write(folder, FAILED, str(code))
        _clear(0)
        return code or 1
    watcher = _watcher(folder, plan, env, entry)
    node = os.environ.get("SLURMD_NODENAME") or os.uname().nodename
    _write(folder, STARTED, json.dumps({"entry": entry, "node": node}))
    _wait(plan, env, _process(entry["pid"]), _process(watcher) if plan["exec"] else None, told)
    _clear(CLEARED_WITHIN)
    _write(folder, ENDED, "")
    return 0


def _start(folder: str, plan: Plan, env: dict[str, str]) -> tuple[int, Any]:
    """Start the instance. Returns the runtime's exit code, and its entry where the instance runs and has bound what was
    checked."""
    binds = runpy.run_path(os.path.join(folder, "binds.py"))
    with open(os.path.join(folder, WORDS), "ab") as words:
        # The engine checked the sources before the job was queued. Since then a link may have been put in their place.
        why = binds["moved"](plan["binds"])
        code = 1 if why else _call(plan["start"], env, words).returncode
        entry = _listed(plan, env) if code == 0 else None
        if entry is not None:
            why = binds["differs"](entry["pid"], plan["binds"])
        words.write(why.encode())
    return (1, None) if why else (code, entry)


def allotted(environ: Any) -> dict[str, str]:
    """The variables of the job that the instance needs: which GPUs are its own, where its scratch folder is."""
    found = {name: environ[name] for name in ("TMPDIR",) if environ.get(name)}
    gpus = ("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")
    return {**found, **{f"APPTAINERENV_{name}": environ[name] for name in gpus if name in environ}}


def _listed(plan: Plan, env: dict[str, str]) -> Any:
    """The runtime's entry for the instance, None where it has ended already."""
    with suppress(ValueError, KeyError):
        for entry in json.loads(_call(plan["list"], env, None).stdout)["instances"]:
            if entry["instance"] == plan["identity"]:
                return entry
    return None


def _watcher(folder: str, plan: Plan, env: dict[str, str], entry: Any) -> int:
    """Start the command's watcher, the same program as for instances on the engine's host. Returns its pid."""
    told = {"exec": plan["exec"], "stop": plan["stop"], "env": env, "pid": entry["pid"]}
    told["ticks"] = _process(entry["pid"])[1]
    told.update(logs=[(entry["logOutPath"], 0), (entry["logErrPath"], 0)], most=plan["log_bytes"])
    told.update(exit=os.path.join(folder, "exit"))
    argv = [sys.executable, "-I", "-S", os.path.join(folder, "watcher.py"), folder]
    popen = subprocess.Popen(argv, env=env, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, cwd="/")  # noqa: S603
    assert popen.stdin
    popen.stdin.write(json.dumps(told).encode())
    popen.stdin.close()
    popen.returncode = 0  # `_reap` waits for its end; Popen must not
    return popen.pid


def _call(argv: list[str], env: dict[str, str], out: Any) -> Any:
    """Run a command line of the plan's, without a shell. Both outputs go to `out`, or are kept where that is None."""
    out = subprocess.PIPE if out is None else out
    return subprocess.run(argv, env=env, cwd="/", stdin=subprocess.DEVNULL, stdout=out, stderr=out, check=False)  # noqa: S603


def _wait(plan: Plan, env: dict[str, str], instance: Process, watcher: Process | None, told: list[int]) -> None:
    """Wait until the instance or its command's watcher has ended; stop the instance when a signal in `told` says so."""
    stopped = False
    while _is_alive(instance) and (watcher is None or _is_alive(watcher)):
        if told and not stopped:
            stopped = True
            _call(plan["stop"], env, sys.stderr)
        _reap()
        time.sleep(0.2)
    if _is_alive(instance):
        _call(plan["stop"], env, sys.stderr)


def _stat(pid: Any) -> list[str]:
    """The fields of /proc/PID/stat after the program's name; none where there is no such process."""
    with suppress(OSError), open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
        return file.read().rpartition(")")[2].split()
    return []


def _process(pid: int) -> Process:
    return pid, (_stat(pid) or [""] * 20)[19]


def _is_alive(process: Process) -> bool:
    """Whether the process runs. The tick in which it began tells it from a later one of the same pid."""
    pid, ticks = process
    fields = _stat(pid)
    return bool(fields) and fields[0] not in ("Z", "X") and fields[19] == ticks


def _reap() -> bool:
    """Reap children that have ended. Returns whether any child is left."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return False
    return True


def _clear(seconds: float) -> None:
    """Wait until all processes of the job have ended; kill those that have not after `seconds`. All of them are
    children of this process or become so, since it is the subreaper."""
    until = time.monotonic() + seconds
    while _reap():
        if time.monotonic() >= until:
            for child in _children():
                with suppress(ProcessLookupError):
                    os.kill(child, signal.SIGKILL)
        time.sleep(0.05)


def _children() -> list[int]:
    own = str(os.getpid())
    return [int(name) for name in os.listdir("/proc") if name.isdigit() and _stat(name)[1:2] == [own]]


def _write(folder: str, name: str, text: str) -> None:
    """Write a file, whole or not at all: the engine may read it at any moment, on another host."""
    path = os.path.join(folder, name)
    fd = os.open(path + ".new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    os.write(fd, text.encode())
    os.fsync(fd)
    os.close(fd)
    os.rename(path + ".new", path)


def _prctl(option: int, value: int) -> None:
    ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


if __name__ == "__main__":
    sys.exit(main())

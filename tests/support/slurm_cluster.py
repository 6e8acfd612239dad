"""A real Slurm of five nodes on this host, all of it the calling user's: munged, slurmctld, a slurmd for each node."""

from __future__ import annotations

import json
import os
import pwd
import secrets
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tests.support.ports import free_port

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
NODES = ("first", "second", "third", "fourth", "fifth")
NODE_CPUS, NODE_MEMORY, NODE_GPUS = 8, 8000, 2
"""What each node says it has; memory in MiB. GPUs has the first alone."""

GPU_DEVICES = ("/dev/null", "/dev/zero")
"""Slurm wants a device for each GPU, and there are none here."""

SILENT_NODE = 15
"""Seconds until a node that does not answer is down."""

CONF = """
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/linux
JobAcctGatherFrequency=task=1
JobAcctGatherParams=OverMemoryKill
GresTypes=gpu
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
PreemptType=preempt/partition_prio
PreemptMode=CANCEL
MpiDefault=none
ReturnToService=2
KillWait=5
SlurmdTimeout={silent}
MessageTimeout=5
MailProg=/bin/true
EnforcePartLimits=ALL
MaxJobCount={most_jobs}
MinJobAge={forgets}
SchedulerParameters=sched_interval=1,batch_sched_delay=0
SlurmdParameters=config_overrides
DefMemPerNode=200
{nodes}
PartitionName=main Nodes=first Default=YES MaxTime=INFINITE State=UP
PartitionName=short Nodes=first MaxTime=60 State=UP
PartitionName=pair Nodes=first,second MaxTime=INFINITE State=UP
PartitionName=third Nodes=third MaxTime=INFINITE State=UP
PartitionName=fourth Nodes=fourth MaxTime=INFINITE State=UP
PartitionName=fifth Nodes=fifth MaxTime=INFINITE State=UP
PartitionName=urgent Nodes=fifth PriorityTier=2 MaxTime=INFINITE State=UP
"""


class Cluster:
    """Running daemons. `conf` is what SLURM_CONF has to name."""

    def __init__(self, folder: Path, *, most_jobs: int = 1000, forgets: int = 300) -> None:
        self.folder, self.conf, self.host = folder, folder / "slurm.conf", socket.gethostname().partition(".")[0]
        for name in ("state", "munge", *(f"spool/{node}" for node in NODES)):
            (folder / name).mkdir(parents=True)
        (folder / "munge").chmod(0o711)  # munged wants its clients to reach the socket
        (folder / "munge.key").touch(mode=0o600)
        (folder / "munge.key").write_bytes(secrets.token_bytes(128))
        ports = [free_port() for _ in range(1 + len(NODES))]
        names = {"folder": folder, "host": self.host, "user": _user(), "most_jobs": most_jobs, "forgets": forgets}
        nodes = "\n".join(map(_node, NODES, ports[1:]))
        self.conf.write_text(CONF.format(**names, ports=ports, nodes=nodes, silent=SILENT_NODE))
        gpus = "".join(f"NodeName={NODES[0]} Name=gpu File={device}\n" for device in GPU_DEVICES)
        (folder / "gres.conf").write_text(gpus)
        self._daemons: dict[str, subprocess.Popen[bytes]] = {}

    def up(self) -> None:
        """Start what does not run, and wait until every node takes jobs."""
        place = {"key-file": "munge.key", "socket": "munge/socket", "pid-file": "munge.pid", "log-file": "munge.log"}
        options = [f"--{name}={self.folder / path}" for name, path in place.items()]
        self._start("munged", "munged", "-F", *options, f"--seed-file={self.folder}/munge.seed", "--num-threads=2")
        self.until(lambda: (self.folder / "munge" / "socket").exists())
        self.start_controller()
        for node in NODES:
            self.start_node(node)
        self.until(lambda: self._states() == {"idle"})

    def _states(self) -> set[str]:
        return set(self.say("sinfo", "--noheader", "--Node", "--format=%t", check=False).split())

    def start_node(self, node: str) -> None:
        """Its slurmd. What an earlier one left running there, slurmctld clears away if it gave it up meanwhile."""
        self._start(node, "slurmd", "-D", "-f", str(self.conf), "-N", node)

    def kill_node(self, node: str) -> None:
        """Its slurmd is gone from one moment to the next, and says no word."""
        daemon = self._daemons.pop(node)
        daemon.kill()
        daemon.wait()

    def start_controller(self, *options: str) -> None:
        """slurmctld, unless it runs, with the state that the one before it saved."""
        if "slurmctld" in self._daemons:
            return
        self._start("slurmctld", "slurmctld", "-D", "-f", str(self.conf), *options)
        self.until(lambda: "UP" in self.say("scontrol", "ping", check=False))

    def stop_controller(self) -> None:
        """slurmctld ends in order; jobs run on."""
        self._stop("slurmctld")

    def down(self) -> None:
        """End every daemon, jobs first."""
        if "slurmctld" in self._daemons:
            self.say("scancel", "--full", f"--user={_user()}", check=False)
        for name in reversed(list(self._daemons)):
            self._stop(name)

    def _start(self, name: str, command: str, *arguments: str) -> None:
        program = shutil.which(command, path=PATH)
        assert program, command
        with open(self.folder / f"{name}.out", "ab") as out:
            self._daemons[name] = subprocess.Popen(
                [program, *arguments], env=self.env, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=out, stderr=out
            )

    def _stop(self, name: str) -> None:
        daemon = self._daemons.pop(name)
        daemon.terminate()
        try:
            daemon.wait(20)
        except subprocess.TimeoutExpired:
            daemon.kill()
            daemon.wait()

    @property
    def env(self) -> dict[str, str]:
        return {"PATH": PATH, "HOME": str(self.folder), "SLURM_CONF": str(self.conf)}

    def say(self, *command: str, check: bool = True) -> str:
        """What one of Slurm's programs says."""
        done = subprocess.run(command, env=self.env, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0 or not check, (command, done.stdout, done.stderr)
        return done.stdout

    def jobs(self) -> dict[str, Any]:
        """The latest job of each name, as squeue has it."""
        return {job["name"]: job for job in json.loads(self.say("squeue", "--json"))["jobs"]}

    def drain(self) -> None:
        """On the first node no job starts until `resume`; those that run go on."""
        self.say("scontrol", "update", f"NodeName={NODES[0]}", "State=DRAIN", "Reason=test")

    def resume(self) -> None:
        self.say("scontrol", "update", f"NodeName={NODES[0]}", "State=RESUME", check=False)

    def until(self, true: Callable[[], bool], seconds: float = 60) -> None:
        end = time.monotonic() + seconds
        while not true():
            assert time.monotonic() < end, self.logs()
            time.sleep(0.05)

    def logs(self) -> str:
        """What the daemons said, the end of it."""
        return "\n".join(f"{path.name}: {path.read_text(errors='replace')[-1500:]}" for path in self._logs())

    def _logs(self) -> list[Path]:
        return [*self.folder.glob("*.log"), *self.folder.glob("*.out")]


@contextmanager
def running_cluster(**settings: int) -> Iterator[Cluster]:
    """A cluster, in a folder with a short name: a socket's path has room for 107 bytes."""
    folder = Path(tempfile.mkdtemp(prefix="hatchway-slurm-"))
    folder.chmod(0o755)
    cluster = Cluster(folder, **settings)
    try:
        cluster.up()
        yield cluster
    finally:
        cluster.down()
        with suppress(OSError):
            shutil.rmtree(folder)


def _node(name: str, port: int) -> str:
    gpus = f" Gres=gpu:{NODE_GPUS}" if name == NODES[0] else ""
    return (
        f"NodeName={name} NodeAddr=127.0.0.1 Port={port} CPUs={NODE_CPUS} RealMemory={NODE_MEMORY}{gpus} State=UNKNOWN"
    )


def _user() -> str:
    return pwd.getpwuid(os.geteuid()).pw_name

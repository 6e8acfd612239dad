"""Instances as jobs of a Slurm cluster. It knows nothing of sessions and HTTP.

Who speaks. The engine speaks to Slurm by its programs: `sbatch`, `squeue`, `scancel` (`jobs.py`). To the program that
runs an instance on its node (`node.py`) it speaks by files alone, in a folder that all nodes have under the same path.
Nobody connects to anybody: a node may have no way to the engine.

What is in the folder. `NAME/key` holds the key of that instance's present start, a random one. `NAME/KEY/` has all that
belongs to this start. From the engine: `plan.json` (the runtime's command lines, the variables, what is bound, and how
the sources looked when they were checked), the programs `node.py`, `watcher.py` and `binds.py`, and `job.sh`, which is
all that Slurm gets. Of the submission: `submitter` (the pid and the beginning of our `sbatch`), `job` (the number that
it printed), `submit.log`. From the node: `start.log` (the runtime's messages), then `started.json` (the runtime's entry
and the node) or `failed` (an exit code), at last `ended`; the watcher's `exit` (the command's exit code); the logs;
`job.log`, in which Slurm writes why it ended a job. Files from the node that are read as a whole are written beside and
renamed, so that whoever reads them reads them whole.

A start, in order.
1. The engine writes the folder, and `NAME/key` last: from then on there may be a job.
2. It runs `sbatch` with the comment `hatchway:KEY`, for at most 30 seconds, and keeps the number.
3. It watches the job by one `squeue` for all jobs, every second to every ten. While the job waits, the start is queued.
4. On the node `job.sh` runs `node.py`: a guard and, below it, the program itself. That one checks that what is bound is
   still what the engine checked, has Apptainer start the instance, starts the watcher, which runs the command if there
   is one, and writes `started.json`; or it writes `failed` and ends.
5. The engine looks into the folder four times a second until one of the two is there, or the job is over and five
   seconds have passed, in which a shared file system may still show what was written.

A stop, in order. `scancel` sends SIGTERM: the program has Apptainer stop the instance, which has ten seconds, waits for
all its processes, and writes `ended`. A kill is `scancel --full --signal=KILL`. Either is sent again until Slurm has
taken it. An instance has ended when its job has.

What each side may assume. The engine: a job with its number is its own only if the comment has its key, or, where the
site writes comments of its own, if the script's path holds the key; numbers begin anew after a cold start of Slurm. An
end is what Slurm says, and where it says nothing, what the folder has. The node: the folder is private to the engine's
user and was whole before the job was queued; the program needs Python 3.9 and Apptainer, and nothing of Hatchway's is
installed. Values of variables are in `plan.json` alone: neither in a command line nor in Slurm's own files.

What happens when one dies.
- The engine: jobs go on. The next run reads `NAME/key`, waits for an `sbatch` that may still run, finds the job by its
  number or by its comment, and goes on where the folder shows that the start is.
- `sbatch`, or Slurm does not answer it: there may be a job or none, which is said (`job_unsure`). The start is undone
  as soon as `squeue` tells.
- slurmctld: what runs goes on; a stop is answered 503 within three seconds and carried out once slurmctld is back.
- The job, for whatever reason (time, memory, its node, somebody's `scancel`): the instance has failed, with the cause
  that Slurm gives. Slurm does not queue it again.
- The program on the node: its guard waits for what it leaves, and kills what has not ended in five seconds. Where the
  guard is killed, the program gets SIGTERM and stops the instance.
- Apptainer's instance by itself: the program sees its end, clears what it left, and ends, and the job with it.
"""

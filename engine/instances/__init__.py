"""The instance service: what may be asked for, starts, ends and logs. The platforms are in apptainer/ and slurm/."""

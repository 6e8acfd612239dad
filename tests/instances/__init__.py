"""The instance service, Apptainer and Slurm."""

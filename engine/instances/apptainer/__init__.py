"""Instances as containers of Apptainer on this host. It knows nothing of sessions, HTTP and Slurm."""

"""Instances as jobs of a Slurm cluster. It knows nothing of sessions and HTTP."""

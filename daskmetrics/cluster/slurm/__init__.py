"""Slurm jobs as Dask workers: Slurm's commands, job scripts, and the supervisor that replaces lost jobs."""

"""Slurm jobs as Dask workers: what runs, what is submitted, and what replaces what was lost."""

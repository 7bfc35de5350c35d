"""Jobs as Dask workers: Slurm's commands, job scripts, and the supervisor that replaces lost jobs.

============= ===================================================================
`_cluster`    the cluster, which starts the supervisor
`_supervisor` keeps the number of workers: reads the queue and submits
`_jobs`       the jobs of a pool and the actions on them, decided from a snapshot
`commands`    Slurm's commands and their output
`script`      the command of a worker, and the script of its job
`allocation`  workers inside the present Slurm job
`driver_job`  the driver as a Slurm job
`refusals`    why Slurm would refuse the jobs of a profile, and what helps
`partitions`  partitions, limits, nodes and accounts of a site, and a proposed profile for it
============= ===================================================================
"""

__all__: list[str] = []

"""Jobs as Dask workers: Slurm's commands, job scripts, and the supervisor that replaces lost jobs.

============= ======================================================================
`_cluster`    the cluster: dask-jobqueue's, with jobs managed by our supervisor
`_supervisor` keeps the number of workers: reads the queue and submits jobs
`_jobs`       the jobs of a pool and the actions on them, decided from a snapshot
`_batch`      what the supervisor needs of a batch system
`_slurm`      Slurm as this batch system
`_script`     the script of a worker's job
`_commands`   runs Slurm's commands about jobs and parses their output
`_allocation` workers inside the present Slurm job
`_driver_job` the driver as a Slurm job
`_partitions` partitions, limits, nodes and accounts of a site
`_profile`    a proposed profile for a site
`_state`      how busy a Slurm is
============= ======================================================================
"""

__all__: list[str] = []

"""The ranks of a training program: a process group with one rank process per Dask worker.

| file | what it holds |
|---|---|
| `ranks` | which worker runs which rank, and what a rank process is given; without Dask |
| `_diagnosis` | which rank failed first, from what each reported; without Dask |
| `_worker` | what runs on a worker: it starts a rank, relays its reports, and ends it |
| `driver` | what runs in the driver: it starts a process group, watches it, and restarts it |
"""

__all__: list[str] = []

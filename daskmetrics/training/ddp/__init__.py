"""The ranks of a training program, one on each Dask worker.

| file | what it holds |
|---|---|
| `ranks` | which worker runs which rank, and what a rank is given; without Dask |
| `remedies` | what is said where ranks are late, and what helps against an error |
| `_worker` | what runs on a worker: it starts a rank, relays its progress, and judges its end |
| `driver` | what runs in the driver: it starts a process group, names its first failure, and restarts it |
"""

__all__: list[str] = []

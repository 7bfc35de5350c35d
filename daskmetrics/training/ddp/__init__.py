"""A gang: one rank process per Dask worker, all of them or none.

| file | what it holds |
|---|---|
| `orders` | what a rank is told to do, and who gets which rank; without Dask |
| `blame` | which rank failed first, from what was heard of each; without Dask |
| `hosting` | what runs on a worker: it starts a rank, relays what it says, and ends it |
| `driving` | what runs in the driver: a gang started, watched, and started again |
"""

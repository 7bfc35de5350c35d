"""Experiments: a configuration becomes work units on a Dask cluster, and their records a recommendation.

| file | what it holds |
|---|---|
| `_prepare` | a configuration with all names resolved and checked |
| `_run` | a run from its configuration to its recommendation |
| `_measure`, `_search` | the two sources of work units |
| `_fresh` | finalists on items that were kept back from the search |
| `_worker`, `_embeddings` | the functions that run on workers, and what they return |
| `_train` | suites that are trained by process groups |
| `_estimate` | what a run will cost and do |
| `_prefetch`, `_transfer` | downloads; export and import of scores |
| `_maintain` | verify, repair, retry and unlock a run |
| `_progress` | progress on the user's screen |
"""

from daskmetrics.experiment._prepare import Experiment, prepare
from daskmetrics.experiment._progress import Display
from daskmetrics.experiment._run import RunResult, run

__all__ = ["Display", "Experiment", "RunResult", "prepare", "run"]

"""Experiments: a configuration becomes work units on a Dask cluster, and their records a recommendation.

| file | what it holds |
|---|---|
| `_arguments` | arguments in Python as a configuration |
| `_clients` | what a run needs of workers that it did not start, checked before anything is submitted |
| `_prepare` | a configuration with all names resolved and checked |
| `_run` | a run from its configuration to its recommendation |
| `_measure`, `_search` | the two sources of work units |
| `_fresh` | finalists on items that were kept back from the search |
| `_worker`, `_embeddings` | the functions that run on workers, and what they return |
| `_watch`, `_watch_answer` | a run whose grid grows; what each of its rounds says |
| `_watch_log` | the events of a watch, for other programs; its rounds in MLflow and W&B |
| `_watch_process` | a watch beside a training loop, and beside a `Trainer` |
| `_train` | suites that are trained by process groups |
| `_direct` | one model in this process: its vectors, metrics and scores |
| `_open` | what a user calls a model, as an encoder |
| `_estimate` | what a run will cost and do |
| `_prefetch`, `_transfer` | downloads before a run; export and import of scores |
| `_rolling`, `_download` | checkpoints on a disk that is smaller than the suite; the download of one |
| `_maintain` | verify, repair, retry and unlock a run |
"""

from daskmetrics.execution._display import Display
from daskmetrics.experiment._arguments import configured
from daskmetrics.experiment._prepare import Experiment, prepare
from daskmetrics.experiment._run import RunResult, run

__all__ = ["Display", "Experiment", "RunResult", "configured", "prepare", "run"]

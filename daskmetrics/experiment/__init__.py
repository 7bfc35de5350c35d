"""Experiments: a configuration becomes work units on a Dask cluster, and their records a
recommendation.

| file | what it holds |
|---|---|
| `_arguments` | arguments in Python as a configuration |
| `preparation` | a configuration with all names resolved and checked |
| `_run` | a run from its configuration to its recommendation |
| `given_workers` | whether workers that a user gives can run the units |
| `phases` | the phases of a run on its workers: train, measure, search, fresh items |
| `measure`, `search` | the two sources of work units, and what is left of each |
| `problem` | what a search chooses from, what scores cost, and what it may spend |
| `score` | the unit that scores an arm on a task |
| `fresh` | the finalists of a search, scored on items kept back |
| `_worker` | the functions that run on workers, and the vectors that they pass on |
| `watch` | a run whose grid grows |
| `_trackers` | scores in MLflow and W&B |
| `watch_process` | a watch beside a training loop, and beside a `Trainer` |
| `train` | what is trained by process groups: suites, and programs of the user's own |
| `mapping` | any function over any items, on given workers or on this machine |
| `direct` | one model in this process: its vectors, metrics and scores |
| `encoders` | encoders of a user's own, and what workers need of them |
| `items` | what encoders read of an item: its text, or what is in its file |
| `vectors` | vectors that exist, and the task that their labels make |
| `prefetch` | downloads before a run, and what those beside it took |
| `maintenance` | verify, repair and retry a run |
"""

from typing import TYPE_CHECKING

from daskmetrics.core import on_first_use

if TYPE_CHECKING:
    from daskmetrics.execution.display import Display
    from daskmetrics.experiment._arguments import configured
    from daskmetrics.experiment._run import run
    from daskmetrics.experiment.preparation import Experiment, prepare

__all__ = ["Display", "Experiment", "configured", "prepare", "run"]

_PLACES = {
    "Display": "daskmetrics.execution.display:Display",
    "Experiment": "daskmetrics.experiment.preparation:Experiment",
    "configured": "daskmetrics.experiment._arguments:configured",
    "prepare": "daskmetrics.experiment.preparation:prepare",
    "run": "daskmetrics.experiment._run:run",
}
# commands that only read a run need no Dask
__getattr__ = on_first_use(__name__, _PLACES)

"""Where the domain meets Dask: what a configuration asks for becomes work units, and their records an answer.

`prepare` checks everything before anything starts; `measuring` and `searching` are the two sources of work; `work`
holds the functions that run on workers; `run` walks through all of it.
"""

from daskmetrics.experiment.prepare import Experiment, prepare
from daskmetrics.experiment.progress import Display
from daskmetrics.experiment.run import Outcome, run

__all__ = ["Display", "Experiment", "Outcome", "prepare", "run"]

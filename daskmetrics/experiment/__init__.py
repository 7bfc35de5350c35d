"""Where the domain meets Dask: what a configuration asks for becomes work units, and their records an answer.

`prepare` checks everything before anything starts; `measuring` and `searching` are the two sources of work; `work`
holds the functions that run on workers, `embeddings` what they hand on; `run` walks through all of it. `fetching` gets
what is not here yet, `exchange` carries scores between a run and others, `seen` tells what tasks have cost.
"""

from daskmetrics.experiment._prepare import Experiment, prepare
from daskmetrics.experiment._progress import Display
from daskmetrics.experiment._run import Outcome, run

__all__ = ["Display", "Experiment", "Outcome", "prepare", "run"]

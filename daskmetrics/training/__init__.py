"""Training: programs of the user's own on ranks, and of suites from a recipe to checkpoints that
transformers loads, by one process or a process group.

| file | what it holds |
|---|---|
| `data` | the corpus, its tokenizer, its tokens as a memory-mapped array, the windows of a step, epochs |
| `_learning` | the model, the ranks that share a step, the loop over the steps, checkpoints |
| `suite` | the folder of a suite: its complete revisions, its resume state; its size |
| `_probes` | short measurements by the ranks: exchange of gradients, loaders, precision |
| `recipe` | the built-in recipe as a training program of several ranks |
| `progress` | how far a program is, as it reports or prints it |
| `_rank` | the start of a program as one rank; without Dask |
| `ddp` | the ranks of a program on Dask workers: started, watched, diagnosed, started again |
"""

from typing import TYPE_CHECKING

from daskmetrics.core import on_first_use
from daskmetrics.training.suite import is_complete, recipe_key, revisions, summary

if TYPE_CHECKING:
    from daskmetrics.training._learning import train_to

__all__ = ["is_complete", "recipe_key", "revisions", "summary", "train_to"]

# needs torch
__getattr__ = on_first_use(__name__, {"train_to": "daskmetrics.training._learning:train_to"})

"""Training of suites: from a recipe to checkpoints that transformers loads, by one process or a
process group.

| file | what it holds |
|---|---|
| `_texts`, `_tokenizer`, `data` | the corpus, its tokens, and both as memory-mapped arrays |
| `_networks`, `_learning` | the model and its loss; optimizer steps and their learning rate |
| `_distributed` | the ranks that share a step |
| `_stage` | a copy of the tokens on the node's own disk |
| `_loaders` | processes that read the examples |
| `suite` | the folder of a suite: its complete revisions, its resume state |
| `estimate` | parameters, memory and disk of a recipe |
| `_probes`, `traffic` | short measurements by the ranks; how long the exchange of gradients takes |
| `_rank` | one process of a process group; it uses torch and not Dask |
| `ddp` | the process group on Dask workers: started, watched, diagnosed, restarted |
"""

from typing import TYPE_CHECKING

from daskmetrics.core.lazy import on_first_use
from daskmetrics.training.suite import is_complete, recipe_key, revisions, summary

if TYPE_CHECKING:
    from daskmetrics.training._learning import train_to

__all__ = ["is_complete", "recipe_key", "revisions", "summary", "train_to"]

# needs torch
__getattr__ = on_first_use(__name__, {"train_to": "daskmetrics.training._learning:train_to"})

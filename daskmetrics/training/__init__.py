"""Training of suites: from a recipe to checkpoints that transformers loads, by one process or a process group.

| file | what it holds |
|---|---|
| `_texts`, `_tokenizer`, `_data` | the corpus, its tokens, and both as memory-mapped arrays |
| `_networks`, `_learning` | the model and its loss; one optimizer step |
| `_schedule`, `_distributed` | the learning rate of a step; the ranks that share it |
| `_stage` | a copy of the tokens on the node's own disk |
| `_loaders` | processes that read the examples |
| `_suite` | the folder of a suite: its complete revisions, its resume state |
| `_estimate` | parameters, memory and disk of a recipe |
| `_probes`, `_traffic` | short measurements by the ranks; how long the exchange of gradients takes |
| `_rank` | one process of a process group; it uses torch and not Dask |
| `ddp` | the process group on Dask workers: started, watched, diagnosed, restarted |
"""

from daskmetrics.training._suite import is_complete, recipe_key, revisions, summary, train_to

__all__ = ["is_complete", "recipe_key", "revisions", "summary", "train_to"]

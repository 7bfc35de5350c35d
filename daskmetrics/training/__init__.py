"""Training of suites: a recipe in, checkpoints that any library loads out; by one process or a gang of them.

| file | what it holds |
|---|---|
| `texts`, `tokenizer`, `data` | the corpus, its tokens, and both as arrays that all ranks map |
| `batches`, `schedule` | which examples and which learning rate make up step n |
| `networks`, `learning`, `world` | the model and its loss; one optimizer step; the ranks that take it together |
| `loaders` | who reads the examples |
| `suite`, `parts` | the folder of a suite: what is complete, and how it stays whole |
| `plan` | what training would need, as numbers |
| `rank` | one process of a gang; it knows torch and not Dask |
| `gang` | the gang on Dask's workers: started, watched, blamed, started again |
"""

from daskmetrics.training._suite import is_complete, recipe_key, revisions, summary, train_to

__all__ = ["is_complete", "recipe_key", "revisions", "summary", "train_to"]

"""Pretraining of small GPT-NeoX suites: a recipe in, log-spaced checkpoints that any library loads out.

| file | what it holds |
|---|---|
| `suite` | the folder of a suite: which revisions, what is complete, training up to the next one |
| `learning` | one optimizer step and the learner's state; the only file that imports torch |
| `batches` | which tokens make up step n |
| `tokenizer` | the byte-level BPE |
"""

from daskmetrics.training.suite import is_complete, recipe_key, revisions, train_to

__all__ = ["is_complete", "recipe_key", "revisions", "train_to"]

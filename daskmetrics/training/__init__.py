"""The built-in training program, and the ranks of any program.

| file | what it holds |
|---|---|
| `recipe` | the built-in program: a GPT-NeoX, its steps, its checkpoints and states |
| `data` | its corpus: texts, tokenizer, tokens as a memory-mapped array, the windows of a step |
| `suite` | the folder of a suite: its revisions, which of them are complete, its size |
| `progress` | how far a program is, as it reports it |
| `printed` | the same, as the bars that it prints say |
| `_rank` | the start of a program as one rank; without Dask |
| `ddp` | the ranks of a program on Dask workers: started, watched, diagnosed, started again |
"""

from typing import TYPE_CHECKING

from daskmetrics.core import on_first_use
from daskmetrics.training.suite import is_complete, recipe_key, revisions, summary, trained_at

if TYPE_CHECKING:
    from daskmetrics.training.recipe import train

__all__ = ["is_complete", "recipe_key", "revisions", "summary", "train", "trained_at"]

# needs torch
__getattr__ = on_first_use(__name__, {"train": "daskmetrics.training.recipe:train"})

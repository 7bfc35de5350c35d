"""Tasks: texts to embed, and a score with its standard error for the embeddings.

| file | what it holds |
|---|---|
| `task` | what a task is: the `Task` protocol and `Score` |
| `registry` | from names to tasks |
| `stdlib` | the embedded tasks, on text that every Python carries |
| `own` | tasks on a user's file; `tables` reads its rows, `sheets` makes examples of them |
| `mteb` | tasks of the benchmark; `benchmark` is the one file that imports it, `results` reads and writes its files |
| `presets` | named lists of tasks |
| `examples` | the data of a task of any kind, and how each kind is scored |
| `probes` | from embeddings and labels to an accuracy |
| `measures` | from embeddings to the scores that need no probe |
"""

from daskmetrics.tasks._registry import catalogue, resolve
from daskmetrics.tasks._task import Score, Task

__all__ = ["Score", "Task", "catalogue", "resolve"]

"""Tasks: texts to embed, and a score with its standard error for the embeddings.

| file | what it holds |
|---|---|
| `task` | what a task is: the `Task` protocol and `Score` |
| `registry` | from names to tasks |
| `stdlib` | the embedded tasks, on text that every Python carries |
| `mteb` | tasks of the benchmark, when it is installed |
| `presets` | named lists of tasks |
| `probes` | from embeddings and labels to a score |
"""

from daskmetrics.tasks.registry import catalogue, resolve
from daskmetrics.tasks.task import Score, Task

__all__ = ["Score", "Task", "catalogue", "resolve"]

"""Tasks: texts to embed, and a score with its standard error for the embeddings.

============== ============================================================================
`task`         what a task is: the `Task` protocol and `Score`
`registry`     from names to tasks
`_stdlib`      the built-in tasks, on texts that every Python installation contains
`file`         tasks on a user's file
`tables`       rows of a user's file, and examples made of them
`_checks`      what is wrong with a user's rows: errors and warnings
`mteb`         tasks of the benchmark, and named lists of them
`mteb_subsets` the subsets and splits of a task of the benchmark, and the choice among them
`mteb_run`     the one file that imports the benchmark; outcomes per item of its tasks
`mteb_results` result files of the benchmark, read and written
`examples`     the data of a task, and how each kind of task is scored
`portions`     tasks whose examples are here, and parts of their items
`_probes`      from embeddings and labels to an accuracy
`_measures`    from embeddings to the scores that need no probe
============== ============================================================================

Modules with a leading underscore are internal.
"""

from daskmetrics.tasks.registry import catalogue, resolve
from daskmetrics.tasks.task import Score, Task

__all__ = ["Score", "Task", "catalogue", "resolve"]

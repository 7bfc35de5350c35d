"""Tasks: texts to embed, and a score with its standard error for the embeddings.

================ ==========================================================================
`_task`          what a task is: the `Task` protocol and `Score`
`_registry`      from names to tasks
`_stdlib`        the built-in tasks, on texts that every Python installation contains
`_file`          tasks on a user's file
`_tables`        rows of a user's file, and examples made of them
`_checks`        what is wrong with a user's rows: errors and warnings
`_mteb`          tasks of the benchmark, and named lists of them
`_mteb_subsets`  the subsets and splits of a task of the benchmark, and the choice among them
`_mteb_run`      the one file that imports the benchmark
`_mteb_outcomes` outcomes per item of the benchmark's tasks
`_mteb_results`  result files of the benchmark, read and written
`_examples`      the data of a task, and how each kind of task is scored
`_portions`      tasks whose examples are here, and parts of their items
`_probes`        from embeddings and labels to an accuracy
`_measures`      from embeddings to the scores that need no probe
================ ==========================================================================

Modules with a leading underscore are internal.
"""

from daskmetrics.tasks._registry import catalogue, resolve
from daskmetrics.tasks._task import Score, Task

__all__ = ["Score", "Task", "catalogue", "resolve"]

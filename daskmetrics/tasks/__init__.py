"""Tasks: texts to embed, and a score with its standard error for the embeddings.

============== ============================================================================
`task`         what a task is: the `Task` protocol and `Score`
`registry`     from names to tasks
`_stdlib`      the built-in tasks, on texts that every Python installation contains
`file`         tasks on a user's file, folder or data set
`table`        from the rows of a file to examples, and what is doubtful about them
`mteb`         tasks of the benchmark, and named lists of them
`mteb_run`     the one file that imports the benchmark: what its tasks declare, their scores
`mteb_results` what a result of the benchmark holds
`examples`     tasks whose data is here, how each kind is scored, and parts of their items
`_probes`      from embeddings and labels to an accuracy
`_measures`    from embeddings to the scores that need no probe
============== ============================================================================

Modules with a leading underscore are internal.
"""

from typing import TYPE_CHECKING

from daskmetrics.core import on_first_use
from daskmetrics.tasks.task import Score, Task

if TYPE_CHECKING:
    from daskmetrics.tasks._probes import FOLDS
    from daskmetrics.tasks._probes import SETTINGS as PROBE_SETTINGS
    from daskmetrics.tasks.registry import catalogue, resolve

__all__ = ["FOLDS", "PROBE_SETTINGS", "Score", "Task", "catalogue", "resolve"]

_PLACES = {
    "FOLDS": "daskmetrics.tasks._probes:FOLDS",
    "PROBE_SETTINGS": "daskmetrics.tasks._probes:SETTINGS",
    "catalogue": "daskmetrics.tasks.registry:catalogue",
    "resolve": "daskmetrics.tasks.registry:resolve",
}
# what knows the results of mteb alone, as readers of runs, needs no pandas
__getattr__ = on_first_use(__name__, _PLACES)

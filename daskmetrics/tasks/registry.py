"""From names to tasks.

A name is an embedded task (``stdlib:order``), all of them (``stdlib:all``), a task of the benchmark
(``mteb:Banking77Classification``), a preset (``preset:layer-by-layer-32``), or what an installed package offers under
the entry-point group ``daskmetrics.tasks``: the entry's name is the task's name, and it points to any `Task` object.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from importlib.metadata import entry_points

from daskmetrics.errors import unknown
from daskmetrics.tasks.mteb import MtebTask
from daskmetrics.tasks.presets import PRESETS
from daskmetrics.tasks.stdlib import TASKS
from daskmetrics.tasks.task import Task

GROUP = "daskmetrics.tasks"
MTEB = "mteb:"
ALL = "stdlib:all"


def catalogue() -> Mapping[str, Callable[[], Task]]:
    """What makes each task that can be named without `MTEB`; others' code is loaded only when its task is made.

    Examples
    --------
    >>> catalogue()["stdlib:order"]().kind
    'pair_classification'
    """
    embedded = {name: partial(TASKS.__getitem__, name) for name in TASKS}
    return {**{entry.name: entry.load for entry in entry_points(group=GROUP)}, **embedded}


def resolve(names: Sequence[str]) -> tuple[Task, ...]:
    """The tasks that the names stand for, each once, in the order in which they are first named.

    Raises
    ------
    ConfigError
        For a name that stands for nothing.

    Examples
    --------
    >>> [task.name for task in resolve(["stdlib:package", "stdlib:all"])]
    ['stdlib:package', 'stdlib:next_token', 'stdlib:order', 'stdlib:retrieval', 'stdlib:word']
    >>> len(resolve(["preset:layer-by-layer-32"]))
    32
    """
    known = catalogue()
    return tuple(_task(name, known) for name in dict.fromkeys(_expanded(names)))


def _expanded(names: Sequence[str]) -> Iterator[str]:
    for name in names:
        yield from TASKS if name == ALL else PRESETS.get(name, (name,))


def _task(name: str, known: Mapping[str, Callable[[], Task]]) -> Task:
    if name in known:
        return known[name]()
    if name.startswith(MTEB) and name != MTEB:
        return MtebTask(name.removeprefix(MTEB))
    raise unknown("task", name, [*known, *PRESETS, ALL, f"{MTEB}NAME"])

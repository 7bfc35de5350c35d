"""From names to tasks.

A name is a built-in task (``stdlib:order``), a set of them (``stdlib:all``, ``stdlib:demo``,
``stdlib:kinds``), a task of the benchmark (``mteb:Banking77Classification``), a preset
(``preset:layer-by-layer-32``), a user's file or folder (``file:reviews.csv``), a data set of
Hugging Face (``hf:NAME:SPLIT``), a `Task` object of a user's own module (``package.module:NAME``),
or one of an installed package, under the entry-point group ``daskmetrics.tasks``: the name of the
entry is the name of the task. Options follow in parentheses:
``file:reviews.csv(text=body, label=stars)``, ``stdlib:package(probe=lightgbm)``,
``mteb:STS22(languages=deu+fra)``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from importlib.metadata import entry_points
from itertools import chain

from daskmetrics.core.errors import ConfigError, require_known, unknown
from daskmetrics.core.text import parse_call
from daskmetrics.core.user_code import load_object
from daskmetrics.tasks._stdlib import SETS, TASKS
from daskmetrics.tasks.file import FileTask, file_task, hub_task
from daskmetrics.tasks.mteb import PRESETS, mteb_task
from daskmetrics.tasks.task import Task

GROUP = "daskmetrics.tasks"
FILE = "file:"
MAKERS: Mapping[str, Callable[[str, Mapping[str, str]], Task]] = {
    "mteb:": mteb_task,
    FILE: file_task,
    "hf:": hub_task,
}  #: by the beginning of a name, from the rest and the options
REQUIRED = ("name", "kind", "main_score", "description", "key")  # of a user's own task
RESERVED = (*MAKERS, "stdlib:", "preset:")  # are no modules


def catalogue() -> Mapping[str, Callable[[], Task]]:
    """Makers of the built-in and installed tasks.

    The code of a package is loaded when its task is made.

    Returns
    -------
    mapping of str to callable
        By name; a callable without arguments that returns a `Task`.

    Examples
    --------
    >>> catalogue()["stdlib:order"]().kind
    'pair_classification'
    """
    builtin = {name: partial(TASKS.__getitem__, name) for name in TASKS}
    installed = {
        entry.name: partial(_own, entry.name, entry.value) for entry in entry_points(group=GROUP)
    }
    return {**installed, **builtin}


def resolve(names: Sequence[str]) -> tuple[Task, ...]:
    """The tasks of some names, each once, in order.

    Parameters
    ----------
    names : sequence of str
        Tasks, sets of tasks and presets, such as ``stdlib:demo``, ``mteb:STS12`` or
        ``file:reviews.csv(label=stars)``.

    Raises
    ------
    ConfigError
        If a name is unknown, a file is not valid, or two tasks have the same name.

    Examples
    --------
    >>> [task.name for task in resolve(["stdlib:package", "stdlib:demo"])]
    ['stdlib:package', 'stdlib:next_token', 'stdlib:retrieval', 'stdlib:word']
    >>> len(resolve(["preset:layer-by-layer-32"]))
    32
    """
    makers = catalogue()
    expanded = chain.from_iterable(SETS.get(name) or PRESETS.get(name, (name,)) for name in names)
    tasks: list[Task] = []
    for text in dict.fromkeys(expanded):
        task = _make(text, makers)
        if task in tasks:  # with options that name the default
            continue
        if task.name in {other.name for other in tasks}:
            raise ConfigError(
                f"Two tasks are named '{task.name}', and scores are stored by name. Give one a name"
                " of its own: name=NAME in the parentheses of its file."
            )
        if isinstance(task, FileTask):
            task = _compared(task, tasks)
        tasks.append(task)
    return tuple(tasks)


def _compared(task: FileTask, others: Sequence[Task]) -> FileTask:
    """The task, with a warning if another one reads its file."""
    for other in others:
        if isinstance(other, FileTask) and other.path == task.path:
            text = (
                f"It reads the file of {other.name}. The error of a mean takes tasks as independent:"
                " with two tasks of one file it may be 1.4 times too small."
            )
            return replace(task, warnings=(*task.warnings, text))
    return task


def _make(text: str, makers: Mapping[str, Callable[[], Task]]) -> Task:
    if text in makers:
        return makers[text]()
    name, options = parse_call(text)
    for prefix, make in MAKERS.items():
        if name.startswith(prefix) and name != prefix:
            return make(name.removeprefix(prefix), options)
    if name in TASKS and options:
        for option in options:
            require_known(f"option of '{name}'", option, ["probe"])
        task = TASKS[name].with_probe(options["probe"])
        return replace(task, name=f"{name}(probe={task.probe})")
    module, colon, _ = text.partition(":")
    if colon and f"{module}:" not in RESERVED:
        try:
            return _own(text, text)
        except ConfigError as error:
            if getattr(error.__cause__, "name", "") != module:  # there is such a module
                raise
    named = (f"{prefix}NAME" for prefix in MAKERS)
    raise unknown("task", text, [*makers, *SETS, *PRESETS, *named])


def _own(name: str, path: str) -> Task:
    """The task at an import path, checked."""
    task = load_object(f"Task '{name}'", path)
    if not isinstance(task, Task):
        raise ConfigError(
            f"Task '{name}' must be an object of a subclass of daskmetrics.tasks.Task, got"
            f" {task!r:.80}."
        )
    missing = [member for member in REQUIRED if member not in dir(task)]
    if missing:
        raise ConfigError(
            f"Task '{name}' has no {' and no '.join(missing)}. Add what is missing to its class, as"
            " daskmetrics.tasks.Task describes it."
        )
    return task

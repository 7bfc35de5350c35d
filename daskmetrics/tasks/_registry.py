"""From names to tasks.

A name is an embedded task (``stdlib:order``), a set of them (``stdlib:all``, ``stdlib:demo``, ``stdlib:kinds``), a task
of the benchmark (``mteb:Banking77Classification``), a preset (``preset:layer-by-layer-32``), a file or folder of one's
own (``file:reviews.csv``), or what an installed package offers under the entry-point group ``daskmetrics.tasks``: the
entry's name is the task's name, and it points to any `Task` object. Options follow in parentheses:
``file:reviews.csv(text=body, label=stars)``, ``stdlib:package(probe=lightgbm)``.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from importlib.metadata import entry_points

from daskmetrics.core.errors import ConfigError, unknown
from daskmetrics.tasks import _own as own
from daskmetrics.tasks._mteb import MtebTask
from daskmetrics.tasks._presets import PRESETS
from daskmetrics.tasks._stdlib import SETS, TASKS
from daskmetrics.tasks._task import Task

GROUP = "daskmetrics.tasks"
MTEB = "mteb:"
FILE = "file:"
_CALL = re.compile(r"(?P<name>.*?)\s*\((?P<options>[^()]*)\)")


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
    >>> [task.name for task in resolve(["stdlib:package", "stdlib:demo"])]
    ['stdlib:package', 'stdlib:next_token', 'stdlib:order', 'stdlib:retrieval', 'stdlib:word']
    >>> len(resolve(["preset:layer-by-layer-32"]))
    32
    """
    known = catalogue()
    tasks = tuple(_task(name, known) for name in dict.fromkeys(_expanded(names)))
    twice = [name for name, count in Counter(task.name for task in tasks).items() if count > 1]
    if twice:
        raise ConfigError(f"Two tasks are called '{twice[0]}': rename one of the files, which scores are stored under.")
    return tasks


def called(text: str) -> tuple[str, dict[str, str]]:
    """A name and the options that follow it in parentheses.

    Raises
    ------
    ConfigError
        If an option is not of the form ``name=value``.

    Examples
    --------
    >>> called("file:reviews.csv(text=body, label=stars)")
    ('file:reviews.csv', {'text': 'body', 'label': 'stars'})
    """
    match = _CALL.fullmatch(text.strip())
    if match is None:
        return text.strip(), {}
    options = {}
    for part in filter(None, map(str.strip, match["options"].split(","))):
        name, _, value = map(str.strip, part.partition("="))
        if not name or not value:
            raise ConfigError(f"Task '{text}': '{part}' is not of the form name=value, such as label=stars.")
        options[name] = value
    return match["name"], options


def _expanded(names: Sequence[str]) -> Iterator[str]:
    for name in names:
        yield from SETS.get(name) or PRESETS.get(name, (name,))


def _task(text: str, known: Mapping[str, Callable[[], Task]]) -> Task:
    if text in known:
        return known[text]()
    name, options = called(text)
    if name.startswith(FILE) and name != FILE:
        return own.task(name.removeprefix(FILE), options)
    if name in TASKS and options.keys() == {"probe"}:
        return TASKS[name].with_probe(options["probe"])
    if options and (name in known or name.startswith(MTEB)):
        raise ConfigError(f"Task '{text}': '{name}' has no such options; classifications of 'stdlib:' have 'probe'.")
    if name.startswith(MTEB) and name != MTEB:
        return MtebTask(name.removeprefix(MTEB))
    raise unknown("task", text, [*known, *SETS, *PRESETS, f"{MTEB}NAME", f"{FILE}PATH"])

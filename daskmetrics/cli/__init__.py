"""The command line: each command imports what it needs when it is called, so that ``--help`` is
fast.

========== ======================================================
`_run`     run an experiment, submit it, follow a training
`_init`    a first configuration
`_layers`  every layer of one model on one's own data
`_plan`    duration and cost of a run; checks of the machine
`_cluster` profiles of places to run
`_train`   train suites
`_map`     run any function over any items
`_show`    status and results of a run; `_follow`: its progress
`_list`    tasks, metrics, policies and profiles
`_runs`    pages of all runs; logs, verify, repair, retry, unlock
`_data`    prefetch, export and import
`_replay`  searches on known scores
`_common`  what commands share; help in sections, with examples
========== ======================================================

A command is added to ``COMMANDS`` of its module.
"""

from __future__ import annotations

from pathlib import Path

import click

from daskmetrics.cli import (
    _cluster,
    _data,
    _init,
    _layers,
    _list,
    _map,
    _plan,
    _replay,
    _run,
    _runs,
    _show,
    _train,
)
from daskmetrics.cli._common import Sections, example
from daskmetrics.core.main_module import import_from

__all__ = ["main"]


SECTIONS = {
    "Start here": ("run", "layers", "watch", "init", "list"),
    "Look at a run": ("status", "report", "best", "compare", "runs"),
    "Before a run": ("plan", "bench", "doctor", "cluster"),
    "Other work": ("train", "map"),
}

#: What replaces the commands of earlier versions.
MOVED = {
    "attach": "status --follow RUN",
    "explain": "best RUN --arm CANDIDATE",
    "tasks": "list tasks",
    "metrics": "list metrics",
    "serve": "runs serve FOLDER",
    "replay": "runs replay SCORES",
    "worker": "runs worker RUN",
    "logs": "runs logs RUN KEY",
    "journal": "runs journal RUN",
    "retry": "runs retry RUN",
    "verify": "runs verify RUN",
    "repair": "runs repair RUN",
    "unlock": "runs unlock RUN",
    "export": "runs export RUN",
    "import-results": "runs import-results RESULTS CONFIG",
    "prefetch": "runs prefetch CONFIG",
}


@click.group(
    "metrics",
    cls=Sections,
    sections=SECTIONS,
    moved=MOVED,
    context_settings={
        "help_option_names": ["-h", "--help"],
        "max_content_width": 110,
        "show_default": True,
    },
    epilog=example(
        "daskmetrics run                    # the demo; then: daskmetrics status demo",
        "daskmetrics run mine.yaml",
        "daskmetrics COMMAND --help         # each with an example",
    ),
)
@click.version_option(package_name="daskmetrics")
def main() -> None:
    """Which layer of which training checkpoint of which model gives the best embeddings?

    Begin with `daskmetrics run`: a demo on this machine that needs neither a network nor a GPU.

    A suite is the checkpoints of one model. A candidate is a layer of a
    checkpoint, written `MODEL@REVISION/LAYER`. A score is what it gets on one task. A work
    unit is one call that Dask runs, and a record is its stored result.
    """
    import_from(Path.cwd())  # as with `python -m`; a console script has its own folder in its place


for module in (_run, _init, _layers, _list, _plan, _cluster, _train, _map, _show, _runs):
    for command in module.COMMANDS:
        main.add_command(command)
for module in (_data, _replay):
    for command in module.COMMANDS:
        _runs.runs.add_command(command)

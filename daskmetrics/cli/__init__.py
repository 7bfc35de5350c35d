"""The command line: each command imports what it needs when it is called, so that ``--help`` is
fast.

========== ======================================================
`_run`     run an experiment, submit it, follow a training
`_init`    a first configuration
`_layers`  every layer of one model on one's own data
`_plan`    duration and cost of a run
`_doctor`  checks of a profile, an experiment or a run
`_cluster` profiles of places to run
`_train`   train suites
`_map`     run any function over any items
`_show`    status and results of a run; `_status`: how far it is
`_list`    tasks, metrics, policies and profiles
`_runs`    logs, verify, repair, retry, unlock, prefetch, export
`_common`  what commands share; help in sections, with examples
========== ======================================================

A command is added to ``SECTIONS``, or by its group.
"""

from __future__ import annotations

from pathlib import Path

import click

from daskmetrics.cli import (
    _cluster,
    _doctor,
    _init,
    _layers,
    _list,
    _map,
    _plan,
    _run,
    _runs,
    _show,
    _train,
)
from daskmetrics.cli._common import Sections, example
from daskmetrics.core.main_module import import_from

__all__ = ["main"]


SECTIONS = {
    "Start here": (_run.run, _layers.layers, _run.watch, _init.init, _list.list_),
    "Look at a run": (_show.status, _show.report, _show.best, _show.compare, _runs.runs),
    "Before a run": (_plan.plan, _plan.bench, _doctor.doctor, _cluster.cluster),
    "Other work": (_train.train, _map.map_),
}


@click.group(
    "metrics",  # of the command of Dask, `dask metrics`
    cls=Sections,
    sections=SECTIONS,
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

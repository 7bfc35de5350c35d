"""The command line: each command imports what it needs when it is called, so that ``--help`` is fast.

=========== ============================================================
`_run`      run an experiment, submit it, attach to it, follow a training
`_init`     a first configuration
`_layers`   every layer of one model on one's own data
`_plan`     duration and cost of a run; checks of the machine
`_cluster`  start and list clusters
`_train`    train suites
`_map`      run any function over any items
`_show`     status, results and catalogues
`_maintain` verify, repair, retry and remove
`_replay`   searches on known scores
`_data`     prefetch, export and import
`_serve`    pages of all runs in a folder
`_common`   what commands share; help in sections, with examples
=========== ============================================================

Modules with a leading underscore are internal; a command is added to ``COMMANDS`` of its module.
"""

from __future__ import annotations

import click

from daskmetrics.cli import (
    _cluster,
    _data,
    _init,
    _layers,
    _maintain,
    _map,
    _plan,
    _replay,
    _run,
    _serve,
    _show,
    _train,
)
from daskmetrics.cli._common import Sections, example

__all__ = ["main"]


SECTIONS = {
    "Start here": ("run", "layers", "watch", "init"),
    "Look at a run": ("status", "report", "best", "explain", "compare", "serve"),
    "Before a run": ("tasks", "metrics", "prefetch", "plan", "bench"),
    "Cluster": ("cluster", "worker", "doctor", "attach"),
    "Other work": ("train", "map", "replay"),
    "Upkeep": ("logs", "journal", "retry", "verify", "repair", "unlock", "export", "import-results"),
}


@click.group(
    "metrics",
    cls=Sections,
    sections=SECTIONS,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
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

    A suite is the checkpoints of one model. An arm is one candidate embedding: a layer of a checkpoint, written
    `MODEL@REVISION/LAYER`. A cell is the score of one arm on one task. A work unit is one call that Dask runs, and a
    record is its stored result.
    """


for module in (_run, _init, _layers, _plan, _cluster, _train, _map, _show, _serve, _maintain, _replay, _data):
    for command in module.COMMANDS:
        main.add_command(command)

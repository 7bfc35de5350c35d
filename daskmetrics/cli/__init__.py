"""The command line: verbs, each importing what it needs when it is called, so that ``--help`` answers at once.

A verb lives in the file of its kind; a file of verbs is listed here once.
"""

from __future__ import annotations

import click

from daskmetrics.cli import _cluster as cluster
from daskmetrics.cli import _data as data
from daskmetrics.cli import _maintain as maintain
from daskmetrics.cli import _map as map
from daskmetrics.cli import _plan as plan
from daskmetrics.cli import _replay as replay
from daskmetrics.cli import _run as run
from daskmetrics.cli import _show as show
from daskmetrics.cli import _train as train


@click.group("metrics", context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(package_name="daskmetrics")
def main() -> None:
    """Which layer of which checkpoint of which model gives the best embeddings?

    Begin with `run` and no file: a demo on this machine that needs neither network nor GPU.
    """


for file in (run, plan, cluster, train, map, show, maintain, replay, data):
    for verb in file.VERBS:
        main.add_command(verb)

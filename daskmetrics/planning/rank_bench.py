"""Short measurements by the ranks of a training on one's own model and data, as tables and
calibrations.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from dataclasses import replace

from daskmetrics.cluster import connect
from daskmetrics.config import Config
from daskmetrics.core.errors import ConfigError
from daskmetrics.core.table import Table
from daskmetrics.experiment import train as training
from daskmetrics.planning.calibration import Calibration, Sample, versions
from daskmetrics.planning.estimate import exchange_seconds
from daskmetrics.training.ddp.driver import launch
from daskmetrics.training.ddp.ranks import Program, Progress
from daskmetrics.training.recipe import program


class _Observer:
    """Passes the lines for the user on; no step is taken."""

    def __init__(self, show: Callable[[str], None]) -> None:
        self.message = show

    def progressed(self, program: Program, progress: Progress) -> None: ...


def probe(
    config: Config, workload: str, workers: int, show: Callable[[str], None] = lambda text: None
) -> tuple[list[Table], Calibration | None]:
    """Measure with this number of workers on the largest model that the configuration trains;
    returns tables of what the ranks measured, and the calibration that `plan` uses.

    Raises
    ------
    ConfigError
        If no model has a `train` section, or there are too few workers.
    """
    suites = training.suites_to_train(config)
    if not suites:
        raise ConfigError(
            "No model of the configuration has a 'train' recipe. Bench another --workload."
        )
    if workload == "allreduce" and workers < 2:
        raise ConfigError("An all-reduce needs two workers or more: --workers 2")
    name, suite = training.largest_first(suites)[0]
    ranks = 1 if workload == "precision" else workers
    suite.claim()
    recipe = suite.recipe.model_copy(update={"ranks": ranks})
    profile = config.cluster.model_copy(update={"workers": ranks})
    measuring = replace(
        program(name, recipe, suite.folder, config.ddp, workload),
        interface=profile.interface,
        workers=ranks,
    )
    with connect(profile) as client:
        measured = launch(client, measuring, _Observer(show))
    tables = [
        Table(**{**table, "title": f"{name}: {table['title']}"}) for table in measured["tables"]
    ]
    if not measured["exchange"]:
        return tables, None
    # an exchange takes (1 - 1/n) of what it takes among very many ranks
    many = ranks / (ranks - 1)
    seconds = tuple(max(1e-6, many * added) for added in measured["exchange"])
    sample = Sample("allreduce", name, seconds, exchange_seconds(recipe))
    calibration = Calibration(
        profile.device,
        socket.gethostname(),
        time.time(),
        versions(),
        samples=(sample,),
        workers=ranks,
    )
    return tables, calibration

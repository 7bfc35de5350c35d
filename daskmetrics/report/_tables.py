"""The tables of metrics of the page."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import chain

from daskmetrics.answer import analysis
from daskmetrics.core.table import Table
from daskmetrics.report._format import signed
from daskmetrics.report._run import Run

MOST_ARMS = 64  # that have a row of metrics


def metrics_table(run: Run) -> Table:
    """The metrics of every layer of a small run; without rows if there are too many layers."""
    metrics = analysis.metrics(run)
    layers = (replace(suite, readouts=("",)).arms() for suite in analysis.suites(run))
    arms = list(chain.from_iterable(layers))
    if not metrics or len(arms) > MOST_ARMS:
        return Table((), ())
    rows = []
    for arm in arms:
        values = [by_arm.get(arm) for by_arm in metrics.values()]
        rows.append((str(arm), *("–" if value is None else f"{value:.4g}" for value in values)))
    return Table(("layer", *metrics), tuple(rows))


def predictors(run: Run) -> Table:
    """How well each metric ranks candidates as the scores do, the closest first."""
    table = analysis.correlations(run) if run.recorded else {}
    groups = tuple(next(iter(table.values()), {}))
    rows = []
    for name in analysis.closest_first(table):
        cells = []
        for rho, count in table[name].values():
            cells.append("too few" if math.isnan(rho) else f"{signed(rho)} ({count:,})")
        rows.append((name, *cells))
    return Table(("metric", *groups), tuple(rows), notes=(analysis.ABOUT_RHO,))

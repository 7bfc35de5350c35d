"""Scores, metrics, correlations, the path of the search, failures and seconds of a run, from its
journal.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from math import fsum
from typing import TYPE_CHECKING

from daskmetrics.answer.recorded import RecordedRun
from daskmetrics.core.events import (
    AttemptFailed,
    Record,
    StorePlan,
    latest,
    measured,
    with_results,
)
from daskmetrics.core.failures import Failure, grouped
from daskmetrics.core.names import Arm, Cell, Checkpoint, Suite, training_order
from daskmetrics.core.results import Measured, Scored, Trained
from daskmetrics.metrics.registry import CATALOGUE

if TYPE_CHECKING:
    import pandas


ALL_TASKS = "all tasks"
FEWEST = 5  #: pairs that a rank correlation needs


@dataclass(frozen=True)
class Cost:
    """The cost of a search and of scoring everything, in assumed seconds."""

    spent: float
    exhaustive: float | None  # None while the search continues
    share: float | None


def cost_of(run: RecordedRun) -> Cost:
    """The assumed cost of the search so far, and of scoring every cell."""
    result = run.result
    if result is None:
        spent = sum(pick["cost"] for pick in run.picks)
        return Cost(spent, None, None)
    share = min(1.0, result.spent / result.exhaustive)  # sums are rounded
    return Cost(result.spent, result.exhaustive, share)


def marks(run: RecordedRun) -> dict[str, Arm]:
    """The best and the default arm, which figures mark; empty while the search is not finished."""
    if run.result is None:
        return {}
    return {"best": run.result.best_arm, "default": run.result.default_arm}


def layer_of(arm: Arm) -> Arm:
    """The layer of an arm as an arm of the default readout; metrics belong to it."""
    return Arm(arm.model, arm.revision, arm.layer)


def by_layer(run: RecordedRun, readout: str | None = None) -> dict[Arm, Arm]:
    """The scored arm that stands for each layer in figures, by `layer_of` it: of a readout, or of
    the layer's best.

    The best has the greatest mean score or, while none of the layer has one, the most scores.
    """
    means = run.means
    nothing = (-math.inf, 0.0)
    worth = {
        arm: (means.get(arm, nothing)[0], len(by_task))
        for arm, by_task in run.recorded.items()
        if readout in (None, arm.readout)
    }
    best_first = sorted(worth, key=worth.__getitem__, reverse=True)  # also of equal ones the first
    return {layer_of(arm): arm for arm in reversed(best_first)}


def correlations(run: RecordedRun) -> pandas.DataFrame:
    """Whether a metric ranks arms as scores do: Spearman's ``rho`` and the ``count`` of scores, by
    metric, the closest first, and kind of task.

    Rho is computed over the arms scored on a task, and averaged over the tasks of a kind with the
    numbers of arms as weights; ``all tasks`` is the average over all tasks. A task with fewer than
    `FEWEST` arms is left out. Of several readouts of a layer, the best counts.
    """
    import pandas

    at_layer = {layer: run.recorded[arm] for layer, arm in by_layer(run).items()}
    rows = []
    for name, values in metrics(run).items():
        for task, kind in run.kinds.items():
            pairs = [
                (values[arm][0], row[task].score)
                for arm, row in at_layer.items()
                if task in row and arm in values
            ]
            rho = rank_correlation(pairs)
            count = len(pairs)
            if math.isnan(rho):
                count = 0
            for group in (ALL_TASKS, kind.replace("_", " ")):
                rows += [(name, group, rho * count, count)]
    frame = pandas.DataFrame(rows, columns=["metric", "group", "rho", "count"])
    sums = frame.groupby(["metric", "group"], sort=False).sum()
    sums["rho"] /= sums["count"]
    strength = sums["rho"].abs().fillna(0.0)  # without a rho a metric is last
    is_of_all = sums.index.get_level_values("group") == ALL_TASKS
    of_all = strength[is_of_all].droplevel("group")
    closest_first = of_all.sort_values(ascending=False, kind="stable").index
    return sums.loc[closest_first]


def leader(run: RecordedRun) -> dict[str, Arm | float] | None:
    """The arm with the greatest mean score so far, among those that were scored on every task, with
    this mean as ``score`` and its standard error; None if there is none.
    """
    means = run.means
    if not means:
        return None
    arm = max(means, key=lambda arm: means[arm][0])
    score, stderr = means[arm]
    return {"arm": arm, "score": score, "stderr": stderr}


def metrics(run: RecordedRun) -> dict[str, dict[Arm, tuple[float, float]]]:
    """Metric values with their standard errors (NaN where there is none), by metric and arm of the
    default readout, without undefined ones.
    """
    by_metric: dict[str, dict[Arm, tuple[float, float]]] = {}
    for record, result in measured(run.records):
        for layer, *row in zip(result.layers, result.values, result.stderr, strict=True):
            arm = Arm.parse(f"{record.name}/{layer}")
            for name, value, stderr in zip(result.names, *row, strict=True):
                by_arm = by_metric.setdefault(name, {})
                if value is None:
                    continue
                if stderr is None:
                    stderr = math.nan
                by_arm[arm] = value, stderr
    return by_metric


def losses(run: RecordedRun) -> dict[str, list[tuple[int, float]]]:
    """Training loss by model, as (step, loss) in order of training; empty if the run trained no
    model.
    """
    by_model = defaultdict[str, list[tuple[int, float]]](list)
    for record, result in with_results(run.records, Trained):
        checkpoint = Checkpoint.parse(record.name)
        if checkpoint.step is not None:
            by_model[checkpoint.model].append((checkpoint.step, result.loss))
    return {model: sorted(by_model[model]) for model in run.models if model in by_model}


def suites(run: RecordedRun) -> tuple[Suite, ...]:
    """The checkpoints that the run has measured or tried to measure, their layers and readouts, by
    model.
    """
    readouts = {}
    if plan := latest(run.entries, StorePlan):
        readouts = {suite.model: suite.readouts for suite in plan.template.suites}
    revisions = defaultdict[str, list[str]](list)
    layers = defaultdict[str, set[int]](set)
    for record in run.records:
        if record.kind == "measure":
            checkpoint = Checkpoint.parse(record.name)
            revisions[checkpoint.model].append(checkpoint.revision)
            if isinstance(record.value, Measured):
                layers[checkpoint.model].update(record.value.layers)
    return tuple(
        Suite(
            model=model,
            revisions=training_order(revisions[model]),
            layers=tuple(sorted(layers[model])),
            depth=max(layers[model]),
            readouts=readouts.get(model, ("",)),
        )
        for model in run.models
        if layers[model]
    )


def spending(run: RecordedRun) -> dict[str, float]:
    """Measured seconds on the workers, by kind of work; an encoding that several layers share
    counts once, and again if it was released and computed again.
    """
    records = run.records
    encodings = set()
    for record, result in with_results(records, Scored):
        cell = Cell.parse(record.name)
        encoding = record.kind, cell.arm.checkpoint, cell.task, result.encoded_on
        encodings.add((*encoding, result.encode_seconds))
    return {
        "train": _seconds(records, Trained),
        "measure": _seconds(records, Measured),
        "encode": fsum(seconds for *_, seconds in encodings),
        "score": _seconds(records, Scored),
    }


def _seconds(records: Iterable[Record], result: type) -> float:
    return fsum(record.seconds for record, _ in with_results(records, result))


def failures(run: RecordedRun) -> tuple[Failure, ...]:
    """Failed units and undefined metrics grouped by cause, the most frequent first."""
    missing = []
    for record in run.records:
        if not record.ok:
            missing.append((record.kind, record.status, record.name, record.reason))
        elif isinstance(record.value, Measured):
            for layer, name, reason in record.value.reasons:
                missing.append((name, "nan", f"{record.name}/{layer}", reason))
    return grouped(missing)


def survived(run: RecordedRun) -> Counter[str]:
    """Failed attempts, by fault, of units that succeeded later."""
    succeeded = {record.key for record in run.records if record.ok}
    failed_attempts = (entry for entry in run.entries if isinstance(entry, AttemptFailed))
    return Counter(attempt.fault for attempt in failed_attempts if attempt.key in succeeded)


def units(run: RecordedRun) -> defaultdict[str, str]:
    """Units of metrics: of those in the run's store, else as the catalogue has them; empty for
    others.
    """
    by_name = defaultdict(str, {name: entry.units for name, entry in CATALOGUE.items()})
    if plan := latest(run.entries, StorePlan):
        axis = plan.template.metrics
        by_name.update(zip(axis.names, axis.units, strict=True))
    return by_name


def rank_correlation(pairs: Iterable[tuple[float, float]]) -> float:
    """Spearman's rho of pairs: Pearson's correlation of the ranks, ties sharing their mean rank;
    NaN if a side is constant, and for fewer than `FEWEST` pairs.

    >>> round(rank_correlation([(1, 10), (2, 20), (3, 40), (4, 30), (5, 50)]), 3)
    0.9
    """
    import pandas

    # as scipy.stats does, whose import takes half a second
    frame = pandas.DataFrame(pairs, columns=["one", "other"])
    matrix = frame.corr("spearman", min_periods=FEWEST).to_numpy()
    return float(matrix[0, 1])

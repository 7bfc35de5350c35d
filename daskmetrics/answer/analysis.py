"""Scores, metrics, correlations, the path of the search, failures and seconds of a run, from its
journal.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import fsum
from typing import TYPE_CHECKING

from daskmetrics.answer.recorded import RecordedRun
from daskmetrics.domain.events import AttemptFailed, Event, measured, with_results
from daskmetrics.domain.failures import Failure, grouped
from daskmetrics.domain.names import Arm, Cell, Checkpoint, Suite, training_order
from daskmetrics.domain.outcomes import Estimate
from daskmetrics.domain.plan import Plan
from daskmetrics.domain.recommendation import Recommendation
from daskmetrics.domain.record import Record
from daskmetrics.domain.results import Measured, Scored, Trained
from daskmetrics.domain.scores import Scores

if TYPE_CHECKING:
    import pandas


ALL_TASKS = "all tasks"
FEWEST = 5  #: pairs that a rank correlation needs


@dataclass(frozen=True)
class Cost:
    """Assumed seconds of a search, and of scoring everything."""

    spent: float
    exhaustive: float | None  # None while the search continues
    share: float | None


@dataclass(frozen=True)
class Leader:
    """The best arm so far, with its mean score and standard error."""

    arm: Arm
    score: float
    stderr: float


def cost_of(recommended: Recommendation) -> Cost:
    """Assumed cost of a finished search, and of every cell."""
    spent, exhaustive = recommended.spent, recommended.exhaustive
    return Cost(spent, exhaustive, min(1.0, spent / exhaustive))  # sums are rounded


def layer_of(arm: Arm) -> Arm:
    """The layer of an arm by the default readout, which metrics belong to."""
    return Arm(arm.model, arm.revision, arm.layer)


def by_layer(
    recorded: Scores, means: Mapping[Arm, Estimate], readout: str | None = None
) -> dict[Arm, Arm]:
    """The scored arm that figures show for each layer.

    With a ``readout`` it is the arm of that readout, otherwise the layer's best. The best has the
    greatest mean score or, while none of the layer has one, the most scores.
    """
    nothing = (-math.inf, 0.0)
    worth = {
        arm: (means.get(arm, nothing)[0], len(by_task))
        for arm, by_task in recorded.items()
        if readout in (None, arm.readout)
    }
    best_first = sorted(worth, key=worth.__getitem__, reverse=True)  # also of equal ones the first
    return {layer_of(arm): arm for arm in reversed(best_first)}


def correlations(run: RecordedRun) -> pandas.DataFrame:
    """Spearman's ``rho`` of metrics and scores, with the ``count`` of scores.

    The rows are by metric, the closest first, and kind of task. Rho is computed over the arms
    scored on a task, and averaged over the tasks of a kind with the numbers of arms as weights;
    ``all tasks`` is the average over all tasks. A task with fewer than `FEWEST` arms is left out.
    Of several readouts of a layer, the best counts.
    """
    import pandas

    best_arms = by_layer(run.recorded, run.means)
    at_layer = {layer: run.recorded[arm] for layer, arm in best_arms.items()}
    rows = []
    for name, values in metrics(run.records).items():
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


def leader(means: Mapping[Arm, Estimate]) -> Leader | None:
    """The arm with the greatest mean score so far; None if none was scored on every task."""
    if not means:
        return None
    arm = max(means, key=lambda arm: means[arm][0])
    return Leader(arm, *means[arm])


def metrics(records: Iterable[Record]) -> dict[str, dict[Arm, Estimate]]:
    """Metric values with standard errors, by metric and arm.

    Undefined values are left out; an unknown error is NaN. The arms are of the default readout.
    """
    by_metric: dict[str, dict[Arm, Estimate]] = {}
    for record, result in measured(records):
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


def losses(plan: Plan, records: Iterable[Record]) -> dict[str, list[tuple[int, float]]]:
    """Training loss by model, as (step, loss) in order of training.

    It is empty if the run trained no model.
    """
    by_model = defaultdict[str, list[tuple[int, float]]](list)
    for record, result in with_results(records, Trained):
        checkpoint = Checkpoint.parse(record.name)
        if checkpoint.step is not None:
            by_model[checkpoint.model].append((checkpoint.step, result.loss))
    return {model: sorted(by_model[model]) for model in plan.by_model if model in by_model}


def suites(plan: Plan, records: Iterable[Record]) -> tuple[Suite, ...]:
    """The checkpoints of each model that were measured or failed.

    They include those that were deleted since. A model without any measured checkpoint is left out.
    """
    revisions = defaultdict[str, list[str]](list)
    measured_models = set()
    for record in records:
        if record.kind == "measure":
            checkpoint = Checkpoint.parse(record.name)
            revisions[checkpoint.model].append(checkpoint.revision)
            if record.ok:
                measured_models.add(checkpoint.model)
    return tuple(
        replace(suite, revisions=training_order(revisions[suite.model]))
        for suite in plan.suites
        if suite.model in measured_models
    )


def spending(records: Sequence[Record]) -> dict[str, float]:
    """Measured seconds on the workers, by kind of work.

    An encoding that several layers share counts once, and again if it was released and computed
    again.
    """
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


def failures(records: Iterable[Record]) -> tuple[Failure, ...]:
    """Failed units and undefined metrics by cause, most frequent first."""
    missing = []
    for record in records:
        if not record.ok:
            missing.append((record.kind, record.status, record.name, record.reason))
        elif isinstance(record.value, Measured):
            for layer, name, reason in record.value.reasons:
                missing.append((name, "nan", f"{record.name}/{layer}", reason))
    return grouped(missing)


def survived(entries: Iterable[Event], records: Iterable[Record]) -> Counter[str]:
    """Failed attempts, by fault, of units that succeeded later."""
    succeeded = {record.key for record in records if record.ok}
    failed_attempts = (entry for entry in entries if isinstance(entry, AttemptFailed))
    return Counter(attempt.fault for attempt in failed_attempts if attempt.key in succeeded)


def units(plan: Plan) -> Mapping[str, str]:
    """Units of the metrics, by name."""
    return {metric.name: metric.units for metric in plan.metrics}


def rank_correlation(pairs: Iterable[tuple[float, float]]) -> float:
    """Spearman's rho of pairs; NaN if it is undefined.

    This is Pearson's correlation of the ranks, where ties share their mean rank. It is undefined if
    a side is constant, and for fewer than `FEWEST` pairs.

    >>> round(rank_correlation([(1, 10), (2, 20), (3, 40), (4, 30), (5, 50)]), 3)
    0.9
    """
    import pandas

    # as scipy.stats does, whose import takes half a second
    frame = pandas.DataFrame(pairs, columns=["one", "other"])
    matrix = frame.corr("spearman", min_periods=FEWEST).to_numpy()
    return float(matrix[0, 1])

"""What the journal says of a run, as plain values: scores, metrics, failures and seconds."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import fsum
from statistics import fmean, median, pstdev
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from daskmetrics.core._events import AttemptFailed, Record, StorePlanned
from daskmetrics.core.names import Arm, Suite, training_order
from daskmetrics.core.status import cause
from daskmetrics.execution._journal import latest
from daskmetrics.metrics._registry import CATALOGUE
from daskmetrics.report._run import Run

Values = Mapping[Arm, float]
FEWEST = 5  #: arms below which a rank correlation says nothing


@dataclass(frozen=True)
class Spending:
    """Measured seconds on the workers; an encoding that several layers shared counts once."""

    train: float
    measure: float
    encode: float
    score: float

    @property
    def total(self) -> float:
        return self.train + self.measure + self.encode + self.score


@dataclass(frozen=True)
class Failure:
    """Values that are lacking for one reason, with the first of them as an example."""

    kind: str
    status: str
    count: int
    example: str
    reason: str


def scores(run: Run) -> dict[Arm, dict[str, float]]:
    """Raw scores by arm and task, in the order in which they came."""
    found: dict[Arm, dict[str, float]] = {}
    for record in _of(run, "score"):
        cell = run.cells[record.key]
        found.setdefault(cell.arm, {})[cell.task] = record.value["score"]
    return found


def mean_scores(run: Run) -> dict[Arm, float]:
    """Mean raw score of each arm that was scored on every task; others could not be compared with them."""
    return {arm: fsum(own.values()) / len(own) for arm, own in scores(run).items() if len(own) == len(run.tasks)}


def standard_scores(run: Run) -> dict[Arm, float]:
    """Mean of each scored arm's scores in standard deviations of their task, over the arms scored on it.

    Arms that were scored on different tasks become comparable, as far as the search chose them alike for each task.
    """
    by_task: dict[str, list[float]] = {}
    known = scores(run)
    for own in known.values():
        for task, score in own.items():
            by_task.setdefault(task, []).append(score)
    scale = {task: (fmean(values), pstdev(values)) for task, values in by_task.items() if len(values) > 1}
    standard = {
        arm: [(own[task] - mean) / sd for task, (mean, sd) in scale.items() if task in own and sd]
        for arm, own in known.items()
    }
    return {arm: fmean(values) for arm, values in standard.items() if values}


def errors(run: Run) -> dict[str, float]:
    """Median standard error of each task's scores and each metric's values, where they have one."""
    found: dict[str, list[float]] = {}
    for record in _of(run, "score"):
        if record.value["stderr"] is not None:
            found.setdefault(run.cells[record.key].task, []).append(record.value["stderr"])
    for record in _of(run, "measure"):
        for row in record.value["stderr"]:
            for name, value in zip(record.value["names"], row, strict=True):
                if value is not None:
                    found.setdefault(name, []).append(value)
    return {name: median(values) for name, values in found.items()}


def correlations(run: Run) -> dict[str, dict[str, tuple[float, int]]]:
    """Whether a metric ranks arms as scores do: Spearman's rho and the cells it rests on, by metric and kind of task.

    Rho is taken over the arms scored on a task, and averaged over the tasks of a kind, each weighing as many as its
    arms; ``all tasks`` is the average over all of them. A task with fewer than `FEWEST` arms says nothing.
    """
    known, kinds = scores(run), {task: about["kind"].replace("_", " ") for task, about in run.tasks.items()}
    groups = {"all tasks": list(kinds), **{kind: [t for t in kinds if kinds[t] == kind] for kind in kinds.values()}}
    found: dict[str, dict[str, tuple[float, int]]] = {}
    for name, values in metrics(run).items():
        each = {task: _agreement(values, {a: own[task] for a, own in known.items() if task in own}) for task in kinds}
        for group, tasks in groups.items():
            told = [(rho, n) for task in tasks for rho, n in [each[task]] if n >= FEWEST and rho == rho]
            count = sum(n for _, n in told)
            rho = fsum(rho * n for rho, n in told) / count if count else math.nan
            found.setdefault(name, {})[group] = rho, count
    return found


def _agreement(metric: Values, score: Values) -> tuple[float, int]:
    arms = [arm for arm in score if arm in metric]
    if len(arms) < FEWEST:
        return math.nan, len(arms)
    return rank_correlation([metric[arm] for arm in arms], [score[arm] for arm in arms]), len(arms)


def leader(run: Run) -> tuple[Arm, float] | None:
    """The arm with the greatest mean score so far, among those that were scored on every task."""
    return max(mean_scores(run).items(), key=lambda item: item[1], default=None)


def metrics(run: Run) -> dict[str, dict[Arm, float]]:
    """Metric values by metric and arm; an undefined value is lacking."""
    found: dict[str, dict[Arm, float]] = {}
    for record in _of(run, "measure"):
        model, _, revision = record.name.partition("@")
        for layer, row in zip(record.value["layers"], record.value["values"], strict=True):
            for name, value in zip(record.value["names"], row, strict=True):
                own = found.setdefault(name, {})
                if value is not None:
                    own[Arm(model, revision, layer)] = value
    return found


def losses(run: Run) -> dict[str, list[tuple[int, float]]]:
    """Training loss by model, as (step, loss) in order of training; empty if the run trained nothing itself."""
    found: dict[str, list[tuple[int, float]]] = {}
    for record in _of(run, "train"):
        arm = _arm(record)
        if arm.checkpoint.step is not None:
            found.setdefault(arm.model, []).append((arm.checkpoint.step, record.value["loss"]))
    return {model: sorted(found[model]) for model in run.models if model in found}


def suites(run: Run) -> tuple[Suite, ...]:
    """The checkpoints and layers that the run has tried so far, model by model."""
    layers: dict[str, set[int]] = {}
    revisions: dict[str, set[str]] = {}
    for record in run.records:
        if record.kind == "measure":
            arm = _arm(record)
            revisions.setdefault(arm.model, set()).add(arm.revision)
            layers.setdefault(arm.model, set()).update(record.value["layers"] if record.ok else ())
    return tuple(
        Suite(model, training_order(revisions[model]), tuple(sorted(layers[model])), max(layers[model]))
        for model in run.models
        if layers.get(model)
    )


def spending(run: Run) -> Spending:
    """Where the workers' time went."""
    encoded = {
        (run.cells[r.key].arm.checkpoint, run.cells[r.key].task): r.value["encode_seconds"] for r in _of(run, "score")
    }
    sums = {kind: fsum(record.seconds for record in _of(run, kind)) for kind in ("train", "measure", "score")}
    return Spending(sums["train"], sums["measure"], fsum(encoded.values()), sums["score"])


def failures(run: Run) -> tuple[Failure, ...]:
    """What has no value, grouped by cause, the most frequent first."""
    groups: dict[tuple[str, str, str], list[tuple[str, str]]] = {}
    for kind, status, name, reason in _lacking(run):
        groups.setdefault((kind, status, cause(reason)), []).append((name, reason))
    found = [Failure(kind, status, len(all_), *all_[0]) for (kind, status, _), all_ in groups.items()]
    return tuple(sorted(found, key=lambda failure: -failure.count))


def survived(run: Run) -> Counter[str]:
    """Failed attempts by fault, of units that succeeded all the same."""
    fine = {record.key for record in run.records if record.ok}
    return Counter(e.fault for e in run.entries if isinstance(e, AttemptFailed) and e.key in fine)


def _lacking(run: Run) -> Iterator[tuple[str, str, str, str]]:
    for record in run.records:
        if not record.ok:
            yield record.kind, record.status, record.name, record.reason or "no reason was recorded"
        elif record.kind == "measure":
            for layer, name, reason in record.value["reasons"]:
                yield name, "nan", f"{record.name}/{layer}", reason


def top(run: Run) -> Sequence[Mapping[str, Any]]:
    """The arms with the greatest expected objective, best first, as the result lists them."""
    return run.result.top if run.result else ()


def champions(run: Run) -> Sequence[Mapping[str, Any]]:
    """The best arm of every kind of task, as the result lists them; none if the tasks are of one kind."""
    return run.result.kinds if run.result else ()


def units(run: Run, metric: str) -> str:
    """Of a metric, as the plan of the run's store has them; empty if it has none."""
    plan = latest(run.entries, StorePlanned)
    axis = plan.template["metrics"] if plan else {"names": (), "units": ()}
    known = dict(zip(axis["names"], axis["units"], strict=True))
    if metric in known:
        return str(known[metric])
    return CATALOGUE[metric].units if metric in CATALOGUE else ""


def _of(run: Run, kind: str) -> Iterator[Record]:
    return (record for record in run.records if record.kind == kind and record.ok)


def _arm(record: Record) -> Arm:
    """The checkpoint that a record of training or measuring is about, as an arm without a layer of its own."""
    model, _, revision = record.name.partition("@")
    return Arm(model, revision, 0)


def rank_correlation(a: ArrayLike, b: ArrayLike) -> float:
    """Spearman's rho: Pearson's correlation of the ranks, ties sharing their mean rank; NaN if a side is constant.

    Examples
    --------
    >>> round(rank_correlation([1, 2, 3, 4], [10, 20, 40, 30]), 3)
    0.8
    """
    ranks = np.array([_ranks(np.asarray(values, dtype=float)) for values in (a, b)])
    centred = ranks - ranks.mean(axis=1, keepdims=True)
    norm = float(np.sqrt((centred**2).sum(axis=1).prod()))
    return float((centred[0] * centred[1]).sum()) / norm if norm else float("nan")


def _ranks(values: NDArray[np.float64]) -> NDArray[np.float64]:
    _, inverse, count = np.unique(values, return_inverse=True, return_counts=True)
    return np.asarray((np.cumsum(count) - (count - 1) / 2)[inverse])

"""What a round of a watch says: the best arm, whether its layer still rises, and what may be deleted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from daskmetrics.bandit import Outcome
from daskmetrics.bandit._forecast import RiseForecast, rise_forecast
from daskmetrics.bandit._posterior import fit_posterior
from daskmetrics.core._events import Record, SearchEnded, succeeded
from daskmetrics.core._outcomes import mean_score
from daskmetrics.core._text import plural
from daskmetrics.core.names import Arm, Cell, Checkpoint, Suite, training_order
from daskmetrics.execution import Journal
from daskmetrics.experiment import _search as search
from daskmetrics.experiment._prepare import Experiment


@dataclass(frozen=True)
class RoundAnswer:
    """The answer of one round, for the terminal and for other programs."""

    checkpoints: int
    cells: int  # scored so far
    best: Arm
    score: float | None  # mean over the tasks of the objective; None if it lacks one of them
    stderr: float | None
    rise: RiseForecast | None
    stopped_below: float  # the probability below which the score counts as no longer rising
    keep: tuple[Checkpoint, ...] = ()  # the best, best first, and the latest of each model; empty if none is asked for
    deletable: tuple[Checkpoint, ...] = ()  # the others

    @property
    def has_stopped(self) -> bool:
        """Whether the score of the best arm's layer has stopped rising."""
        return self.rise is not None and self.rise.probability < self.stopped_below

    def as_dict(self) -> dict[str, Any]:
        """The answer as plain JSON values; docs/watch.md names the fields."""
        best = {"arm": str(self.best), "checkpoint": str(self.best.checkpoint), "step": self.best.checkpoint.step}
        rise = self.rise and {
            "layer": self.best.layer,
            "probability": round(self.rise.probability, 4),
            "more_than": self.rise.more_than,
            "steps": list(self.rise.steps),
            "stopped": self.has_stopped,
        }
        named = {"keep": [str(each) for each in self.keep], "deletable": [str(each) for each in self.deletable]}
        return {
            "checkpoints": self.checkpoints,
            "cells": self.cells,
            "best": {**best, "layer": self.best.layer, "score": self.score, "stderr": self.stderr},
            "rise": rise,
            **(named if self.keep else {}),
            "text": " ".join(self.lines),
        }

    @property
    def lines(self) -> list[str]:
        score = "" if self.score is None else f", {self.score:.3f} ± {self.stderr:.3f}"
        lines = [f"{self.best} is the best of {plural(self.checkpoints, 'checkpoint')}{score}."]
        if self.rise:
            state = "has stopped rising" if self.has_stopped else "may still rise"
            lines.append(
                f"Layer {self.best.layer} {state}: by step {self.rise.steps[-1]:,} it rises by more than "
                f"{100 * self.rise.more_than:g} % with probability {self.rise.probability:.2f}."
            )
        if self.deletable:
            named = (", ".join(map(str, each)) for each in (self.keep, self.deletable))
            lines.append("Keep {}. May be deleted: {}.".format(*named))
        return lines


def answer_of(experiment: Experiment, journal: Journal, ended: SearchEnded) -> RoundAnswer:
    """The answer of a round whose search has ended."""
    config, best, records = experiment.config, ended.best_arm, list(journal.records())
    weights = experiment.task_weights
    counted = {task: weight for task, weight in weights.items() if weight > 0}
    score, stderr = mean_score(ended.best["scores"], counted) or (None, None)
    rise = rise_forecast(
        _all_suites(experiment, records),
        _scores(records),
        best,
        tasks=weights,
        kinds=experiment.kinds,
        reward=config.search.reward,
        share=config.watch.rise,
        ahead=config.watch.ahead,
        seed=config.seed,
    )
    keep, deletable = _sorted_out(experiment, records, best, config.watch.kept) if config.watch.kept else ((), ())
    return RoundAnswer(
        checkpoints=len(experiment.checkpoints),
        cells=ended.cells,
        best=best,
        score=score,
        stderr=stderr,
        rise=rise,
        stopped_below=config.watch.stopped,
        keep=keep,
        deletable=deletable,
    )


def _scores(records: Sequence[Record]) -> dict[Cell, Outcome]:
    """The scores by cell, also those of checkpoints that were deleted since."""
    scored = succeeded(records, "score")
    return {Cell.parse(each.name): Outcome(each.value["score"], each.value["stderr"]) for each in scored}


def _all_suites(experiment: Experiment, records: Sequence[Record]) -> list[Suite]:
    """The suites, also with the checkpoints that were measured and deleted since."""
    measured = [Checkpoint.parse(record.name) for record in succeeded(records, "measure")]
    ever = {suite: {each.revision for each in measured if each.model == suite.model} for suite in experiment.suites}
    return [replace(suite, revisions=training_order(names.union(suite.revisions))) for suite, names in ever.items()]


def _sorted_out(
    experiment: Experiment, records: Sequence[Record], best: Arm, count: int
) -> tuple[tuple[Checkpoint, ...], tuple[Checkpoint, ...]]:
    """The checkpoints to keep, and the others.

    Those with the greatest posterior means of an arm are kept, that of the best arm first, and the latest of each
    model, from which a training goes on. One without a score is never among the others.
    """
    problem, scores = search.problem(experiment, records), _scores(records)
    seen = problem.observe(scores.items())
    order = [best, *(problem.arms[i] for i in np.argsort(-fit_posterior(problem, seen).mean, kind="stable"))]
    ranked = list(dict.fromkeys(arm.checkpoint for arm in order))
    last = [suite.checkpoints()[-1] for suite in experiment.suites]
    keep = tuple(dict.fromkeys([*ranked[:count], *last]))
    scored = {problem.arms[arm].checkpoint for arm in seen.arm}
    return keep, tuple(each for each in experiment.checkpoints if each in scored and each not in keep)

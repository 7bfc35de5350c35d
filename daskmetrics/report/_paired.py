"""Two arms compared on every task and over all tasks, with paired errors where outcomes of items are known."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from daskmetrics.bandit._problem import Observations
from daskmetrics.core._outcomes import Difference, mean_difference
from daskmetrics.core._table import Table
from daskmetrics.core.errors import DataError
from daskmetrics.core.names import Arm
from daskmetrics.report._documents import difference_document
from daskmetrics.report._format import WIDTH, apart, fact, over, probability, scored, unpaired
from daskmetrics.report._posterior import arm_named, objective_of
from daskmetrics.report._run import Run


@dataclass(frozen=True)
class ArmComparison:
    """By how much an arm is better than another, on the tasks on which both were scored."""

    arm: Arm
    other: Arm
    tasks: Mapping[str, Difference]
    mean: Difference | None  # of the raw scores
    objective: Difference | None  # with the weights of the search, in units of its reward
    reward: str
    over: str  # what the mean is the mean of

    @property
    def sentence(self) -> str:
        """The difference of the mean scores, and the verdict."""
        if self.mean is None:
            return self.verdict if self.tasks else "Unknown: the two arms have no scored task in common."
        return f"{apart(self.mean)}, {self.over}. {self.verdict}"

    @property
    def verdict(self) -> str:
        """The difference of the objective, and the probability that the first arm is better."""
        if self.objective is None:
            return "No task of the objective was scored with both arms."
        chance = f"with a probability of {probability(self.objective.probability)} (normal approximation)."
        if self.reward == "mean":  # the objective is the mean of the scores
            return f"Positive {chance}"
        return f"In units of the reward ({self.reward}): {apart(self.objective)}, positive {chance}"


def compare_arms(
    run: Run, arm: Arm, other: Arm, elsewhere: Run | None = None, left_out: Collection[str] = ()
) -> ArmComparison:
    """Compare an arm of a run with another arm of it, or of another run; weights and reward are those of `run`."""
    tasks = {name: each for name, each in run.differences(arm, other, elsewhere).items() if name not in left_out}
    weights = {task: run.weights[task] for task in tasks if task in run.weights}
    return ArmComparison(
        arm=arm,
        other=other,
        tasks=tasks,
        mean=mean_difference([tasks[task] for task in weights], list(weights.values())),
        objective=_objective(run, arm, tasks) if tasks else None,
        reward=str(run.config["search"]["reward"]),
        over=over(weights.values()),
    )


def compare_named(run: Run, name: str, other_name: str, elsewhere: Run | None = None) -> ArmComparison:
    """Compare arms ``MODEL@REVISION/LAYER``; the second may be of another run. `DataError` without a common task."""
    there = elsewhere or run
    arm, other = (arm_named(one, each.recorded, "scored arm") for one, each in ((name, run), (other_name, there)))
    compared = compare_arms(run, arm, other, elsewhere)
    if not compared.tasks:
        raise DataError(f"{arm} and {other} have no scored task in common. Score both with search.policy=sweep.")
    return compared


def comparison_document(compared: ArmComparison) -> dict[str, Any]:
    """A comparison for other programs: differences of the first arm from the second."""
    return {
        "arms": [compared.arm, compared.other],
        "difference": difference_document(compared.mean),
        "tasks": {task: difference_document(each) for task, each in compared.tasks.items()},
    }


def compare_arms_text(run: Run, name: str, other_name: str, elsewhere: Run | None = None) -> str:
    """Two arms ``MODEL@REVISION/LAYER`` on every task, for a terminal; the second may be of another run."""
    compared, there, rows = compare_named(run, name, other_name, elsewhere), elsewhere or run, []
    arm, other = compared.arm, compared.other
    for task, difference in compared.tasks.items():
        scores = map(scored, (run.recorded[arm][task], there.recorded[other][task]))
        rows.append((task, *scores, apart(difference, " *"), probability(difference.probability)))
    header = ("task", "first", "second", "difference", "probability")
    lines = [*fact("first", str(arm)), *fact("second", str(other)), "", *fact("difference", compared.sentence), ""]
    return "\n".join([*lines, Table(header, tuple(rows), notes=unpaired(compared.tasks.values())).as_text(WIDTH)])


def _objective(run: Run, arm: Arm, tasks: Mapping[str, Difference]) -> Difference | None:
    problem, scale = objective_of(run)
    differences = list(tasks.values())
    mine = np.array([run.recorded[arm][task]["score"] for task in tasks])
    theirs = mine - [each.value for each in differences]
    errors = np.array([each.stderr for each in differences])
    places = np.array([problem.tasks.index(task) for task in tasks])
    one, other, middle = (
        Observations(np.zeros_like(places), places, scores, errors) for scores in (mine, theirs, (mine + theirs) / 2)
    )
    values, spread = scale.values(one) - scale.values(other), scale.errors(middle)
    scaled = [
        replace(each, value=float(value), stderr=float(error))
        for each, value, error in zip(differences, values, spread, strict=True)
    ]
    return mean_difference(scaled, problem.objective_weights[places].tolist())

"""Two candidates compared on every task and over all tasks, with paired errors where outcomes of
items are known.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from daskmetrics.answer.posterior import arm_named
from daskmetrics.answer.recorded import RecordedRun
from daskmetrics.core.errors import DataError
from daskmetrics.core.names import Arm
from daskmetrics.core.outcomes import Difference, mean_difference


@dataclass(frozen=True)
class ArmComparison:
    """By how much an arm is better than another, on the tasks on which both were scored.

    ``difference`` is that of the mean raw scores, with the weights of the objective; None if no
    task of the objective was scored with both.
    """

    arm: Arm
    other: Arm
    difference: Difference | None
    tasks: Mapping[str, Difference]


def compare_arms(
    run: RecordedRun,
    arm: Arm,
    other: Arm,
    elsewhere: RecordedRun | None = None,
    left_out: Collection[str] = (),
) -> ArmComparison:
    """Compare an arm of a run with another arm of it, or of another run; the weights are those of
    `run`.
    """
    differences = run.differences(arm, other, elsewhere)
    tasks = {task: gap for task, gap in differences.items() if task not in left_out}
    weighted = [task for task in tasks if task in run.weights]
    mean = mean_difference(
        [tasks[task] for task in weighted], [run.weights[task] for task in weighted]
    )
    return ArmComparison(arm, other, mean, tasks)


def compare_named(
    run: RecordedRun, name: str, other_name: str, elsewhere: RecordedRun | None = None
) -> ArmComparison:
    """Compare arms ``MODEL@REVISION/LAYER``; the second may be of another run.

    Raises
    ------
    ConfigError
        If an arm was not scored.
    DataError
        If they have no common task.
    """
    arm = arm_named(name, run.recorded, "scored arm")
    other = arm_named(other_name, (elsewhere or run).recorded, "scored arm")
    compared = compare_arms(run, arm, other, elsewhere)
    if not compared.tasks:
        raise DataError(
            f"{arm} and {other} have no scored task in common. Score both with search.policy=sweep."
        )
    return compared

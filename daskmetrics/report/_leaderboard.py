"""Arms ordered by their mean score, with errors, and with those that are within the error of the best."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from itertools import compress
from typing import TYPE_CHECKING, Any

import numpy as np

from daskmetrics.core._outcomes import joint_error, means_of
from daskmetrics.core._table import Table
from daskmetrics.core._text import plural
from daskmetrics.core.errors import DataError
from daskmetrics.core.names import Arm
from daskmetrics.report._format import number, over
from daskmetrics.report._ties import LEVEL, MOST, MeanScores, not_worse
from daskmetrics.report.plots import need_matplotlib

if TYPE_CHECKING:
    import pandas
    from matplotlib.axes import Axes

Scores = Mapping[str, Mapping[str, Any]]  # of an arm, by task: score, standard error and, where known, outcomes
TEXT_ROWS, TEXT_TASKS = 20, 4  # of the table as text; `Leaderboard.to_frame` has all of them
NO_VALUE = ""


@dataclass(frozen=True)
class RankedArm:
    """A row of a `Leaderboard`.

    Attributes
    ----------
    arm : Arm
    scores : mapping
        Raw score and standard error by task, of the tasks that the arm was scored on.
    rank : int or None
        Place by the mean score, from 1; None, as the following, for an arm that lacks tasks of the objective.
    mean, stderr : float or None
        Weighted mean of the raw scores over the tasks of the objective, and its standard error.
    tied : bool or None
        Whether the arm is within the error of the best one; the best arm itself is True.
    """

    arm: Arm
    scores: Mapping[str, tuple[float, float]]
    rank: int | None = None
    mean: float | None = None
    stderr: float | None = None
    tied: bool | None = None


@dataclass(frozen=True)
class Leaderboard:
    """Arms ordered by their mean score, best first.

    Arms that lack a score on a task of the objective come last, with their scores but without rank, mean and standard
    error, because means over different tasks are not comparable. Of these, the one with the most scores comes first.

    Attributes
    ----------
    arms : tuple of RankedArm
        The rows, best first.
    weights : mapping
        Weight of each task in the mean, by name; a task of weight 0 has a column, but does not count.
    reward : str
        In whose units the search tested for ties; ``mean`` is the raw score.

    Examples
    --------
    >>> scores = {Arm("m", "main", layer): {"topics": {"score": 0.5 + layer / 10, "stderr": 0.02}} for layer in (0, 1)}
    >>> board = Leaderboard.of(scores, {"topics": 1.0})
    >>> [(each.rank, each.arm.layer, each.tied) for each in board.arms]
    [(1, 1, True), (2, 0, False)]
    >>> board.to_frame()["mean"].tolist()
    [0.6, 0.5]
    """

    arms: tuple[RankedArm, ...]
    weights: Mapping[str, float]
    reward: str = "mean"

    @classmethod
    def of(
        cls,
        recorded: Mapping[Arm, Scores],
        weights: Mapping[str, float],
        tied: Collection[Arm] | None = None,
        reward: str = "mean",
    ) -> Leaderboard:
        """The leaderboard of recorded scores.

        Parameters
        ----------
        recorded : mapping
            By arm and task: a mapping with ``score``, ``stderr`` and, where known, packed ``outcomes``, with which
            arms are compared item by item.
        weights : mapping
            Weight of each task in the mean, by name.
        tied : collection of Arm, optional
            The arms that are within the error of the best; by default they are tested here, by raw scores.
        reward : str
            In whose units ``tied`` was tested.
        """
        counted = {task: weight for task, weight in weights.items() if weight}
        means = means_of(recorded, counted)
        complete = sorted(means, key=lambda arm: (-means[arm][0], arm))
        if tied is None:
            tied = _tied({arm: recorded[arm] for arm in complete}, counted)
        partial = sorted(recorded.keys() - means.keys(), key=lambda arm: (-len(recorded[arm]), arm))
        scores = {
            arm: {t: (by[t]["score"], by[t]["stderr"]) for t in weights if t in by} for arm, by in recorded.items()
        }
        ranked = [
            RankedArm(arm, scores[arm], rank, *means[arm], tied=arm in tied) for rank, arm in enumerate(complete, 1)
        ]
        return cls((*ranked, *(RankedArm(arm, scores[arm]) for arm in partial)), dict(weights), reward)

    def to_frame(self) -> pandas.DataFrame:
        """One row per arm, best first.

        Returns
        -------
        pandas.DataFrame
            Columns: rank, model, checkpoint, layer, readout (if there are several), mean, stderr, tied (with the best),
            and the raw score on each task under its name. An arm that lacks tasks has missing values.

        Examples
        --------
        >>> board.to_frame().query("tied")  # doctest: +SKIP
        """
        import pandas

        columns = {
            "rank": pandas.array([each.rank for each in self.arms], dtype="Int64"),
            "model": [each.arm.model for each in self.arms],
            "checkpoint": [each.arm.revision for each in self.arms],
            "layer": [each.arm.layer for each in self.arms],
            **({"readout": [each.arm.readout for each in self.arms]} if self._read else {}),
            "mean": np.array([each.mean for each in self.arms], float),
            "stderr": np.array([each.stderr for each in self.arms], float),
            "tied": pandas.array([each.tied for each in self.arms], dtype="boolean"),
        }
        own = set(columns)
        for task in self.weights:
            name = f"{task} (task)" if task in own else task
            columns[name] = np.array([each.scores.get(task, (None,))[0] for each in self.arms], float)
        return pandas.DataFrame(columns)

    @property
    def _read(self) -> bool:
        """Whether there are several readouts."""
        return len({each.arm.readout for each in self.arms}) > 1

    def table(self) -> Table:
        """The best arms as a table of text: for a single checkpoint layers and readouts, else whole names of arms."""
        of_one = len(checkpoints := {each.arm.checkpoint for each in self.arms}) == 1
        named = ["layer", *(["readout"] if self._read else [])] if of_one else ["arm"]
        tasks = list(self.weights)[:TEXT_TASKS] if len(self.weights) > 1 else []
        rows = [
            (
                *([f"{each.arm.layer}", each.arm.readout or "default"][: len(named)] if of_one else [f"{each.arm}"]),
                NO_VALUE if each.mean is None else number(each.mean, each.stderr),
                "tied" if each.tied else NO_VALUE,
                *(number(each.scores[task][0]) if task in each.scores else NO_VALUE for task in tasks),
            )
            for each in self.arms[:TEXT_ROWS]
        ]
        title = f"Layers of {next(iter(checkpoints))}" if of_one else "Leaderboard"
        return Table((*named, "score", "best", *tasks), tuple(rows), title, self._notes(tasks))

    def _notes(self, shown: Collection[str]) -> tuple[str, ...]:
        """What the columns say, and what is left out."""
        counted = {task: weight for task, weight in self.weights.items() if weight}
        unit = "" if self.reward == "mean" else f", by the reward of the search ({self.reward})"
        what = over(list(counted.values())) if len(self.weights) > 1 else next(iter(counted), "no task")
        lines = [f"Score: {what} ± standard error. Tied: within the error of the best (95 %){unit}."]
        if missing := sum(each.rank is None for each in self.arms):
            lines.append(f"{plural(missing, 'arm')} without a mean: not scored on every task.")
        left = (len(self.arms) - TEXT_ROWS, "arm"), (len(self.weights) - len(shown) if shown else 0, "task")
        hidden = [plural(n, what) for n, what in left if n > 0]
        return (*lines, *([f"Not shown: {' and '.join(hidden)}; to_frame() has all."] if hidden else []))

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw mean scores with standard errors: along the layers of a single checkpoint, or the best arms as a list.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, optional
            Where to draw; by default a new figure.

        Returns
        -------
        matplotlib.axes.Axes
            Filled: the arms that are within the error of the best.

        Raises
        ------
        ConfigError
            If matplotlib is not installed.
        DataError
            If no arm was scored on every task of the objective.

        Examples
        --------
        >>> board.plot().set_title("My layers")  # doctest: +SKIP
        """
        need_matplotlib()
        from daskmetrics.report.plots._points import along_layers, best_arms

        ranked = [each for each in self.arms if each.mean is not None]
        if not ranked:
            raise DataError("No arm was scored on every task of the objective, so there is no mean score to draw.")
        means, errors = np.array([(each.mean, each.stderr) for each in ranked], float).T.tolist()
        tied = [bool(each.tied) for each in ranked]
        if len({each.arm.checkpoint for each in ranked}) == 1 and not self._read:
            return along_layers([each.arm.layer for each in ranked], means, errors, tied, ax)
        return best_arms([str(each.arm) for each in ranked], means, errors, tied, ax)

    def __str__(self) -> str:
        return self.table().as_text()

    def _repr_html_(self) -> str:
        return self.table().as_html()


def _tied(complete: Mapping[Arm, Scores], weights: Mapping[str, float]) -> set[Arm]:
    """The arms, best first, that are within the error of the best by their raw scores."""
    if not complete:
        return set()
    arms = list(complete)
    first, beyond = arms[:MOST], arms[MOST:]
    shares = np.array(list(weights.values())) / math.fsum(weights.values())
    cells = [[complete[arm][task] for task in weights] for arm in arms]
    scores, errors = (np.array([[each[what] for each in row] for row in cells], float) for what in ("score", "stderr"))
    joint = [joint_error([complete[arm][task] for arm in first]) for task in weights]
    tie = MeanScores.of(scores[: len(first)], shares, joint).tied(LEVEL)
    rows = [0, *range(len(first), len(arms))]
    as_good = not_worse(scores[rows] @ shares, errors[rows] ** 2 @ shares**2, LEVEL)
    return {first[i] for i in tie.arms} | set(compress(beyond, as_good))

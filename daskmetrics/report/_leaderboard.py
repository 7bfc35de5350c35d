"""Candidates ordered by their mean score, with errors, as a table, a frame and a figure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from daskmetrics.answer.leaderboard import RankedArm, Scores, ranked_arms
from daskmetrics.core.errors import ConfigError, DataError
from daskmetrics.core.names import Arm, Checkpoint
from daskmetrics.core.table import Table
from daskmetrics.core.text import listed, plural
from daskmetrics.report._format import apart, number, over
from daskmetrics.report.plots import need_matplotlib

if TYPE_CHECKING:
    import pandas
    from matplotlib.axes import Axes

    from daskmetrics.core.results import Scored
    from daskmetrics.experiment.direct import LayerScores
    from daskmetrics.tasks import Task

TEXT_ROWS, TEXT_TASKS = 20, 4  # of the table as text; `Leaderboard.to_frame` has all of them


@dataclass(frozen=True)
class Leaderboard:
    """Arms ordered by their mean score, best first.

    Arms that lack a score on a task of the objective come last, with their scores but without rank,
    mean and standard error, because means over different tasks are not comparable. Of these, the
    one with the most scores comes first.

    Attributes
    ----------
    arms : tuple of RankedArm
        The rows, best first.
    weights : mapping
        Weight of each task in the mean, by name; a task of weight 0 has a column, but does not
        count.
    reward : str
        In whose units the search tested for ties; ``mean`` is the raw score.
    remarks : tuple of str
        Sentences below the table, such as what the score is.

    Examples
    --------
    >>> from daskmetrics.core.results import Scored
    >>> better, worse = Arm("m", "main", 1), Arm("m", "main", 0)
    >>> scores = {better: {"topics": Scored(0.6, 0.02)}, worse: {"topics": Scored(0.5, 0.02)}}
    >>> board = Leaderboard.of(scores, {"topics": 1.0})
    >>> [(row.rank, row.arm.layer, row.tied) for row in board.arms]
    [(1, 1, True), (2, 0, False)]
    >>> board.to_frame()["mean"].tolist()
    [0.6, 0.5]
    """

    arms: tuple[RankedArm, ...]
    weights: Mapping[str, float]
    reward: str = "mean"
    remarks: tuple[str, ...] = ()
    saver: Callable[[Arm, str | Path, str], Path] | None = field(
        default=None, repr=False, compare=False
    )

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
            By arm and task: a mapping with ``score``, ``stderr`` and, where known, packed
            ``outcomes``, with which arms are compared item by item.
        weights : mapping
            Weight of each task in the mean, by name.
        tied : collection of Arm, optional
            The arms that are within the error of the best; by default they are tested here, by raw
            scores.
        reward : str
            In whose units ``tied`` was tested.
        """
        return cls(ranked_arms(recorded, weights, tied), dict(weights), reward)

    @classmethod
    def of_layers(cls, found: LayerScores) -> Leaderboard:
        """The leaderboard of what was scored here and now, with what the score is and what the best
        layer gains.
        """
        board = cls.of(found.recorded, {task.name: 1.0 for task in found.tasks})
        best = board.arms[0].arm
        remarks = [_measure(task, found.recorded[best].get(task.name)) for task in found.tasks]
        remarks = remarks[:TEXT_TASKS]
        if best == found.last_layer(best):
            remarks.append(f"The best, layer {best.layer}, is the last layer of its model.")
        elif gain := found.gain(best):
            remarks.append(
                f"The best gains {apart(gain)} over the last layer of its model, {gain.relation}."
            )
        return replace(board, remarks=tuple(remarks), saver=found.save)

    def to_frame(self) -> pandas.DataFrame:
        """One row per arm, best first.

        Returns
        -------
        pandas.DataFrame
            Columns: rank, model, checkpoint, layer, readout (if there are several), mean, stderr,
            tied (with the best), and the raw score on each task under its name. An arm that lacks
            tasks has missing values.

        Examples
        --------
        >>> board.to_frame().query("tied")  # doctest: +SKIP
        """
        import pandas

        columns = {
            "rank": pandas.array([row.rank for row in self.arms], dtype="Int64"),
            "model": [row.arm.model for row in self.arms],
            "checkpoint": [row.arm.revision for row in self.arms],
            "layer": [row.arm.layer for row in self.arms],
            "readout": [row.arm.readout for row in self.arms],
            "mean": np.array([row.mean for row in self.arms], float),
            "stderr": np.array([row.stderr for row in self.arms], float),
            "tied": pandas.array([row.tied for row in self.arms], dtype="boolean"),
        }
        if not self._several_readouts:
            del columns["readout"]
        for task in self.weights:
            name = f"{task} (task)" if task in columns else task
            scores = [row.scores.get(task, (None, None))[0] for row in self.arms]
            columns[name] = np.array(scores, float)
        return pandas.DataFrame(columns)

    @property
    def _several_readouts(self) -> bool:
        return len({row.arm.readout for row in self.arms}) > 1

    @property
    def _checkpoint(self) -> Checkpoint | None:
        """The only checkpoint of the arms; None if there are several."""
        checkpoints = {row.arm.checkpoint for row in self.arms}
        return checkpoints.pop() if len(checkpoints) == 1 else None

    def cells(self, row: RankedArm) -> list[tuple[float | None, float | None]]:
        """The mean of a row and its scores by task, each with its error."""
        scores = [row.scores.get(task, (None, None)) for task in self.weights]
        return [(row.mean, row.stderr), *scores]

    def table(self) -> Table:
        """The best arms as a table of text: for a single checkpoint layers and readouts, else whole
        names of arms.
        """
        tasks = list(self.weights)[:TEXT_TASKS]
        if len(self.weights) == 1:
            tasks = []
        columns: dict[str, Callable[[Arm], str]] = {"candidate": str}
        title = "Leaderboard"
        if self._checkpoint:
            columns = {"layer": lambda arm: str(arm.layer)}
            title = f"Layers of {self._checkpoint}"
            if self._several_readouts:
                columns["readout"] = lambda arm: arm.readout or "default"
        rows = []
        for row in self.arms[:TEXT_ROWS]:
            named = [text(row.arm) for text in columns.values()]
            mean = number(row.mean, row.stderr) if row.mean is not None else ""
            scores = [number(row.scores[task][0]) if task in row.scores else "" for task in tasks]
            rows.append((*named, mean, "tied" if row.tied else "", *scores))
        header = (*columns, "score", "best", *tasks)
        return Table(header, tuple(rows), title, tuple(self._notes(tasks)))

    def _notes(self, shown: Collection[str]) -> list[str]:
        """What the columns say, and what is left out."""
        counted = {task: weight for task, weight in self.weights.items() if weight}
        score = next(iter(counted), "no task")
        if len(self.weights) > 1:
            score = over(counted.values())
        notes = [f"Score: {score} ± standard error. Tied: within the error of the best (95 %)."]
        notes += self.remarks
        if self.reward != "mean":
            notes.append(f"Compared by {self.reward}, as in the search.")
        if missing := sum(row.rank is None for row in self.arms):
            notes.append(
                f"{plural(missing, 'candidate')} not scored on every task: without a mean."
            )
        hidden = {"candidate": len(self.arms) - TEXT_ROWS}
        if shown:
            hidden["task"] = len(self.weights) - len(shown)
        for noun, count in hidden.items():
            if count > 0:
                notes.append(f"{plural(count, noun)} not shown; to_frame() has all.")
        return notes

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw mean scores with standard errors: along the layers of a single checkpoint, or the
        best arms as a list.

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
        from daskmetrics.report.plots.figures import mean_scores

        ranked = [row for row in self.arms if row.mean is not None]
        if not ranked:
            raise DataError(
                "No candidate was scored on every task of the objective, so there is no mean score"
                " to draw."
            )
        by_layer = self._checkpoint is not None and not self._several_readouts
        return mean_scores(ranked, by_layer, ax)

    def save(self, folder: str | Path) -> Path:
        """Save the best candidate of `daskmetrics.layers` as a model of sentence-transformers.

        Parameters
        ----------
        folder : str or Path
            A new or an empty folder.

        Returns
        -------
        Path
            The folder; the model ends at the layer.

        Raises
        ------
        ConfigError
            If the folder is not empty, or the leaderboard is of a run, which has ``best().save``.
        DataError
            If sentence-transformers cannot do what the candidate does, such as join layers.

        Examples
        --------
        >>> dm.layers("./minilm", "reviews.csv").save("my-encoder")  # doctest: +SKIP
        """
        if self.saver is None:
            raise ConfigError("Save the best candidate of a run with run.best().save(folder).")
        best = self.arms[0]
        card = f"{best.arm}: {number(best.mean, best.stderr)} on {listed(list(self.weights))}."
        return self.saver(best.arm, folder, card)

    def __str__(self) -> str:
        return self.table().as_text()

    def _repr_html_(self) -> str:
        return self.table().as_html()


def _measure(task: Task, scored: Scored | None) -> str:
    """What the score of a task is, of how many items, and what a guess would have.

    >>> from daskmetrics.tasks import resolve
    >>> _measure(resolve(["stdlib:order"])[0], None)
    'stdlib:order is measured by accuracy (chance: 0.500).'
    """
    items = f" of {scored.n:,} items" if scored else ""
    chance = getattr(task, "chance", None)
    guess = "" if chance is None else f" (chance: {chance:.3f})"
    return f"{task.name} is measured by {task.main_score}{items}{guess}."

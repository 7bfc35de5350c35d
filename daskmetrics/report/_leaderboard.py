"""Candidates ordered by their mean score, with errors, as a table, a frame and a figure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import astuple, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from daskmetrics.answer import ties
from daskmetrics.answer.answer import (
    WORTH,
    CheaperArm,
    RankedArm,
    is_guess,
    offered,
    over_floor,
    ranked_arms,
    simpler_arms,
    simplest_within,
)
from daskmetrics.answer.sizes import ArmCost, model_size
from daskmetrics.core.errors import ConfigError, DataError
from daskmetrics.core.table import Table, text_width
from daskmetrics.core.text import listed, plural, score_text
from daskmetrics.domain.names import Arm, Checkpoint, Suite
from daskmetrics.domain.outcomes import BEYOND_ERROR, WITHIN_ERROR, Difference
from daskmetrics.domain.results import Scored
from daskmetrics.domain.scores import Scores
from daskmetrics.report._format import (
    WIDTH,
    gain_text,
    headline,
    mean_over,
    measured,
    need_matplotlib,
    percent,
    saving,
)

if TYPE_CHECKING:
    import pandas
    from matplotlib.axes import Axes

    from daskmetrics.experiment.direct import LayerScores
    from daskmetrics.tasks import Task

COLUMNS = ("rank", "model", "checkpoint", "layer", "readout", "mean", "stderr", "tied")
MOST_LINES = 8  # of the figure
MOST_ROWS, MOST_TASKS = 20, 4  # of the table; `to_frame` has all


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
    found : LayerScores, optional
        What was scored here and now, if the arms are not those of a run.
    simpler : tuple of CheaperArm
        The layers to take in place of the best, cheapest first: those within its error, and those
        that may lose less than any cheaper one.
    suites : mapping
        The layers of each checkpoint, by whose names they are shown.

    Examples
    --------
    >>> from daskmetrics.domain.results import Scored
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
    found: LayerScores | None = field(default=None, compare=False)
    simpler: tuple[CheaperArm, ...] = field(default=(), compare=False)
    suites: Mapping[Checkpoint, Suite] = field(default_factory=dict, compare=False)

    @classmethod
    def of(
        cls,
        recorded: Mapping[Arm, Mapping[str, Scored]],
        weights: Mapping[str, float],
        tied: Collection[Arm] | None = None,
        best: Arm | None = None,
    ) -> Leaderboard:
        """The leaderboard of recorded scores.

        Parameters
        ----------
        recorded : mapping
            Scores by arm and task; with ``outcomes``, where known, arms are compared item by item.
        weights : mapping
            Weight of each task in the mean, by name.
        tied : collection of Arm, optional
            The arms that are within the error of the best; by default they are tested here, by raw
            scores.
        best : Arm, optional
            The first of arms with equal means.
        """
        scores = Scores(recorded, list(weights))
        return cls(ranked_arms(scores, weights, tied, best), dict(weights))

    @classmethod
    def of_layers(cls, found: LayerScores) -> Leaderboard:
        """The leaderboard of what was scored here and now."""
        weights = {task.name: 1.0 for task in found.tasks}
        sizes = {}
        for model in {arm.model for arm in found.recorded}:
            scores = {arm: row for arm, row in found.recorded.items() if arm.model == model}
            widths = [score.dimensions or 0 for row in scores.values() for score in row.values()]
            sizes[model] = model_size(scores, weights, max(widths, default=0))

        def cost(arm: Arm) -> ArmCost:
            return sizes[arm.model].cost(arm)

        def simplicity(arm: Arm) -> tuple[float, float, Arm]:
            is_read = arm.checkpoint in found.models  # else nothing is known of its operations
            return cost(arm).flops if is_read else 0.0, cost(arm).bytes, arm

        tied = best = None
        simpler: tuple[CheaperArm, ...] = ()
        if tested := ties.tested(found.recorded, weights):
            tied, best = tested.tied, tested.best_arm
            simpler = simpler_arms(tested, simplicity, cost)
        arms = ranked_arms(found.recorded, weights, tied, best)
        return cls(arms, weights, found, simpler, found.suites)

    def cheaper(self, within: float = WORTH) -> CheaperArm | None:
        """The cheapest layer that loses at most a share of the score, in the worst case (95 %).

        Of those that `daskmetrics.layers` scored; None if only the best loses so little.
        """
        return simplest_within(self.simpler, self.arms[0].mean, within)

    def to_frame(self) -> pandas.DataFrame:
        """One row per arm, best first.

        Returns
        -------
        pandas.DataFrame
            Columns: rank, model, checkpoint, layer, readout (if one was chosen), mean, stderr,
            tied (with the best), and the raw score on each task under its name. An arm that lacks
            tasks has missing values.

        Examples
        --------
        >>> board.to_frame().query("tied")  # doctest: +SKIP
        """
        import pandas

        rows = []
        for row in self.arms:
            arm = astuple(row.arm)
            scores = [row.scores.get(task, (None, None))[0] for task in self.weights]
            rows.append((row.rank, *arm, row.mean, row.stderr, row.tied, *scores))
        tasks = [f"{task} (task)" if task in COLUMNS else task for task in self.weights]
        frame = pandas.DataFrame(rows, columns=[*COLUMNS, *tasks])
        kinds = {"rank": "Int64", "tied": "boolean"}
        numbers = dict.fromkeys(["mean", "stderr", *tasks], float)
        frame = frame.astype({**numbers, **kinds})
        frame["layer"] = self._layers
        if not frame["readout"].any():
            frame = frame.drop(columns="readout")
        return frame

    @property
    def _layers(self) -> list[int | str]:
        layers: list[int | str] = []
        for row in self.arms:
            suite = self.suites.get(row.arm.checkpoint)
            layers.append(suite.layer_name(row.arm.layer) if suite else row.arm.layer)
        return layers

    def named(self, arm: Arm) -> str:
        """What a candidate is called, with the name that its layer has.

        Examples
        --------
        >>> board.named(board.arms[0].arm)  # doctest: +SKIP
        """
        suite = self.suites.get(arm.checkpoint)
        return suite.arm_name(arm) if suite else str(arm)

    def table(self) -> Table:
        """The best arms: layers of a checkpoint, or whole names."""
        shown = self.arms[:MOST_ROWS]
        checkpoints = {row.arm.checkpoint for row in self.arms}
        title = "Leaderboard"
        header = ["candidate"]
        columns = [[self.named(row.arm) for row in shown]]
        if len(checkpoints) == 1:
            title = f"Layers of {checkpoints.pop()}"
            header = ["layer"]
            columns = [[*map(str, self._layers[:MOST_ROWS])]]
            if any(row.arm.readout for row in self.arms):
                header.append("readout")
                columns.append([row.arm.readout or "default" for row in shown])
        header += [self._measure, "best"]
        # a best one without others within its error is no tie
        tie = "tied" if sum(bool(row.tied) for row in self.arms) > 1 else "best"
        columns.append([score_text(row.mean, row.stderr) if row.rank else "" for row in shown])
        columns.append([tie if row.tied else "" for row in shown])
        tasks = list(self.weights)[:MOST_TASKS] if len(self.weights) > 1 else []
        for task in tasks:
            header.append(task)
            columns.append(
                [score_text(row.scores[task][0]) if task in row.scores else "" for row in shown]
            )
        rows = list(zip(*columns, strict=True))
        return Table(header, rows, title, self._notes())

    def _notes(self) -> list[str]:
        counted = [weight for weight in self.weights.values() if weight]
        meaning = next(iter(self.weights), "no task")
        if len(self.weights) > 1:
            meaning = mean_over(counted)
        notes: list[str] = []
        by_task: list[str] = []
        if found := self.found:
            best = self.arms[0].arm
            notes = [*self._answer(found), *self._gain_note(found, best)]
            if len(found.tasks) == 1:
                meaning += f", {_items_of(found, found.tasks[0], best)},"
            else:
                by_task = [f"{task.name}: {_items_of(found, task, best)}." for task in found.tasks]
        notes.append(
            f"Score: {meaning} ± standard error. Tied: within the error of the best (95 %)."
        )
        notes += by_task[:MOST_TASKS]
        if missing := sum(row.rank is None for row in self.arms):
            notes.append(
                f"{plural(missing, 'candidate')} not scored on every task: without a mean."
            )
        hidden = len(self.arms) - MOST_ROWS
        if hidden > 0:
            notes.append(f"{plural(hidden, 'candidate')} not shown; to_frame() has all.")
        hidden_tasks = len(self.weights) - MOST_TASKS
        if hidden_tasks > 0:
            notes.append(f"{plural(hidden_tasks, 'task')} not shown; to_frame() has all.")
        return notes

    @property
    def tasks(self) -> Sequence[Task]:
        """The tasks that were scored here and now; none if the scores are those of a run."""
        return self.found.tasks if self.found else ()

    @property
    def over_floor(self) -> Difference | None:
        """How far the best is above what guessing scores; None where that is not known."""
        if not self.tasks:
            return None
        best = self.arms[0]
        return over_floor(self.tasks, self.weights, best.mean, best.stderr)

    def within(self, share: float) -> str:
        """The cheapest layer that loses at most a share of the score, in a sentence."""
        if cheaper := self.cheaper(share):
            name = self._short_name(cheaper.arm)
            return f"Within {percent(share)} (95 %): {name}: {saving(cheaper)}."
        best = self._short_name(self.arms[0].arm)
        return f"Within {percent(share)} (95 %): only the best, {best}; cheaper ones may lose more."

    @property
    def _measure(self) -> str:
        """The column of scores: of one task, its measure."""
        return self.tasks[0].main_score if len(self.tasks) == 1 else "score"

    def _gain_note(self, found: LayerScores, best: Arm) -> list[str]:
        last, gain = found.last_layer(best), found.gain(best)
        name = found.layer_name(last)
        if best == last:
            return [f"The best, layer {name}, is the last layer that was scored."]
        if gain is None:
            return []
        relation, compared = gain.relation, 0
        tied = {row.arm: row.tied for row in self.arms if row.rank}
        if last in tied:
            relation, compared = WITHIN_ERROR if tied[last] else BEYOND_ERROR, len(tied)
        default = f"layer {name}, the last layer of its model that was scored"
        return [f"The best gains {gain_text(gain, default, relation, compared)}."]

    def _answer(self, found: LayerScores) -> list[str]:
        """What to use, and what is cheaper."""
        best = self.arms[0]
        score = measured(found.tasks, self.weights, best.mean, best.stderr)
        tied = sum(bool(row.tied) for row in self.arms)
        simpler = offered(self.cheaper(), self.simpler, tied > 1)
        cheapest = self._short_name(simpler.arm) if simpler else ""
        guess = is_guess(self.over_floor)
        notes = [f"Use {headline(self._short_name(best.arm), score, tied, cheapest, guess)}."]
        if simpler and not guess:
            notes.append(f"Cheaper: {cheapest}: {saving(simpler)}.")
        return notes

    def _short_name(self, arm: Arm) -> str:
        """A layer of the only checkpoint, or the whole name."""
        if self.found and len(self.found.suites) == 1 and not arm.readout:
            return f"layer {self.found.layer_name(arm)}"
        return self.named(arm)

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw mean scores with standard errors along the layers.

        Each of the best checkpoints and readouts has a line.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, optional
            Where to draw; by default a new figure.

        Returns
        -------
        matplotlib.axes.Axes

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
        import pandas

        from daskmetrics.report.figures import BESIDE, axes_for, layer_lines, shared_names

        rows = []
        for row in self.arms:
            if row.rank:
                label = f"{row.arm.checkpoint} {row.arm.readout}".strip()
                rows.append((row.arm.layer, row.mean, row.stderr, row.tied, label))
        if not rows:
            raise DataError(
                "No candidate was scored on every task of the objective, so there is no mean score"
                " to draw."
            )
        points = pandas.DataFrame(rows, columns=["layer", "value", "error", "tied", "label"])
        first_labels = points["label"].unique()[:MOST_LINES]
        points = points[points["label"].isin(first_labels)]
        names = {name.model: suite.layer_names for name, suite in self.suites.items()}
        called = shared_names([row.arm for row in self.arms], names)
        points.attrs.update(label=self._measure, are_scores=True, layer_names=called)
        ax = axes_for(ax)
        layer_lines(ax, points)
        ax.legend(**BESIDE)
        return ax

    def save(self, folder: str | Path, within: float | None = None) -> Path:
        """Save the best candidate of `daskmetrics.layers` as a model of sentence-transformers.

        Parameters
        ----------
        folder : str or Path
            A new or an empty folder.
        within : float, optional
            Save the cheapest candidate that loses at most this share of the score, as `cheaper`
            names it; by default the best.

        Returns
        -------
        Path
            The folder; the model ends at the layer.

        Raises
        ------
        ConfigError
            If the folder is not empty, or the leaderboard is of vectors, or of a run, which has
            ``best().save``.
        DataError
            If sentence-transformers cannot do what the candidate does, such as join layers.

        Examples
        --------
        >>> dm.layers("./minilm", "reviews.csv").save("my-encoder")  # doctest: +SKIP
        """
        if self.found is None:
            raise ConfigError("Save the best candidate of a run with run.best().save(folder).")
        row = self.arms[0]
        if within and (cheaper := self.cheaper(within)):
            (row,) = (row for row in self.arms if row.arm == cheaper.arm)
        score = measured(self.tasks, self.weights, row.mean, row.stderr)
        card = f"{self.named(row.arm)}: {score} on {listed(list(self.weights))}."
        return self.found.save(row.arm, folder, card)

    def __repr__(self) -> str:
        return self.table().as_text(text_width(WIDTH))

    def _repr_html_(self) -> str:
        return self.table().as_html()


def _items_of(found: LayerScores, task: Task, best: Arm) -> str:
    """The measure of a task, over what it is a mean and, of several tasks, what guessing scores."""
    text = task.main_score
    if score := found.recorded[best].get(task.name):
        text += f" of {score.n:,} items"
    if groups := getattr(task, "groups", 0):
        text += f" in {plural(groups, 'group')}"
    if task.floor and len(found.tasks) > 1:
        text += f" ({task.floor.text})"
    return text

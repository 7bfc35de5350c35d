"""A run and its answer: the best candidate, the verdict, the leaderboard and the figures."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

from daskmetrics.answer.answer import Answer, answer_of
from daskmetrics.answer.recorded import RecordedRun
from daskmetrics.answer.verdict import Verdict
from daskmetrics.core.events import scored
from daskmetrics.report._best import Best, best_of
from daskmetrics.report._format import card, percent
from daskmetrics.report._leaderboard import Leaderboard
from daskmetrics.report._plots import Plots
from daskmetrics.report._sections import answer_rows, use

if TYPE_CHECKING:
    import pandas

    from daskmetrics.cluster import ProfileCluster


FRAME_COLUMNS = [
    "model",
    "checkpoint",
    "layer",
    "readout",
    "task",
    "kind",
    "score",
    "stderr",
    "seconds",
]


UNFINISHED = "unfinished"
#: What a notebook proposes of a run.
DOOR = [
    "answer",
    "best",
    "cluster",
    "config",
    "folder",
    "leaderboard",
    "metrics",
    "plot",
    "scores",
    "state",
    "to_frame",
    "verdict",
]


def state_word(run: RecordedRun) -> str:
    """Whether a run is finished, in a word."""
    if run.finished:
        return "finished"
    return UNFINISHED


class Run(RecordedRun):
    """A run's configuration, results and answer.

    Parameters
    ----------
    path : str or Path
        The run's folder.

    Raises
    ------
    ConfigError
        If there is no run in this folder.
    DataError
        If the run has not started, or its journal is damaged.

    Examples
    --------
    >>> run = dm.open("runs/demo")  # doctest: +SKIP
    >>> run.best(), run.leaderboard(), run.plot.heatmap()  # doctest: +SKIP
    """

    def __dir__(self) -> list[str]:
        return DOOR

    def __repr__(self) -> str:
        return f"<Run {self.folder.path}: {self.headline}>"

    def _repr_html_(self) -> str:
        rows = {"state": self.state, "folder": str(self.folder.path)}
        if self.result:
            rows |= answer_rows(self.answer)
        else:
            rows["done"] = self.done
        return card(self.start.name, rows)

    @property
    def headline(self) -> str:
        """The answer in one line, or the progress while there is none."""
        if self.result:
            return use(self.answer)
        return f"{state_word(self)}, {self.done}"

    @property
    def state(self) -> str:
        """Whether the run is finished, running or interrupted, in a sentence."""
        if self.finished:
            return "finished"
        if self.driver:
            return f"running, driven by {self.driver}"
        return "unfinished, and no process drives it; run the same command again to resume"

    @property
    def done(self) -> str:
        """How many checkpoints have their metrics, and how much is scored."""
        measured = "no metrics"
        if self.config["metrics"]:
            done = self.counts["measure", "ok"]
            measured = f"{done:,} of {self.start.checkpoints:,} checkpoints measured"
        search = "no tasks"
        if self.tasks:
            search = self.searched
        return f"{measured}, {search}"

    @property
    def searched(self) -> str:
        """How many scores are known, and how many failed or are open."""
        scored, planned = self.counts["score", "ok"], self.cells_planned
        if not planned:
            return "nothing to score"
        counts = [f"{scored:,} of {planned:,} scores ({percent(scored / planned)})"]
        if failed := sum(record.kind == "score" for record in self.failed):
            counts.append(f"{failed:,} failed")
        if self.cells_open:
            counts.append(f"{self.cells_open:,} open")
        return ", ".join(counts)

    def cluster(self, **changes: Any) -> ProfileCluster:
        """Workers with the cluster profile of the run, for further work with its models;
        ``close()`` stops them.

        Parameters
        ----------
        **changes
            Keys that replace those of the profile, such as ``workers=2``.

        Examples
        --------
        >>> with run.cluster(workers=2) as cluster:  # doctest: +SKIP
        ...     cluster.client.submit(sum, [1, 2]).result()
        """
        from daskmetrics.cluster import ProfileCluster

        return ProfileCluster(self.config["cluster"], run=f"{self.start.name}-notebook", **changes)

    @cached_property
    def answer(self) -> Answer:
        """All numbers of the answer; what `best --json` prints.

        Raises
        ------
        DataError
            If the run has no tasks, or its search is not finished.
        """
        return answer_of(self)

    def best(self) -> Best:
        """The recommended arm.

        Raises
        ------
        DataError
            If the run has no tasks, or its search is not finished.

        Examples
        --------
        >>> vectors = run.best().load().encode(["a text", "another"])  # doctest: +SKIP
        """
        return best_of(self, self.answer)

    @property
    def verdict(self) -> Verdict:
        """The arms that are within the error of the best, over all tasks and for each; see
        `Verdict`.

        Raises
        ------
        DataError
            If the run has no tasks, or its search is not finished.
        """
        return self.answer.verdict

    @property
    def plot(self) -> Plots:
        """Figures as axes of matplotlib: ``layers``, ``heatmap``, ``search`` and ``tradeoff``; see
        `Plots`.
        """
        return Plots(self)

    def leaderboard(self) -> Leaderboard:
        """All arms with a score, ordered by their mean over the tasks of the objective.

        Returns
        -------
        Leaderboard
            Arms that were scored on every task of the objective come first, best first; tied are
            those that the verdict cannot tell from the best, or the same test on raw scores while
            the search is not finished. Arms that lack tasks follow without rank and mean, those
            with the most scores first.

        Examples
        --------
        >>> run.leaderboard().to_frame()  # doctest: +SKIP
        """
        weights = {task: self.weights.get(task, 0.0) for task in self.tasks}
        if self.result is None:
            return Leaderboard.of(self.recorded, weights)
        return Leaderboard.of(
            self.recorded, weights, set(self.verdict.overall.tied), self.verdict.reward
        )

    def to_frame(self) -> pandas.DataFrame:
        """One row per scored cell.

        Returns
        -------
        pandas.DataFrame
            Columns: model, checkpoint, layer, readout (if there are several), task, kind (of the
            task), score (raw), stderr (its standard error) and seconds (of scoring, on the worker),
            in the order of the journal.

        Examples
        --------
        >>> run.to_frame().pivot_table(index="layer", columns="task", values="score")  # doctest: +SKIP
        """
        import pandas

        rows = []
        for record, result in scored(self.records):
            cell = self.cells[record.key]
            rows.append(
                {
                    "model": cell.arm.model,
                    "checkpoint": cell.arm.revision,
                    "layer": cell.arm.layer,
                    "readout": cell.arm.readout,
                    "task": cell.task,
                    "kind": self.kinds[cell.task],
                    "score": result.score,
                    "stderr": result.stderr,
                    "seconds": record.seconds,
                }
            )
        frame = pandas.DataFrame(rows, columns=FRAME_COLUMNS)
        if frame["readout"].nunique() <= 1:
            return frame.drop(columns="readout")
        return frame

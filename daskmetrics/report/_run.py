"""A run and its answer: the best arm, the verdict, the leaderboard and the figures."""

from __future__ import annotations

import math
from functools import cached_property
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from daskmetrics.core._events import succeeded
from daskmetrics.core.errors import DataError
from daskmetrics.core.names import Checkpoint
from daskmetrics.report._analysis import suites as suites_of
from daskmetrics.report._best import Best, best_of
from daskmetrics.report._evidence import Evidence
from daskmetrics.report._format import card, number
from daskmetrics.report._leaderboard import Leaderboard
from daskmetrics.report._outlook import outlook
from daskmetrics.report._plots import Plots
from daskmetrics.report._recorded import RecordedRun
from daskmetrics.report._verdict import Verdict, verdict_of
from daskmetrics.report._worth import Worths, worths_of

if TYPE_CHECKING:
    import pandas

    from daskmetrics.cluster import ProfileCluster

ARM_COLUMNS = ("model", "checkpoint", "layer")
CELL_COLUMNS = ("task", "kind", "score", "stderr", "seconds")


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

    def __repr__(self) -> str:
        return f"<Run {self.folder.path}: {self.headline}>"

    def _repr_html_(self) -> str:
        rows = {
            "state": self.state,
            "answer": self.verdict.answer if self.result else self.headline,
            "searched": self.searched if self.tasks else "no tasks",
            "folder": str(self.folder.path),
        }
        return card(self.start.name, rows)

    @property
    def headline(self) -> str:
        """The answer in one line, or the progress while there is none."""
        if self.result:
            best = self.best()
            return f"{best.name}, mean score {number(best.score, best.stderr)}"
        state = "finished" if self.finished else "unfinished"
        return f"{state}, {self.measured} measured, {self.searched if self.tasks else 'no tasks to search'}"

    def cluster(self, **changes: Any) -> ProfileCluster:
        """Workers with the cluster profile of the run, for further work with its models; ``close()`` stops them.

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
        if self.result is None:
            raise DataError(f"The run in '{self.folder.path}' has no best arm. {self._remedy()}")
        differences = self.differences(self.result.best_arm, self.result.default_arm)
        return best_of(
            self.result,
            self.config,
            weights=self.weights,
            relation=self.verdict.relation_to_default,
            differences=differences,
            folder=self.folder,
            outlook=dict(
                outlook(
                    self.result,
                    self.entries,
                    self.config["search"],
                    self.differences,
                    unseen=self.verdict.unscored_models,
                )
            ),
        )

    @cached_property
    def _evidence(self) -> Evidence:
        """What the verdict rests on."""
        if self.result is None:
            raise DataError(f"The run in '{self.folder.path}' has no verdict. {self._remedy()}")
        measured = {Checkpoint.parse(record.name) for record in succeeded(self.records, "measure")}
        suites = suites_of(self)
        arms = tuple(arm for suite in suites for arm in suite.arms() if arm.checkpoint in measured)
        depths = {suite.model: suite.depth for suite in suites}
        return Evidence(
            config=self.config,
            folder=self.folder.path,
            answer=self.result,
            kinds=self.kinds,
            arms=arms,
            sizes={model: float(self.start.widths.get(model, 0)) ** 2 * depth for model, depth in depths.items()},
            recorded=self.recorded,
            seconds={self.cells[record.key]: record.seconds for record in succeeded(self.records, "score")},
            widths=self.start.widths,
        )

    @cached_property
    def verdict(self) -> Verdict:
        """The arms that are within the error of the best, over all tasks and for each; see `Verdict`.

        Raises
        ------
        DataError
            If the run has no tasks, or its search is not finished.
        """
        return verdict_of(self._evidence)

    @property
    def plot(self) -> Plots:
        """Figures as axes of matplotlib: ``layers``, ``heatmap``, ``search`` and ``tradeoff``; see `Plots`."""
        return Plots(self)

    def leaderboard(self) -> Leaderboard:
        """All arms with a score, ordered by their mean over the tasks of the objective.

        Returns
        -------
        Leaderboard
            Arms that were scored on every task of the objective come first, best first; tied are those that the
            verdict cannot tell from the best, or the same test on raw scores while the search is not finished. Arms
            that lack tasks follow without rank and mean, those with the most scores first.

        Examples
        --------
        >>> run.leaderboard().to_frame()  # doctest: +SKIP
        """
        weights = {task: self.weights.get(task, 0.0) for task in self.tasks}
        if self.result is None:
            return Leaderboard.of(self.recorded, weights)
        return Leaderboard.of(self.recorded, weights, set(self.verdict.tied), self.verdict.reward)

    def to_frame(self) -> pandas.DataFrame:
        """One row per scored cell.

        Returns
        -------
        pandas.DataFrame
            Columns: model, checkpoint, layer, readout (if there are several), task, kind (of the task), score (raw),
            stderr (its standard error) and seconds (of scoring, on the worker), in the order of the journal.

        Examples
        --------
        >>> run.to_frame().pivot_table(index="layer", columns="task", values="score")  # doctest: +SKIP
        """
        import pandas

        several = len({cell.arm.readout for cell in self.cells.values()}) > 1
        place = attrgetter("model", "revision", "layer", *(["readout"] if several else []))
        rows = [
            (*place(cell.arm), cell.task, self.kinds[cell.task], value["score"], value["stderr"], each.seconds)
            for each in succeeded(self.records, "score")
            for cell, value in [(self.cells[each.key], each.value)]
        ]
        return pandas.DataFrame(rows, columns=[*ARM_COLUMNS, *(["readout"] if several else []), *CELL_COLUMNS])

    def pareto(self) -> pandas.DataFrame:
        """The arms that no other arm beats in both score and cost: the front of `trade_offs`, cheapest pass first.

        Returns
        -------
        pandas.DataFrame
            Columns: model, checkpoint, layer, readout (if there are several), score (mean over the tasks of the
            objective), stderr, bytes (of a vector, as an index stores it), texts_per_second (measured for the deepest
            layer that the run read, computed for the others by their share of the operations; missing for the
            embedding, which has none, and for runs that recorded no times), dimensions, parameters and operations.

        Raises
        ------
        DataError
            If no arm was scored on all tasks of the objective.

        Examples
        --------
        >>> run.pareto().plot.scatter("bytes", "score")  # doctest: +SKIP
        """
        import pandas

        front = self.trade_offs().front
        rows = [
            {
                **dict(zip((*ARM_COLUMNS, "readout"), vars(each.arm).values(), strict=True)),
                "score": each.score,
                "stderr": each.stderr,
                "bytes": each.cost.bytes,
                "texts_per_second": each.cost.texts_per_second or math.nan,
                "dimensions": each.cost.dimensions,
                "parameters": each.cost.parameters,
                "operations": each.cost.flops,
            }
            for each in front
        ]
        several = len({arm.readout for arm in self.recorded}) > 1
        return pandas.DataFrame(rows).drop(columns=[] if several else ["readout"])

    @cached_property
    def worth(self) -> Worths:
        """What each choice of the readouts is worth, paired; empty for a run of one readout.

        Examples
        --------
        >>> print(run.worth.sentence)  # doctest: +SKIP
        last token loses 0.040 ± 0.006; int8: nothing beyond the error (-0.000 ± 0.001)
        """
        return worths_of(self.recorded, self.weights)

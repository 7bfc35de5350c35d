"""The figures of a run as axes of matplotlib or as figures of Bokeh that one can go on with."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from daskmetrics.answer import analysis
from daskmetrics.answer.recorded import RecordedRun
from daskmetrics.core.errors import ConfigError, DataError, unknown
from daskmetrics.core.names import Suite
from daskmetrics.report.plots import need_matplotlib
from daskmetrics.report.plots.quantities import (
    COST_NAMES,
    LINES,
    Field,
    decisions,
    drawn_arms,
    expectation_of,
    lines,
    mean_field,
    metric_fields,
    suite_of,
    task_field,
)

if TYPE_CHECKING:
    from bokeh.plotting import figure
    from matplotlib.axes import Axes

SCORE = "score"  # the mean over the tasks


class Plots:
    """The figures of a run, one panel each; `Run.plot` makes it.

    Every method draws on the axes that it is given, or on those of a new figure, and returns them;
    with ``interactive=True`` it returns a Bokeh figure with tooltips and zoom, as the report has
    it, which needs no matplotlib. What can be drawn as ``what`` is ``score`` (the mean over all
    tasks, of the arms scored on every one), a task, or a metric.

    Parameters
    ----------
    run : Run

    Examples
    --------
    >>> run.plot.layers("prompt_entropy").set_title("Entropy")  # doctest: +SKIP
    >>> bokeh.io.show(run.plot.heatmap(interactive=True))  # doctest: +SKIP
    """

    def __init__(self, run: RecordedRun) -> None:
        self._run = run

    def layers(
        self,
        what: str = SCORE,
        model: str | None = None,
        ax: Axes | None = None,
        interactive: bool = False,
        readout: str | None = None,
    ) -> Axes | figure:
        """A quantity along the layers of a model, with standard errors: one line for each of at
        most eight checkpoints. The score of a single checkpoint has a line for each task, too.

        The legend names the layers without a value, and the axis spans at least some errors.

        Parameters
        ----------
        what : str
            ``score``, or the name of a task or a metric.
        model : str, optional
            By default the model of the best arm, or the last one.
        ax : matplotlib.axes.Axes, optional
        interactive : bool
        readout : str, optional
            Name of a readout, such as ``last,256d``; by default of each layer the one with the best
            mean score.

        Returns
        -------
        matplotlib.axes.Axes or bokeh.plotting.figure

        Raises
        ------
        ConfigError
            If there is no such model, task, metric or readout, if matplotlib is not installed, or
            if an interactive figure gets axes.
        DataError
            If nothing is measured yet.

        Examples
        --------
        >>> run.plot.layers()  # doctest: +SKIP
        """
        shown, suite = self._shown(what, model, readout, ax, interactive)
        drawn = lines(shown, suite)
        if interactive:
            from daskmetrics.dashboard import drawing

            return drawing.layer_lines(drawn.attrs.get("label", "score"), drawn)
        from daskmetrics.report.plots import figures

        ax = figures.axes_for(ax)
        figures.layer_lines(ax, drawn)
        ax.set_title(f"{shown[0].name}, {suite.model}")
        ax.legend(loc="center left", bbox_to_anchor=(1, 0.5), frameon=False)
        return ax

    def heatmap(
        self,
        what: str = SCORE,
        model: str | None = None,
        ax: Axes | None = None,
        interactive: bool = False,
        readout: str | None = None,
    ) -> Axes | figure:
        """A quantity of a model by checkpoint (from left to right) and layer (from below).

        Parameters, result and errors are those of `layers`.

        Examples
        --------
        >>> run.plot.heatmap("stdlib:order")  # doctest: +SKIP
        """
        (shown, *_), suite = self._shown(what, model, readout, ax, interactive)
        marks = analysis.marks(self._run)
        if interactive:
            from daskmetrics.dashboard import drawing

            arms = drawn_arms(self._run, [suite], readout)
            source = drawing.arms_source(arms, [suite], value=shown.values, error=shown.errors)
            return drawing.heat_map(source, suite, marks)
        from daskmetrics.report.plots import figures

        ax = figures.axes_for(ax)
        figures.heat_map(ax, shown, suite, marks)
        return ax

    def search(self, ax: Axes | None = None, interactive: bool = False) -> Axes | figure:
        """The best mean score so far by what the search has spent, and every decision at the score
        that its arm is expected to have by now.

        Parameters, result and errors are those of `layers`.

        Examples
        --------
        >>> run.plot.search()  # doctest: +SKIP
        """
        _check(ax, interactive)
        if not self._run.picks:
            raise self._nothing("search")
        path = analysis.path_of(self._run)
        rows = decisions(path, expectation_of(self._run))
        if interactive:
            from daskmetrics.dashboard import drawing

            return drawing.search_path(rows, path.unit, path.default)
        from daskmetrics.report.plots import figures

        ax = figures.axes_for(ax)
        figures.search_path(ax, rows, path)
        ax.legend(loc="best")
        return ax

    def tradeoff(
        self, cost: str = "layers", ax: Axes | None = None, interactive: bool = False
    ) -> Axes | figure:
        """Mean score against what arms take; on axes with the line of the best score at each cost.

        Parameters, result and errors are those of `layers`, beside

        cost : {"layers", "parameters", "flops", "dimensions", "bytes"}

        Examples
        --------
        >>> run.plot.tradeoff("flops")  # doctest: +SKIP
        """
        _check(ax, interactive)
        if cost not in COST_NAMES:
            raise unknown("cost", cost, COST_NAMES)
        compared = self._run.trade_offs()
        if interactive:
            from daskmetrics.dashboard import drawing

            suites = analysis.suites(self._run)
            columns = {
                "value": [row.score for row in compared.arms],
                "error": [row.stderr for row in compared.arms],
                "against": [getattr(row.cost, cost) for row in compared.arms],
            }
            source = drawing.arms_source([row.arm for row in compared.arms], suites, **columns)
            return drawing.comparison(source, suites, "mean score", COST_NAMES[cost])
        from daskmetrics.report.plots import figures

        ax = figures.axes_for(ax)
        figures.trade_off(ax, compared, cost)
        ax.set_ylabel("mean score")
        ax.legend(loc="best")
        return ax

    def _shown(
        self, name: str, model: str | None, readout: str | None, ax: Axes | None, interactive: bool
    ) -> tuple[list[Field], Suite]:
        """A quantity of the arms of a model, and of the mean score those of several tasks, too."""
        _check(ax, interactive)
        run = self._run
        metrics = analysis.metrics(run)
        if name not in (SCORE, *run.tasks, *metrics):
            raise unknown("quantity", name, [SCORE, *run.tasks, *metrics])
        suite = suite_of(run, model, readout)
        arms = drawn_arms(run, [suite], readout)
        if name == SCORE:
            shown = [mean_field(run, arms)]
            if len(run.tasks) > 1:  # the mean of one task is its score
                shown += [task_field(run, task, arms) for task in run.tasks][:LINES]
        elif name in run.tasks:
            shown = [task_field(run, name, arms)]
        else:
            shown = [field for field in metric_fields(run, arms) if field.name == name]
        if np.isnan(shown[0].values).all():
            raise self._nothing(name)
        return shown, suite

    def _nothing(self, what: str) -> DataError:
        return DataError(
            f"The run in '{self._run.folder.path}' has no {what} yet, so there is nothing to draw."
        )


def _check(ax: Axes | None, interactive: bool) -> None:
    """Raise before anything is drawn if matplotlib is missing, or not what the figure is made with."""
    if not interactive:
        need_matplotlib()
    elif ax is not None:
        raise ConfigError(
            "An interactive figure cannot be drawn on axes of matplotlib: leave out ax or"
            " interactive."
        )

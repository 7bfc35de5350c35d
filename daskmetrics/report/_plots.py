"""The figures of a run as axes of matplotlib or as figures of Bokeh that one can go on with."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from daskmetrics.answer import analysis
from daskmetrics.answer.recorded import RecordedRun
from daskmetrics.core.errors import ConfigError, DataError, unknown
from daskmetrics.core.names import Suite
from daskmetrics.report.plots import need_matplotlib
from daskmetrics.report.plots.quantities import (
    COST_NAMES,
    Field,
    cost_field,
    decisions,
    expected_field,
    mean_field,
    metric_fields,
    task_field,
)

if TYPE_CHECKING:
    from bokeh.models import ColumnDataSource
    from bokeh.plotting import figure
    from matplotlib.axes import Axes

SCORE = "score"  # the mean over the tasks


class Plots:
    """The figures of a run, one panel each; `Run.plot` makes it.

    Every method draws on the axes that it is given, or on those of a new figure, and returns them;
    with ``interactive=True`` it returns a Bokeh figure, as the report has it. What can be drawn as
    ``what`` is ``score`` (the mean over all tasks, of the arms scored on every one), a task, or a
    metric.

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
        """A quantity along the layers of a model: one line for each of at most eight checkpoints.

        Parameters
        ----------
        what : str
            ``score``, or the name of a task or a metric.
        model : str, optional
            By default the model of the best arm, or the last one.
        ax : matplotlib.axes.Axes, optional
        interactive : bool
            Whether to make a Bokeh figure with tooltips and zoom, which needs no matplotlib.
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
        shown = self._shown(what, ax, interactive)
        suite = self._suite(model, readout)
        if interactive:
            from daskmetrics.dashboard import drawing

            source = self._source(shown, suite, readout)
            if len(suite.revisions) == 1:  # whose errors have room
                return drawing.layer_points(source, [suite], shown.label)
            return drawing.layer_lines(source, suite, shown.label)
        from daskmetrics.report.plots.figures import LAYER, axes_for, layer_lines

        ax = axes_for(ax)
        at_layers = shown.at_layers(self._run, readout)
        measured = {arm.revision for arm in at_layers.values if arm.model == suite.model}
        if revisions := tuple(name for name in suite.revisions if name in measured):
            suite = replace(suite, revisions=revisions)
        layer_lines(ax, at_layers, suite)
        ax.set(xlabel=LAYER, ylabel=shown.units or shown.name, title=shown.name)
        if len(suite.revisions) > 1:
            beside = {"loc": "center left", "bbox_to_anchor": (1, 0.5), "frameon": False}
            ax.legend(title="training step", **beside)
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
        shown = self._shown(what, ax, interactive)
        suite = self._suite(model, readout)
        answer = analysis.marks(self._run)
        if interactive:
            from daskmetrics.dashboard import drawing

            return drawing.heat_map(self._source(shown, suite, readout), suite, answer)
        from daskmetrics.report.plots.figures import MOST_STEPS, axes_for, heat_map

        ax = axes_for(ax)
        at_layers = shown.at_layers(self._run, readout)
        image = heat_map(ax, at_layers, suite, answer, MOST_STEPS // 2)
        title = f"{shown.name}, {suite.model}"
        ax.set(xlabel="training step", ylabel="layer", title=title)
        ax.figure.colorbar(image, ax=ax, label=shown.units or shown.name)
        return ax

    def search(self, ax: Axes | None = None, interactive: bool = False) -> Axes | figure:
        """The best mean score so far by what the search has spent, and every decision at the score
        that its arm is expected to have by now.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, optional
        interactive : bool
            Whether to make a Bokeh figure with tooltips and zoom, which needs no matplotlib.

        Returns
        -------
        matplotlib.axes.Axes or bokeh.plotting.figure

        Raises
        ------
        ConfigError
            If matplotlib is not installed, or if an interactive figure gets axes.
        DataError
            If the search has not begun.

        Examples
        --------
        >>> run.plot.search()  # doctest: +SKIP
        """
        _check(ax, interactive)
        if not self._run.picks:
            raise DataError(
                f"The run in '{self._run.folder.path}' has no search yet, so there is nothing to draw."
            )
        path = analysis.path_of(self._run)
        rows = decisions(path, expected_field(self._run))
        if interactive:
            from daskmetrics.dashboard import drawing

            return drawing.search_path(rows, path.unit, path.default)
        from daskmetrics.report.plots.figures import axes_for, search_path

        ax = axes_for(ax)
        search_path(ax, rows, path)
        ax.legend(loc="best")
        return ax

    def tradeoff(
        self, cost: str = "layers", ax: Axes | None = None, interactive: bool = False
    ) -> Axes | figure:
        """Mean score against what arms take; on axes with the line of the best score at each cost.

        Parameters
        ----------
        cost : {"layers", "parameters", "flops", "dimensions", "bytes"}
        ax : matplotlib.axes.Axes, optional
        interactive : bool
            Whether to make a Bokeh figure with tooltips and zoom, which needs no matplotlib.

        Returns
        -------
        matplotlib.axes.Axes or bokeh.plotting.figure

        Raises
        ------
        ConfigError
            If there is no such cost, if matplotlib is not installed, or if an interactive figure
            gets axes.
        DataError
            If no arm was scored on every task.

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
            arms = [trade_off.arm for trade_off in compared.arms]
            shown, against = mean_field(self._run), cost_field(self._run, arms, cost)
            costs = against.columns(arms)["value"]
            source = drawing.arms_source(arms, suites, **shown.columns(arms), against=costs)
            return drawing.comparison(source, suites, shown.label, against.label)
        from daskmetrics.report.plots.figures import axes_for, trade_off

        ax = axes_for(ax)
        trade_off(ax, compared, cost)
        ax.set_ylabel("mean score")
        ax.legend(loc="best")
        return ax

    def _shown(self, name: str, ax: Axes | None, interactive: bool) -> Field:
        """A quantity of the arms."""
        _check(ax, interactive)
        run = self._run
        metrics = {metric.name: metric for metric in metric_fields(run)}
        if name not in (SCORE, *run.tasks, *metrics):
            raise unknown("quantity", name, [SCORE, *run.tasks, *metrics])
        if name == SCORE:
            shown = mean_field(run)
        elif name in run.tasks:
            shown = task_field(run, name)
        else:
            shown = metrics[name]
        if not shown.values:
            raise DataError(
                f"The run in '{run.folder.path}' has no {name} yet, so there is nothing to draw."
            )
        return shown

    def _source(self, shown: Field, suite: Suite, readout: str | None) -> ColumnDataSource:
        """The columns of the arms of a suite for Bokeh."""
        from daskmetrics.dashboard.drawing import arms_source
        from daskmetrics.report.plots.interactive import drawn_arms

        arms = drawn_arms(self._run, [suite], readout)
        columns = shown.columns(arms)
        return arms_source(arms, [suite], **columns, against=columns["value"])

    def _suite(self, model: str | None, readout: str | None = None) -> Suite:
        suites = {suite.model: suite for suite in analysis.suites(self._run)}
        if model is None:
            model = next(reversed(suites))
            if self._run.result and self._run.result.best_arm.model in suites:
                model = self._run.result.best_arm.model
        if model not in suites:
            raise unknown("model", model, suites)
        if readout not in (None, *suites[model].readouts):
            raise unknown("readout", str(readout), suites[model].readouts)
        return suites[model]


def _check(ax: Axes | None, interactive: bool) -> None:
    """Raise before anything is drawn if matplotlib is missing, or not what the figure is made with."""
    if not interactive:
        need_matplotlib()
    elif ax is not None:
        raise ConfigError(
            "An interactive figure cannot be drawn on axes of matplotlib: leave out ax or interactive."
        )

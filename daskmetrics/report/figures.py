"""The figures of a run drawn with matplotlib: on axes for notebooks, as files for papers."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import cycle, product
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pandas
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, FuncFormatter, MaxNLocator

from daskmetrics.answer import analysis
from daskmetrics.answer.posterior import path_of
from daskmetrics.answer.recorded import RecordedRun
from daskmetrics.answer.trade_offs import TradeOffs, trade_offs_of
from daskmetrics.core.errors import unknown
from daskmetrics.core.files import atomic_write
from daskmetrics.core.telemetry import TelemetrySample, read_samples
from daskmetrics.dashboard.drawing import LAYER, STAGES, labels, least_span, most_of, span
from daskmetrics.domain.names import Arm, LayerNames, Suite, spread, step_label
from daskmetrics.domain.outcomes import Floats
from daskmetrics.report._quantities import (
    COST_NAMES,
    LINES,
    MEASURED,
    SCORES,
    Field,
    Quantities,
    cost_value,
    differing_costs,
)

NAMES = {"scores", "tradeoffs", "layers", "path", "training", "telemetry"}
SCORE = "score"  # the mean over the tasks
KINDS = ("png", "svg")
WIDTH, DPI = 10.0, 150  # inches; dots of each
MOST_STEPS, MOST_LAYERS = 14, 7  # labels of a map
MOST_LOSSES = 48  # points of a line of losses; more show only noise
LOGARITHMIC = 20  # a cost whose greatest value is so many times its least positive one
GAP = 4  # median intervals without a sample: the run was not running
# of Okabe and Ito (2008), which can be distinguished without seeing all colours
COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#d55e00", "#56b4e9", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
DASHES = ("-", "--", ":")  # of lines of one colour
Look = dict[str, Any]  # options of matplotlib, by name
LOOKS: list[Look] = [
    {"color": colour, "marker": marker} for colour, marker in zip(COLOURS, MARKERS, strict=True)
]
STYLE: Look = {
    "font.size": 8.5,
    "axes.titlesize": 8.5,
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "0.9",
    "axes.formatter.useoffset": False,
    "svg.fonttype": "none",  # texts stay texts
    "svg.hashsalt": "daskmetrics",  # the same figure gives the same bytes
}
ABOVE: Look = {"loc": "outside upper left", "ncols": 7}
BESIDE: Look = {"loc": "center left", "bbox_to_anchor": (1, 0.5)}
MARK: Look = {"linestyle": "none", "color": "white", "markeredgecolor": "black", "clip_on": False}
#: name in the legend, and look of the arms that are marked on a map
MARKS: Mapping[str, tuple[str, Look]] = {
    "best": ("best candidate", {"marker": "*", "markersize": 11, **MARK}),
    "default": ("last layer", {"marker": "o", "markersize": 6, **MARK}),
    "tied": ("within its error", {"marker": ".", "markersize": 5, **MARK}),
}
TIED = "large points: the best, and those within its error"

Losses = Sequence[tuple[int, float]]  # training step, nats per token or label
Marks = Mapping[str, Sequence[Arm]]  # arms that are marked, by the names of `MARKS`
MarkedBy = Callable[[str], Marks]  # by the name of the quantity that is drawn


class Plots:
    """The figures of a run, one panel each; `Run.plot` makes it.

    Every method draws on the axes that it is given, or on those of a new figure, and returns them.
    What can be drawn as ``what`` is ``score`` (the mean over all tasks, of the arms scored on every
    one), a task, or a metric.

    Parameters
    ----------
    run : Run
    marked : callable
        Gives the arms that are marked where a quantity is drawn.

    Examples
    --------
    >>> run.plot.layers("prompt_entropy").set_title("Entropy")  # doctest: +SKIP
    """

    def __init__(self, run: RecordedRun, marked: MarkedBy) -> None:
        self._run = run
        self._marked = marked
        self._quantities = Quantities(run)

    def layers(
        self,
        what: str = SCORE,
        model: str | None = None,
        ax: Axes | None = None,
        readout: str | None = None,
    ) -> Axes:
        """A quantity along the layers of a model, with standard errors.

        There is one line for each of at most eight checkpoints. The score of a single checkpoint has a
        line for each task, and of several models with one checkpoint each has a line.

        The legend names the layers without a value, and the axis spans at least some errors.

        Parameters
        ----------
        what : str
            ``score``, or the name of a task or a metric.
        model : str, optional
            By default the model of the best arm, or the last one.
        ax : matplotlib.axes.Axes, optional
        readout : str, optional
            Name of a readout, such as ``last,256d``; by default of each layer the one with the best
            mean score.

        Returns
        -------
        matplotlib.axes.Axes

        Raises
        ------
        ConfigError
            If there is no such model, task, metric or readout, or if matplotlib is not installed.
        DataError
            If nothing is measured yet.

        Examples
        --------
        >>> run.plot.layers()  # doctest: +SKIP
        """
        suites = self._quantities.lined_up(model, readout)
        arms = self._quantities.arms(suites, readout)
        shown = self._shown(what, arms)
        ax = axes_for(ax)
        names = self._run.plan.layer_names
        layer_lines(ax, layer_points(shown, arms, self._marked, names))
        named = [shown[0].name, *(suite.model for suite in suites)]
        if readout:
            named.append(readout)
        ax.set_title(", ".join(named))
        ax.legend(**BESIDE)
        return ax

    def heatmap(
        self,
        what: str = SCORE,
        model: str | None = None,
        ax: Axes | None = None,
        readout: str | None = None,
    ) -> Axes:
        """A quantity of a model by checkpoint and layer.

        Parameters, result and errors are those of `layers`.

        Examples
        --------
        >>> run.plot.heatmap("stdlib:order")  # doctest: +SKIP
        """
        suite = self._quantities.suite(model, readout)
        shown, *_ = self._shown(what, self._quantities.arms([suite], readout))
        ax = axes_for(ax)
        heat_map(ax, shown, suite, self._marked(shown.name))
        return ax

    def search(self, ax: Axes | None = None) -> Axes:
        """The best mean score so far by what was spent.

        Every decision is drawn at the score that its arm is expected to have by now.

        Parameters, result and errors are those of `layers`.

        Examples
        --------
        >>> run.plot.search()  # doctest: +SKIP
        """
        if not self._run.picks:
            raise self._quantities.nothing_to_draw("search")
        ax = axes_for(ax)
        search_path(ax, path_of(self._run))
        ax.legend(loc="best")
        return ax

    def tradeoff(self, cost: str | None = None, ax: Axes | None = None) -> Axes:
        """Mean score against costs, with the best at each cost.

        Parameters, result and errors are those of `layers`, beside

        cost : {"seconds", "layers", "parameters", "bytes"}, optional
            Seconds are of 1,000 texts, bytes of a vector. By default seconds or, of a run that
            recorded no times, layers.

        Examples
        --------
        >>> run.plot.tradeoff("bytes")  # doctest: +SKIP
        """
        if cost not in (None, *COST_NAMES):
            raise unknown("cost", str(cost), COST_NAMES)
        compared = trade_offs_of(self._run)
        has_times = all(arm.cost.seconds is not None for arm in compared.arms)
        if cost is None:
            cost = "seconds" if has_times else "layers"
        if cost == "seconds" and not has_times:
            raise self._quantities.nothing_to_draw(COST_NAMES[cost])
        ax = axes_for(ax)
        trade_off(ax, compared, cost)
        ax.set_ylabel("mean score")
        ax.legend(loc="best")
        return ax

    def _shown(self, name: str, arms: Sequence[Arm]) -> list[Field]:
        metrics = self._quantities.metrics(arms)
        valid = [SCORE, *self._run.kinds, *(field.name for field in metrics)]
        if name not in valid:
            raise unknown("quantity", name, valid)
        shown = self._quantities.scores(arms)
        if name != SCORE:
            shown = [field for field in (*shown, *metrics) if field.name == name]
        if not shown or np.isnan(shown[0].values).all():
            raise self._quantities.nothing_to_draw(name)
        return shown


def axes_for(ax: Axes | None) -> Axes:
    """The given axes, or those of a new figure.

    A notebook shows a new figure by itself.
    """
    if ax is not None:
        return ax
    from matplotlib import pyplot

    with rc_context(STYLE):
        figure = pyplot.figure(figsize=(0.7 * WIDTH, 3.2), layout="constrained")
        axes: Axes = figure.add_subplot()
    return axes


# one panel each


@rc_context(STYLE)
def heat_map(ax: Axes, field: Field, suite: Suite, marks: Marks) -> None:
    """A quantity of one model by checkpoint and layer."""
    # by their numbers: names of checkpoints have no places, and layers may be far apart
    values = field.values.reshape(len(suite.revisions), len(suite.layers)).T
    ax.set_facecolor("0.92")  # of what has no value
    ax.grid(visible=False)
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    # noise is not stretched over the colours
    low, high = span(values, least_span(field.errors), margin=0.0)
    drawn = ax.imshow(values, cmap="cividis", origin="lower", aspect="auto", vmin=low, vmax=high)
    units = field.units or field.name
    ax.figure.colorbar(
        drawn,
        ax=ax,
        label=units,
        ticks=MaxNLocator(4),
        pad=0.02,
    )
    ax.set_yticks(*zip(*labels(suite.layer_labels, MOST_LAYERS), strict=True))
    steps = list(map(step_label, suite.revisions))
    ax.set_xticks(*zip(*labels(steps, MOST_STEPS), strict=True))
    title = f"{field.name}, {suite.model}"
    if np.isfinite(field.errors).any():
        title += f" (standard error {np.nanmedian(field.errors):.2g})"
    ax.set(xlabel="training step", ylabel="layer", title=title)
    checkpoints = set(suite.checkpoints())
    for name, arms in marks.items():
        shown = [arm for arm in arms if arm.checkpoint in checkpoints and arm.layer in suite.layers]
        if shown:
            label, look = MARKS[name]
            x = [suite.revisions.index(arm.revision) for arm in shown]
            ax.plot(x, [suite.layers.index(arm.layer) for arm in shown], label=label, **look)


def layer_points(
    fields: Sequence[Field], arms: Sequence[Arm], marked: MarkedBy, layer_names: LayerNames
) -> pandas.DataFrame:
    """What is drawn along the layers: a row for each point.

    The first `LINES` + 1 fields of a single checkpoint, or the first field of several models, or of
    a few checkpoints of one. The columns are label, layer, value, error, and whether it is tied: the
    best, or within its error.
    """
    checkpoints = list(dict.fromkeys(arm.checkpoint for arm in arms))
    if len(checkpoints) > 1:
        fields = fields[:1]
    drawn = fields[: LINES + 1]
    of_arms = pandas.DataFrame([vars(arm) for arm in arms])
    tables = []
    for field in drawn:
        marks = marked(field.name)
        tied = {*marks.get("best", ()), *marks.get("tied", ())}
        tables.append(
            of_arms.assign(
                label=field.name,
                value=field.values,
                error=field.errors,
                tied=[arm in tied for arm in arms],
            )
        )
    points = pandas.concat(tables)
    points.attrs["are_scores"] = fields[0].group == SCORES
    points.attrs["label"] = fields[0].group
    points.attrs["layer_names"] = shared_names(arms, layer_names)
    if len(fields) == 1:
        points.attrs["label"] = fields[0].label
    if len(drawn) < len(fields):
        points.attrs["note"] = f"{len(drawn)} of {len(fields)} are shown"
    if points["model"].nunique() > 1:
        return points.assign(label=points["model"])
    if len(checkpoints) > 1:
        measured = points.dropna(subset="value")["revision"].unique().tolist()
        points = points[points["revision"].isin(spread(measured, LINES))]
        points = points.assign(label=points["revision"].map(step_label))
        points.attrs["are_checkpoints"] = True
        if unmeasured := len(checkpoints) - len(measured):
            points.attrs["note"] = f"{unmeasured} other checkpoints have no value"
    return points


@rc_context(STYLE)
def layer_lines(ax: Axes, points: pandas.DataFrame) -> None:
    """Lines along the layers with their standard errors.

    The legend names layers without a value, or the only ones with a value if these are fewer.

    The axis spans some errors at least, so that it does not stretch what is smaller than the error.
    """
    called = points.attrs.get("layer_names", {})
    shades: Sequence[object] = COLOURS
    if "are_checkpoints" in points.attrs:  # the later the lighter
        ends = np.linspace(0, 0.92, points["label"].nunique())
        shades = matplotlib.colormaps["cividis"](ends).tolist()
    by_label = points.groupby("label", sort=False)
    looks = product(DASHES, shades)
    for (name, line), (dash, shade) in zip(by_label, cycle(looks)):
        missing = line["layer"][line["value"].isna()].tolist()
        line = line.dropna(subset="value").sort_values("layer")
        if len(missing) > len(line) > 0:
            name = f"{name} (only layer {_listed(line['layer'], called)})"
        elif missing:
            name = f"{name} (no layer {_listed(missing, called)})"
        layers, values, errors = line[["layer", "value", "error"]].to_numpy(float).T
        ax.errorbar(
            layers,
            values,
            errors,
            label=name,
            color=shade,
            ls=dash,
            marker="o",
            ms=3,
            lw=1.5,
            elinewidth=1,
        )
        tied = line[line["tied"]]
        ax.scatter(tied["layer"], tied["value"], s=36, color=[shade], zorder=3)
    value, error, layer = points[["value", "error", "layer"]].to_numpy(float).T
    most = most_of(value) if points.attrs["are_scores"] else math.inf
    _show_errors(ax, value, error, most)
    ax.set_xlim(layer.min() - 0.15, layer.max() + 0.15)
    ax.xaxis.set_major_locator(MaxNLocator(8, integer=True))
    if called:
        drawn = np.unique(layer).astype(int).tolist()
        drawn = drawn[:: math.ceil(len(drawn) / MOST_STEPS)]
        ax.set_xticks(drawn, [called[layer] for layer in drawn], rotation=45, ha="right")
    notes = [
        "layer" if called else LAYER,
        points.attrs.get("note"),
        TIED if points["tied"].any() else "",
    ]
    ax.set(xlabel="\n".join(filter(None, notes)), ylabel=points.attrs["label"])


def shared_names(arms: Iterable[Arm], layer_names: LayerNames) -> dict[int, str]:
    """The names of layers by their numbers, if all models have the same; else none."""
    named = {tuple(layer_names.get(model, ())) for model in {arm.model for arm in arms}}
    return dict(enumerate(named.pop())) if len(named) == 1 else {}


def _listed(layers: Iterable[int], called: Mapping[int, str]) -> str:
    return ", ".join(called.get(layer, str(layer)) for layer in layers)


@rc_context(STYLE)
def search_path(ax: Axes, path: pandas.DataFrame) -> None:
    """The best mean so far by cost, and every decision.

    A decision is drawn at the score expected of its arm; the frame is that of `path_of`.
    """
    for stage, of_stage in path.groupby("stage", sort=False):
        ax.scatter(
            of_stage["spent"],
            of_stage["expected"],
            s=16,
            color=STAGES[stage],
            alpha=0.6,
            lw=0,
            label=stage,
        )
    ax.step(
        path["spent"],
        path["best"],
        where="post",
        color=COLOURS[1],
        label="best so far",
    )
    if path.attrs["default"] is not None:
        ax.axhline(
            path.attrs["default"],
            color="0.35",
            lw=1,
            ls="--",
            label="last layer",
        )
    ax.set(xlabel=f"cost spent, {path.attrs['unit']}", ylabel="mean score")
    ax.set_xlim(left=0)
    scores = path[["expected", "best"]].to_numpy(float)
    ax.set_ylim(span(scores, 0.0, margin=0.05, most=most_of(scores)))


@rc_context(STYLE)
def trade_off(ax: Axes, trade_offs: TradeOffs, name: str) -> None:
    """Score against one cost, with the best score at each."""
    rows = [
        (arm.arm.model, cost_value(arm.cost, name), arm.score, arm.stderr)
        for arm in trade_offs.arms
    ]
    points = pandas.DataFrame(rows, columns=["model", "cost", "score", "stderr"])
    for (model, of_model), look in zip(points.groupby("model", sort=False), cycle(LOOKS)):
        ax.scatter(
            of_model["cost"],
            of_model["score"],
            s=14,
            lw=0,
            label=model,
            **look,
        )
    ordered = points.sort_values(["cost", "score"], ascending=[True, False])
    best_so_far = ordered["score"].cummax().shift(fill_value=-np.inf)
    front = ordered[ordered["score"] > best_so_far]
    ax.errorbar(
        front["cost"],
        front["score"],
        front["stderr"],
        drawstyle="steps-post",
        color="0.45",
        lw=1.1,
        elinewidth=0.9,
        capsize=2,
        zorder=0.6,  # between the grid and the points
    )
    lowest_cost = points["cost"][points["cost"] > 0].min()
    if points["cost"].max() >= LOGARITHMIC * lowest_cost:
        ax.set_xscale("symlog", linthresh=lowest_cost)
    else:
        ax.xaxis.set_major_locator(MaxNLocator(4, integer=name != "seconds"))
    ax.xaxis.set_major_formatter(EngFormatter())
    score, error = points[["score", "stderr"]].to_numpy(float).T
    _show_errors(ax, score, error, most_of(score))
    ax.set_xlabel(COST_NAMES[name])


def _show_errors(ax: Axes, value: Floats, error: Floats, most: float) -> None:
    ends = np.concatenate([value, value - error, value + error]).clip(max=most)
    ax.set_ylim(span(ends, least_span(error), most=most))


# whole figures, as files


@rc_context(STYLE)
def image(figure: Figure, kind: str = "png") -> bytes:
    """A figure as PNG or SVG, the same on any machine."""
    if engine := figure.get_layout_engine():
        # otherwise all is drawn once more to be laid out
        figure.dpi = DPI
        engine.execute(figure)
        figure.set_layout_engine("none")
    file = io.BytesIO()
    key = "Software" if kind == "png" else "Date"
    figure.savefig(file, format=kind, dpi=DPI, metadata={key: None})
    return file.getvalue()


def blank(height: float) -> Figure:
    """An empty figure with room for its axes and legends.

    It is ``height`` inches high.
    """
    return Figure(figsize=(WIDTH, height), layout="constrained")


@rc_context(STYLE)
def pictures(run: RecordedRun, marked: MarkedBy) -> dict[str, Figure]:
    """All figures with data, by the names of their files.

    Maps are of the model of the best arm; ``marked`` gives the arms that are marked on them.
    """
    drawn = {}
    quantities = Quantities(run)
    if shown := quantities.shown_first():
        suite = quantities.suite()
        if len(suite.revisions) > 1:  # the map of one checkpoint is a stripe
            drawn["scores"] = heat_maps(shown[: LINES + 1], suite, marked)
        suites = quantities.lined_up()
        drawn["layers"] = blank(3.6)
        shown = quantities.shown_first(suites)
        names = run.plan.layer_names
        points = layer_points(shown, quantities.arms(suites), marked, names)
        layer_lines(drawn["layers"].subplots(), points)
        title = suite.model if len(suites) == 1 else None
        drawn["layers"].legend(loc="outside right upper", title=title)
        if run.means:
            drawn["tradeoffs"] = trade_offs(trade_offs_of(run))
        if run.picks:
            drawn["path"] = blank(3.4)
            search_path(drawn["path"].subplots(), path_of(run))
            drawn["path"].legend(**ABOVE)
    if losses := analysis.losses(run.plan, run.records):
        drawn["training"] = training_loss(losses)
    samples = read_samples(run.folder.telemetry)
    if len(samples) > 1:
        drawn["telemetry"] = telemetry(samples)
    return drawn


def heat_maps(fields: Sequence[Field], suite: Suite, marked: MarkedBy) -> Figure:
    """Maps of some quantities of a model."""
    figure = blank(1.9 * len(fields))
    panels = figure.subplots(len(fields), 1, squeeze=False)[:, 0]
    for ax, field in zip(panels, fields, strict=True):
        heat_map(ax, field, suite, marked(field.name))
    named, names = panels[0].get_legend_handles_labels()
    if names:
        figure.legend(named, names, loc="outside upper right", ncols=len(names))
    return figure


def trade_offs(compared: TradeOffs) -> Figure:
    """Score against time and bytes, as far as these differ between arms."""
    differing = differing_costs([arm.cost for arm in compared.arms])
    names = [name for name in MEASURED if name in differing]
    if "seconds" not in names:
        names.insert(0, "layers")
    figure = blank(3.1)
    axes = figure.subplots(1, len(names), squeeze=False, sharey=True)[0]
    for ax, name in zip(axes, names, strict=True):
        trade_off(ax, compared, name)
    axes[0].set_ylabel("mean score")
    figure.legend(*axes[0].get_legend_handles_labels(), **ABOVE)
    return figure


@rc_context(STYLE)
def training_loss(losses: Mapping[str, Losses]) -> Figure:
    """Loss against training step, one line per model.

    Step 0 stands beside the logarithmic steps.
    """
    figure = blank(2.9)
    ax = figure.subplots()
    for (model, points), look in zip(losses.items(), cycle(LOOKS)):
        trained, values = zip(*points, strict=True)
        ax.plot(
            trained,
            values,
            ms=4,
            lw=1.4,
            label=model,
            **look,
        )
    steps = sorted({step for points in losses.values() for step, _ in points})
    ax.set_xscale("symlog", linthresh=1, linscale=0.4)
    every = math.ceil(len(steps) / MOST_STEPS)
    ax.set_xticks(steps[::every])
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: step_label(f"step{value:.0f}")))
    ax.minorticks_off()
    ax.set(xlabel="training step", ylabel="loss, nats per token")
    figure.legend(**ABOVE)
    return figure


@rc_context(STYLE)
def telemetry(samples: Sequence[TelemetrySample]) -> Figure:
    """How much each worker used of its CPUs and GPU over time."""
    used = {"CPU, % of one": used_over_time(samples, "cpu")}
    gpu = used_over_time(samples, "gpu")
    if len(gpu.columns):
        used["GPU, %"] = gpu
    figure = blank(0.6 + 1.5 * len(used))
    axes = figure.subplots(len(used), 1, sharex=True, squeeze=False)[:, 0]
    for ax, (label, frame) in zip(axes, used.items(), strict=True):
        frame.plot(
            ax=ax,
            color=COLOURS,
            lw=1.2,
            legend=False,
            ylabel=label,
        )
        ax.set_ylim(bottom=0)
    axes[-1].set_xlabel("minutes since the first sample")
    figure.legend(*axes[0].get_legend_handles_labels(), **ABOVE)
    return figure


def used_over_time(samples: Sequence[TelemetrySample], quantity: str) -> pandas.DataFrame:
    """What each worker used by minutes; a worker a column."""
    rows = {}
    for sample in samples:
        by_worker = sample.readings.items()
        minute = (sample.at - samples[0].at) / 60
        rows[minute] = {f"worker {name}": row.get(quantity) for name, row in by_worker}
    used = pandas.DataFrame.from_dict(rows, "index", float).dropna(axis=1, how="all")
    between = used.index.to_series().diff()
    used[between > GAP * between.median()] = np.nan  # the run was not running before
    names = sorted(used.columns, key=lambda name: (len(name), name))
    return used[names]


def write_pictures(run: RecordedRun, vectors: bool, marked: MarkedBy) -> dict[str, Figure]:
    """Write all figures as PNG, and return them by name.

    With ``vectors`` they are written as SVG, too.
    """
    # delete the files of figures that the run no longer has; other files are not ours
    for name, kind in product(NAMES, KINDS):
        (run.folder.report / f"{name}.{kind}").unlink(missing_ok=True)
    drawn = pictures(run, marked)
    for (name, picture), kind in product(drawn.items(), KINDS[: 1 + vectors]):
        atomic_write(run.folder.report / f"{name}.{kind}", image(picture, kind))
    return drawn


# beside the checkpoints of a suite that was trained, and in the report of a map


def write_telemetry(samples: Path, folder: Path) -> Path | None:
    """Write ``telemetry.png``; None if there are too few samples."""
    read = read_samples(samples)
    if len(read) < 2:
        return None
    folder.mkdir(exist_ok=True)
    return atomic_write(folder / "telemetry.png", image(telemetry(read)))


def averaged(losses: Losses, most: int) -> Losses:
    """Means of the points, evenly spaced on a logarithmic axis.

    >>> averaged([(step, float(step)) for step in (1, 2, 3, 4, 5, 6, 7, 8)], most=4)
    [(1, 1.0), (2, 2.0), (4, 3.5), (8, 6.5)]
    """
    if len(losses) <= most:
        return losses
    ends = np.geomspace(1, len(losses), most).round()
    points = pandas.DataFrame(losses, columns=["step", "loss"])
    spans = points.groupby(np.searchsorted(ends, points.index + 1))
    means = spans.agg({"step": "last", "loss": "mean"})
    return list(means.itertuples(index=False, name=None))


def write_losses(folder: Path) -> Path | None:
    """Write ``loss.png`` beside a suite; None without losses."""
    path = folder / "progress.jsonl"
    losses = {}
    if path.is_file():
        # a killed rank leaves half a line, and steps that are taken again
        for line in path.read_text(encoding="utf-8").splitlines():
            if line.endswith("}"):
                event = json.loads(line)
                losses[int(event["step"])] = float(event["loss"])
    if not losses:
        return None
    figure = training_loss({folder.name: averaged(sorted(losses.items()), MOST_LOSSES)})
    return atomic_write(folder / "loss.png", image(figure))

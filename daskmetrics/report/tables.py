"""Tables below an answer, and those that the page folds."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from daskmetrics.answer.answer import Answer, Candidate, ModelStanding, Standing, floor_of
from daskmetrics.answer.trade_offs import TradeOffs
from daskmetrics.answer.worth import FreshItems, Worth
from daskmetrics.core.table import Table
from daskmetrics.core.text import plural, score_text
from daskmetrics.domain.names import LayerNames, arm_name
from daskmetrics.domain.outcomes import Estimate
from daskmetrics.report._format import (
    PARTIAL,
    gap_text,
    mean_over,
    percent,
    si,
    unpaired_note,
)
from daskmetrics.report.lines import named

if TYPE_CHECKING:
    import pandas

MOST_ROWS = 8  #: of the table by task, beside the answer
NO_SCORE = "no score"
UNKNOWN = "unknown"
LATEST = 10  #: decisions of a search that are listed


def tables(answer: Answer) -> list[Table]:
    """Everything that an answer has beside its lines."""
    shown = [tasks_table(answer)]
    models = answer.verdict.models
    if len(models) > 1:
        shown.append(models_table(models, answer.layer_names))
    if answer.readouts:
        shown.append(readouts_table(answer.readouts, answer.weights))
    if answer.fresh:
        shown.append(fresh_table(answer.fresh, answer.layer_names))
    return shown


def short_tasks_table(answer: Answer) -> Table:
    """The best candidate of a few tasks, as a run ends; empty where there is one task."""
    standings = [part for part in answer.verdict.parts if len(part.tasks) == 1]
    shown = standings[:MOST_ROWS]
    rows = [_standing_row(answer, standing) for standing in shown]
    notes = []
    if hidden := len(standings) - len(shown):
        notes = [f"{plural(hidden, 'more task')}: daskmetrics best {answer.folder}"]
    return Table.of(rows, notes=notes)


def tasks_table(answer: Answer) -> Table:
    """The best candidate over all tasks, by kind and by task."""
    default = answer.default
    standings = [answer.verdict.overall, *answer.verdict.parts]
    rows = []
    for standing in standings:
        gain = "–"
        if standing.arm != default.arm:
            gain = gap_text(standing.gain)
        if _is_partial(standing, default):
            gain += " †"
        tied = f"{len(standing.tied) - 1:,}" if standing.tied else "–"
        rows.append({**_standing_row(answer, standing), "gain": gain, "tied": tied})
    notes = [
        f"Gain: over {named(answer, default.arm)}; on average too high, since the"
        " same scores chose the best.",
        "Tied: how many others are within the error of the best.",
    ]
    if any(row["guess"] for row in rows):
        notes.append("Guess: what guessing scores.")
    if any(_is_partial(standing, default) for standing in standings):
        notes.append(PARTIAL)
    notes += unpaired_note(standing.gain for standing in standings if standing.arm != default.arm)
    return Table.of(rows, "By task", notes)


def _standing_row(answer: Answer, standing: Standing) -> dict[str, str]:
    what = standing.what
    if len(standing.tasks) > 1:  # a kind
        what = what.replace("_", " ")
    floor = floor_of(answer.tasks, dict(zip(standing.tasks, standing.weights, strict=True)))
    return {
        "for": what,
        "best": arm_name(standing.arm, answer.layer_names),
        "score": score_text(standing.score, standing.stderr),
        "guess": "" if floor is None else score_text(floor),
    }


def _is_partial(standing: Standing, default: Candidate) -> bool:
    if standing.arm == default.arm or not standing.gain:
        return False
    return standing.score is None or not default.scores.keys() >= set(standing.tasks)


def models_table(models: Sequence[ModelStanding], layer_names: LayerNames) -> Table:
    """The best candidate of every model beside its last layer."""
    rows = []
    for model in models:
        best = NO_SCORE
        if model.best:
            best = arm_name(model.best, layer_names)
        elif model.scores:
            best = "not scored on every task"
        last = _score(model.last_score)
        if not model.is_last:
            last += f" ({arm_name(model.last, layer_names)})"
        gain = gap_text(model.gain)
        if model.gain and not model.score:
            gain += " †"
        rows.append((model.model, best, _score(model.score), last, gain))
    notes = []
    if any(model.gain and not model.score for model in models):
        notes.append(PARTIAL)
    notes += unpaired_note(model.gain for model in models)
    return Table(("model", "best", "score", "its last layer", "gain"), rows, "By model", notes)


def _score(estimate: Estimate | None) -> str:
    return score_text(*estimate) if estimate else NO_SCORE


def readouts_table(readouts: Sequence[Worth], weights: Mapping[str, float]) -> Table:
    """What each choice of a readout is worth."""
    rows = []
    for worth in readouts:
        effect = "within the error"
        if worth.beyond:
            effect = "gains" if worth.difference.value > 0 else "loses"
        value, base = worth.value or "default", worth.base or "default"
        gap = gap_text(worth.difference)
        rows.append((worth.choice, value, base, gap, effect, f"{worth.pairs:,}"))
    over = mean_over(weights.values())
    notes = [f"Of the {over}, over pairs that differ in this alone, at 95 % for all."]
    notes += unpaired_note(worth.difference for worth in readouts)
    header = ("choice of", "is", "instead of", "difference", "effect", "pairs")
    return Table(header, rows, "What each choice of a readout is worth", notes)


def fresh_table(fresh: FreshItems, layer_names: LayerNames) -> Table:
    """The finalists on items that were kept back from the search."""
    rows = [
        (
            arm_name(finalist.arm, layer_names),
            _score(finalist.searched),
            score_text(*finalist.fresh),
            gap_text(finalist.lead),
        )
        for finalist in fresh.finalists
    ]
    notes = [f"{percent(fresh.share)} of the items were kept back from the search."]
    if fresh.unscored:
        unscored = ", ".join(arm_name(arm, layer_names) for arm in fresh.unscored)
        notes.append(f"Not scored on all of them: {unscored}.")
    notes += unpaired_note(finalist.lead for finalist in fresh.finalists)
    header = ("finalist", "in the search", "on fresh items", "chosen one higher by")
    return Table(header, rows, "Fresh items", notes)


def trade_offs_table(compared: TradeOffs, layer_names: LayerNames) -> Table:
    """The front of scores and costs, one candidate a row."""
    tokens = sorted({int(size.tokens) for size in compared.sizes.values()})
    notes = [
        f"The best of {plural(len(compared.arms), 'candidate')} scored on all tasks at each cost."
        " Gain: above the row before.",
        f"For a text of {', '.join(map(str, tokens))} tokens. Texts/s: measured for the deepest"
        " layer.",
    ]
    assumed = ", ".join(
        model
        for model, size in compared.sizes.items()
        if not size.network and model not in layer_names  # an encoder's blocks are not known
    )
    if assumed:
        notes.append(f"Estimated for {assumed}: 12 width² weights a block.")
    notes += unpaired_note(row.gain for row in compared.front)
    header = (
        *("candidate", "score", "gain", "layers", "parameters"),
        *("operations", "texts/s", "dimensions", "bytes"),
    )
    rows = []
    for row in compared.front:
        cost = row.cost
        parameters, operations = si(cost.parameters), si(cost.flops)
        if cost.whole is not None:
            parameters += f" of {si(cost.whole)}"
        elif row.arm.model in layer_names:
            parameters = operations = UNKNOWN
        speed = "–"  # an embedding is not computed
        if cost.texts_per_second:
            speed = si(cost.texts_per_second)
        elif cost.seconds is None:
            speed = UNKNOWN
        score = score_text(row.score, row.stderr)
        numbers = (operations, speed, f"{cost.dimensions:,}", f"{cost.bytes:,}")
        name = arm_name(row.arm, layer_names)
        rows.append((name, score, gap_text(row.gain), f"{cost.layers:,}", parameters, *numbers))
    return Table(header, rows, notes=notes)


def predictors_table(correlations: pandas.DataFrame) -> Table:
    """How well each metric ranks candidates as scores do."""
    groups = correlations.index.unique("group")
    rows = []
    for metric, by_group in correlations.groupby(level="metric", sort=False):
        cells = []
        for rho, count in by_group.itertuples(index=False):
            text = f"{rho:+.2f} ({count:,})".replace("-", "−")
            cells.append(text if count else "too few")
        rows.append((str(metric), *cells))
    note = (
        "Spearman's ρ between metric and score over the candidates scored on a task, averaged over"
        " the tasks of a kind, with the number of scores in brackets. 1: the metric ranks candidates"
        " as the scores do; -1: in reverse order; 0: unrelated. The search prefers promising"
        " candidates, and neighbouring layers are similar: ρ describes these scores and is not a"
        " statistical test."
    )
    return Table(("metric", *groups), rows, notes=[note])


def workers_table(uses: pandas.DataFrame) -> Table:
    """How busy the workers were."""
    columns = {
        "worker": uses.index.tolist(),
        "host": uses["host"].tolist(),
        "units": [f"{units:,}" for units in uses["units"]],
        "busy": _known(uses["busy"], "{:.0%}"),
        "CPU": _known(uses["cpu"], "{:.0%}"),
        "memory": _known(uses["memory"] / 2**30, "{:.1f} GiB"),
        "GPU memory": _known(uses["gpu_memory"] / 2**30, "{:.1f} GiB", "none"),
    }
    return Table(tuple(columns), list(zip(*columns.values(), strict=True)))


def decisions_table(path: pandas.DataFrame) -> Table:
    """The last decisions of a search and why each was made; the frame is that of `path_of`."""
    rows = []
    for row in path.tail(LATEST).to_dict("records"):
        score = NO_SCORE if math.isnan(row["score"]) else score_text(row["score"])
        rows.append((f"{row['number']:,}", row["arm"], row["task"], row["why"], score))
    return Table(("decision", "candidate", "task", "why", "score"), rows)


def _known(values: Iterable[float], form: str, missing: str = UNKNOWN) -> list[str]:
    return [missing if math.isnan(value) else form.format(value) for value in values]

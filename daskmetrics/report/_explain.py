"""Why the search chose an arm, or did not: its rank, metrics and scores; and which simpler arms lose little."""

from __future__ import annotations

import numpy as np

from daskmetrics.core._table import Table
from daskmetrics.core._text import plural
from daskmetrics.core.names import Arm
from daskmetrics.report import _analysis as analysis
from daskmetrics.report._analysis import layer_of
from daskmetrics.report._format import WIDTH, apart, fact, number, percent, place, probability, si
from daskmetrics.report._posterior import RunPosterior, posterior_of
from daskmetrics.report._recorded import cell_of
from daskmetrics.report._run import Run
from daskmetrics.report._tradeoffs import HEADER, on_front
from daskmetrics.report._verdict import CheaperArm


def explain_text(run: Run, name: str) -> str:
    """Rank, decisions, scores and metrics of an arm such as ``tiny@step8/3``, for a terminal."""
    posterior, aliases = posterior_of(run), run.measured_as.items()
    renamed = (kept + name.removeprefix(other) for other, kept in aliases if name.startswith(f"{other}/"))
    index = posterior.index(next(renamed, name))
    arm = posterior.problem.arms[index]
    lines = [
        *fact(str(arm), place(arm, posterior.problem.arms)),
        "",
        *_verdict(run, posterior, index),
        *_decisions(run, arm),
    ]
    metrics = ["", _metrics(run, arm)] if analysis.metrics(run) else []
    return "\n".join([*lines, "", _scores(run, posterior, arm), *metrics])


def _verdict(run: Run, posterior: RunPosterior, index: int) -> list[str]:
    mean, sd = posterior.posterior.mean[index], posterior.posterior.sd[index]
    arms, leader = posterior.problem.arms, posterior.leader
    reward = run.config["search"]["reward"]
    lines = fact("posterior", f"{number(mean, sd, sign=True)} in units of the reward ({reward})")
    lines += fact("rank", f"{posterior.rank(index)} of {len(arms):,} by the posterior mean")
    if index == leader:
        return lines + fact(
            "verdict", f"The recommended arm. {run.best().certainty}" if run.result else "The leading arm so far."
        )
    behind, spread = (float(values[0]) for values in posterior.behind([index]))
    better = probability(float(posterior.chance_within([index], 0.0)[0]))
    ahead = f"{arms[leader]} is expected to be better by {number(behind, spread, sign=True)}"
    if behind < 0:  # only where the recommended arm is chosen by its scores
        ahead = f"{arms[leader]} is recommended for its scores; this arm is expected to be better by "
        ahead += number(-behind, spread, sign=True)
    return lines + fact("verdict", f"{ahead}; the probability that this arm is better is {better}.")


def _decisions(run: Run, arm: Arm) -> list[str]:
    picks = [pick for pick in run.picks if cell_of(pick).arm == arm]
    if picks:
        texts = [f"{pick['index'] + 1} ({pick['stage']}, {cell_of(pick).task}{_why(pick['why'])})" for pick in picks]
        return fact("chosen", f"{len(picks)} of {len(run.picks)} decisions: " + "; ".join(texts))
    siblings = {pick["index"] for pick in run.picks if cell_of(pick).arm.checkpoint == arm.checkpoint}
    others = f" It chose other layers of this checkpoint {len(siblings)} times." if siblings else ""
    return fact("chosen", f"Never: the search always expected more information per cost from other arms.{others}")


def _why(why: dict[str, float | str]) -> str:
    parts = [f"{name} {value:.3g}" if isinstance(value, float) else f"{name} {value}" for name, value in why.items()]
    return f": {', '.join(parts)}" if parts else ""


def _scores(run: Run, posterior: RunPosterior, arm: Arm) -> str:
    """The arm's score on every task beside the leader's."""
    known = analysis.scores(run)
    leader = posterior.problem.arms[posterior.leader]
    rows = []
    for task, about in run.tasks.items():
        best = max((scores[task] for scores in known.values() if task in scores), default=None)
        mine, other = known.get(arm, {}).get(task), known.get(leader, {}).get(task)
        rows.append((task, about["main_score"], number(mine), number(other), number(best)))
    return Table(("task", "score", "this arm", "leading arm", "best score"), tuple(rows)).as_text(WIDTH)


def _metrics(run: Run, arm: Arm) -> str:
    """The metrics of the arm's layer, which are features of the search, and how they compare with those of all."""
    rows, own = [], layer_of(arm)
    others = "layers" if arm.readout else "arms"
    for name, values in analysis.metrics(run).items():
        value, share = "undefined", ""
        if own in values:
            value = f"{values[own]:.4g}"
            share = f"{percent(float(np.mean(np.array(list(values.values())) < values[own])))} of the {others}"
        rows.append((name, value, analysis.units(run, name), share))
    return Table(("metric", "value", "units", "greater than"), tuple(rows)).as_text(WIDTH)


TABLE_WIDTH = 132  # columns, since a row has nine cells


def simpler_arms(run: Run, within: float) -> list[CheaperArm]:
    """The arms simpler than the best one that lose at most a share of its score in the worst case, simplest first."""
    most = within * abs(run.verdict.score_unit)
    return [simpler for simpler in run.verdict.overall.simpler if simpler.most_lost <= most]


def near_best_text(run: Run, within: float) -> str:
    """The best arm, and the simplest that loses at most a share of its score, for a terminal."""
    verdict = run.verdict
    one, cheaper, count = verdict.overall, verdict.cheaper(within), len(simpler_arms(run, within))
    lines = fact("best", f"{one.arm}: {verdict.answer}")
    lines += fact("cheaper", _described(run, cheaper) if cheaper else "none that loses so little is simpler")
    what = (
        f"{plural(count, 'arm')} simpler than the best one, of {one.tested:,} scored on every task, lose at most "
        f"{percent(within)} of its score in the worst case (95 %)."
    )
    return "\n".join([*lines, *fact("among", what)])


def _described(run: Run, cheaper: CheaperArm) -> str:
    mine, best = run.cost_of(cheaper.arm), run.cost_of(run.verdict.overall.arm)
    weights, operations = _change(mine.parameters, best.parameters), _change(mine.flops, best.flops)
    return (
        f"{cheaper.arm}: {place(cheaper.arm, run.verdict.arms)}, {apart(cheaper.loss)} below it, loses at most "
        f"{cheaper.most_lost:.3f} (95 %); it needs {si(mine.parameters)} weights ({weights} than the best arm) and "
        f"takes {si(mine.flops)} operations for a text of {mine.tokens:,.0f} tokens ({operations})"
    )


def _change(value: float, reference: float) -> str:
    """How much less of something an arm needs.

    >>> _change(60, 100), _change(150, 100), _change(5, 5), _change(5, 0)
    ('40 % fewer', '50 % more', 'no fewer', 'more')
    """
    if value == reference or not reference:
        return "no fewer" if value == reference else "more"
    return f"{percent(abs(1 - value / reference))} {'fewer' if value < reference else 'more'}"


def trade_offs_text(run: Run) -> str:
    """Scores against what arms take, for a terminal; below, the arms that the search's model expects to be as good."""
    parts = [run.trade_offs().table().as_text(TABLE_WIDTH)]
    expected = expected_trade_offs(run)
    return "\n\n".join([*parts, expected.as_text(TABLE_WIDTH)] if expected.rows else parts)


def expected_trade_offs(run: Run) -> Table:
    """Arms that were not scored on all tasks and that no arm is expected to beat in both objective and cost."""
    posterior, needed = posterior_of(run), run.weights.keys()
    arms, mean, sd = posterior.problem.arms, posterior.posterior.mean.tolist(), posterior.posterior.sd.tolist()
    rows = []
    for i in on_front(mean, costs := [run.cost_of(arm) for arm in arms]):
        if scored := needed - run.recorded.get(arms[i], {}).keys():
            known = f"{len(needed) - len(scored)} of {len(needed)}"
            rows.append((str(arms[i]), number(mean[i], sd[i], sign=True), known, *costs[i].cells))
    reward = run.config["search"]["reward"]
    note = (
        f"expected: posterior mean ± standard deviation of the objective, in units of the reward "
        f"({reward}); score an arm on your tasks before you use it"
    )
    about = "arms: not scored on all tasks, and by the search's model expected to be on the front"
    return Table(("arm", "expected", "scored", *HEADER), tuple(rows), "Expected trade-offs", (about, note))

"""Why the search chose an arm, or did not: its rank, metrics and scores; and which cheaper arms are nearly as good."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from daskmetrics.core._costs import forward_flops
from daskmetrics.core._table import Table
from daskmetrics.core.names import Arm
from daskmetrics.report import _analysis as analysis
from daskmetrics.report._format import WIDTH, fact, number, percent, place, probability
from daskmetrics.report._posterior import RunPosterior, posterior_of
from daskmetrics.report._run import Run, cell_of

LENGTH = 128  # tokens of the text whose forward passes are compared


def explain_text(run: Run, name: str) -> str:
    """Rank, decisions, scores and metrics of the arm ``MODEL@REVISION/LAYER``, for a terminal."""
    posterior, (checkpoint, slash, layer) = posterior_of(run), name.rpartition("/")
    index = posterior.index(run.measured_as.get(checkpoint, checkpoint) + slash + layer)
    arm = posterior.problem.arms[index]
    lines = [*fact(str(arm), place(arm)), "", *_verdict(run, posterior, index), *_decisions(run, arm)]
    return "\n".join([*lines, "", _scores(run, posterior, arm), "", _metrics(run, arm)])


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
    """The arm's metrics, which are features of the search, and how they compare with those of all arms."""
    rows = []
    for name, values in analysis.metrics(run).items():
        value, share = "undefined", ""
        if arm in values:
            value = f"{values[arm]:.4g}"
            share = f"{percent(float(np.mean(np.array(list(values.values())) < values[arm])))} of the arms"
        rows.append((name, value, analysis.units(run, name), share))
    return Table(("metric", "value", "units", "greater than"), tuple(rows)).as_text(WIDTH)


@dataclass(frozen=True)
class NearBest:
    """An arm that is nearly as good as the best one."""

    arm: Arm
    chance: float  # posterior probability that it is nearly as good
    parameters: float  # weights of the blocks up to its layer
    flops: float  # of one forward pass through them


def arms_near_best(posterior: RunPosterior, within: float, sure: float) -> list[NearBest]:
    """Every arm that is nearly as good as the best one, cheapest forward pass first.

    With a posterior probability of at least ``sure`` it loses at most the share ``within`` of the best mean score.
    """
    arms = posterior.problem.arms
    chances = posterior.chance_within(range(len(arms)), within)
    chances[posterior.leader] = 1.0
    near = []
    for arm, chance in zip(arms, chances.tolist(), strict=True):
        if chance >= sure:
            width = posterior.run.start.widths[arm.model]
            # 12 width^2 weights per block (Kaplan et al. 2020, section 2.1)
            flops = forward_flops(width, arm.layer, LENGTH, LENGTH)
            near.append(NearBest(arm, chance, 12.0 * width**2 * arm.layer, flops))
    return sorted(near, key=lambda one: (one.flops, -one.chance))


def near_best_text(run: Run, within: float, sure: float) -> str:
    """The best arm, and the shallowest and the earliest arm that are nearly as good, for a terminal."""
    posterior = posterior_of(run)
    near = arms_near_best(posterior, within, sure)
    steps = {one.arm: math.inf if one.arm.checkpoint.step is None else one.arm.checkpoint.step for one in near}
    earliest = min(near, key=lambda one: (steps[one.arm], one.flops))
    best = next(one for one in near if one.arm == posterior.problem.arms[posterior.leader])
    text = (
        f"{len(near):,} of {len(posterior.problem.arms):,} arms are within {percent(within)} of the best arm's mean "
        f"score with a probability of at least {percent(sure)}, by the search's statistical model. The estimate for an "
        "arm with few scores relies on its neighbours: score an arm on your tasks before you use it."
    )
    label = run.best().label if run.result else "leader"
    lines = fact(label, f"{best.arm}: {place(best.arm)}") + fact("shallowest", _described(near[0], best))
    return "\n".join([*lines, *fact("earliest", _described(earliest, best)), *fact("among", text)])


def _described(one: NearBest, best: NearBest) -> str:
    if one.arm == best.arm:
        return "the best arm itself"
    weights, operations = _change(one.parameters, best.parameters), _change(one.flops, best.flops)
    return (
        f"{one.arm}: {place(one.arm)}, good enough with probability {probability(one.chance)}; its blocks have "
        f"{one.parameters:,.0f} weights ({weights} than the best arm) and take {one.flops:.3g} operations for a text "
        f"of {LENGTH} tokens ({operations})"
    )


def _change(value: float, reference: float) -> str:
    """How much less of something an arm needs.

    >>> _change(60, 100), _change(150, 100), _change(5, 5), _change(5, 0)
    ('40 % fewer', '50 % more', 'no fewer', 'more')
    """
    if value == reference or not reference:
        return "no fewer" if value == reference else "more"
    return f"{percent(abs(1 - value / reference))} {'fewer' if value < reference else 'more'}"

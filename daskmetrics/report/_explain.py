"""Why an arm was chosen, or was not: its place, its metrics, its scores, and what the search believed of it."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from daskmetrics.core._costs import forward_flops
from daskmetrics.core.errors import DataError
from daskmetrics.core.names import Arm
from daskmetrics.report import _analysis as analysis
from daskmetrics.report import _terminal as terminal
from daskmetrics.report._posterior import Belief, believe
from daskmetrics.report._run import Run, cell_of
from daskmetrics.report._terminal import fact, number, table


def explain_text(run: Run, name: str) -> str:
    """All that is known of one arm, for a terminal.

    Parameters
    ----------
    run : Run
    name : str
        ``MODEL@REVISION/LAYER``.

    Raises
    ------
    ConfigError
        If no such arm was measured.
    DataError
        If the run has scored nothing.
    """
    belief = believe(run)
    place = belief.place(name)
    arm = belief.problem.arms[place]
    lines = [*fact(str(arm), terminal.place(arm)), "", *_verdict(run, belief, place)]
    lines += [*_decisions(run, arm), "", *_scores(run, belief, arm), "", *_metrics(run, arm)]
    return "\n".join(lines)


def _verdict(run: Run, belief: Belief, place: int) -> list[str]:
    posterior, leader = belief.posterior, belief.leader
    mean, sd, count = posterior.mean[place], posterior.sd[place], len(belief.problem.arms)
    reward = run.config["search"]["reward"]
    lines = fact("belief", f"{number(mean, sd, sign=True)} in units of the reward ({reward})")
    lines += fact("rank", f"{belief.rank(place)} of {count:,} by what is expected of it")
    if place == leader:
        return lines + fact("verdict", "The recommended arm." if run.result else "The leader so far.")
    behind, spread = (float(values[0]) for values in belief.behind([place]))
    better = terminal.probability(float(belief.chance_within([place], 0.0)[0]))
    text = (
        f"{belief.problem.arms[leader]} is {number(behind, spread, sign=True)} ahead: {better} that this arm is better."
    )
    return lines + fact("verdict", text)


def _decisions(run: Run, arm: Arm) -> list[str]:
    own = [pick for pick in run.picks if cell_of(pick).arm == arm]
    if not own:
        siblings = {pick["index"] for pick in run.picks if cell_of(pick).arm.checkpoint == arm.checkpoint}
        near = f" Other layers of its checkpoint were, {len(siblings)} times." if siblings else ""
        return fact("chosen", f"Never: no decision of the search expected to learn more from it per cost.{near}")
    told = [f"{pick['index'] + 1} ({pick['stage']}, {cell_of(pick).task}{_why(pick['why'])})" for pick in own]
    return fact("chosen", f"{len(own)} of {len(run.picks)} decisions: " + "; ".join(told))


def _why(why: dict[str, float | str]) -> str:
    parts = [f"{name} {value:.3g}" if isinstance(value, float) else f"{name} {value}" for name, value in why.items()]
    return f": {', '.join(parts)}" if parts else ""


def _scores(run: Run, belief: Belief, arm: Arm) -> list[str]:
    """Its score on every task beside the leader's."""
    known = analysis.scores(run)
    leader = belief.problem.arms[belief.leader]
    rows = [("task", "score", "this arm", "the leader", "best seen")]
    for task, about in run.tasks.items():
        seen = [own[task] for own in known.values() if task in own]
        one, other = known.get(arm, {}).get(task), known.get(leader, {}).get(task)
        rows.append((task, about["main_score"], number(one), number(other), number(max(seen, default=None))))
    return table(rows)


def _metrics(run: Run, arm: Arm) -> list[str]:
    """Each metric with its place among all arms: the features that the posterior borrows strength by."""
    rows = [("metric", "value", "units", "greater than")]
    for name, values in analysis.metrics(run).items():
        if arm in values:
            share = float(np.mean(np.array(list(values.values())) < values[arm]))
            rows.append(
                (name, f"{values[arm]:.4g}", analysis.units(run, name), f"{terminal.percent(share)} of the arms")
            )
        else:
            rows.append((name, "undefined", analysis.units(run, name), ""))
    return table(rows)


LENGTH = 128  # tokens of the text whose forward passes are compared


@dataclass(frozen=True)
class Enough:
    """An arm that is nearly as good as the best one.

    Attributes
    ----------
    arm : Arm
    chance : float
        That it lies within the wanted share of the best, by the posterior.
    parameters, flops : float
        Weights of the blocks that it needs, and operations of one forward pass through them.
    """

    arm: Arm
    chance: float
    parameters: float
    flops: float

    @classmethod
    def of(cls, run: Run, arm: Arm, chance: float) -> Enough:
        """With its size: 12 width^2 weights per block (Kaplan et al. 2020, section 2.1)."""
        width = _width(run, arm.model)
        return cls(arm, chance, 12.0 * width**2 * arm.layer, forward_flops(width, arm.layer, LENGTH, LENGTH))


def good_enough(belief: Belief, within: float, sure: float) -> list[Enough]:
    """Every arm that is good enough, cheapest pass first.

    Parameters
    ----------
    belief : Belief
    within : float
        Share of the best arm's mean score that may be given up.
    sure : float
        Probability, under the posterior, with which no more than that is given up.
    """
    arms = belief.problem.arms
    chances = belief.chance_within(range(len(arms)), within)
    chances[belief.leader] = 1.0
    chosen = [(arm, chance) for arm, chance in zip(arms, chances.tolist(), strict=True) if chance >= sure]
    found = [Enough.of(belief.run, arm, chance) for arm, chance in chosen]
    return sorted(found, key=lambda one: (one.flops, -one.chance))


def enough_text(run: Run, within: float, sure: float) -> str:
    """The best arm, and the shallowest and the earliest that are good enough, for a terminal.

    Raises
    ------
    DataError
        If the run has scored nothing, or does not know the size of its models.
    """
    belief = believe(run)
    found = good_enough(belief, within, sure)
    shallowest = found[0]
    earliest = min(found, key=lambda one: (_step(one.arm), one.flops))
    best = next(one for one in found if one.arm == belief.problem.arms[belief.leader])
    lines = fact("best", f"{best.arm}: {terminal.place(best.arm)}")
    lines += fact("shallowest", _told(shallowest, best)) + fact("earliest", _told(earliest, best))
    share = terminal.percent(within)
    text = (
        f"{len(found):,} of {len(belief.problem.arms):,} arms are within {share} of the best arm's mean score with a "
        f"probability of at least {terminal.percent(sure)}, by the search's statistical model; the fewer scores an arm "
        "has, the more of that is borrowed from its neighbours. Score it before you rely on it."
    )
    return "\n".join([*lines, *fact("among", text)])


def _told(one: Enough, best: Enough) -> str:
    if one.arm == best.arm:
        return "the best arm itself"
    weights, operations = _change(one.parameters, best.parameters), _change(one.flops, best.flops)
    return (
        f"{one.arm}: {terminal.place(one.arm)}, {terminal.probability(one.chance)} to be good enough; its blocks have "
        f"{one.parameters:,.0f} weights ({weights} than the best arm) and take {one.flops:.3g} operations for a text "
        f"of {LENGTH} tokens ({operations})"
    )


def _change(own: float, other: float) -> str:
    """How much less of something an arm needs.

    Examples
    --------
    >>> _change(60, 100), _change(150, 100), _change(5, 5), _change(5, 0)
    ('40 % fewer', '50 % more', 'no fewer', 'more')
    """
    if own == other or not other:
        return "no fewer" if own == other else "more"
    return f"{terminal.percent(abs(1 - own / other))} {'fewer' if own < other else 'more'}"


def _step(arm: Arm) -> float:
    return math.inf if arm.checkpoint.step is None else arm.checkpoint.step


def _width(run: Run, model: str) -> int:
    widths = run.start.get("widths", {})
    if model not in widths:
        raise DataError(
            f"The journal in '{run.folder.path}' does not say how wide '{model}' is, since an earlier version wrote "
            "it. Run the configuration again in a new folder."
        )
    return int(widths[model])

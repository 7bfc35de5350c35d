"""Arms that are good enough: the shallowest and the earliest within a share of the best, and what they would save."""

from __future__ import annotations

import math
from dataclasses import dataclass

from daskmetrics.arms import Arm
from daskmetrics.errors import DataError
from daskmetrics.planning.cost import forward_flops
from daskmetrics.report import wording
from daskmetrics.report.belief import Belief, believe
from daskmetrics.report.run import Run
from daskmetrics.report.text import fact

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
    lines = fact("best", f"{best.arm}: {wording.place(best.arm)}")
    lines += fact("shallowest", _told(shallowest, best)) + fact("earliest", _told(earliest, best))
    share = wording.percent(within)
    text = (
        f"{len(found):,} of {len(belief.problem.arms):,} arms are within {share} of the best arm's mean score with a "
        f"probability of at least {wording.percent(sure)}, by the search's statistical model; the fewer scores an arm "
        "has, the more of that is borrowed from its neighbours. Score it before you rely on it."
    )
    return "\n".join([*lines, *fact("among", text)])


def _told(one: Enough, best: Enough) -> str:
    if one.arm == best.arm:
        return "the best arm itself"
    weights, operations = _change(one.parameters, best.parameters), _change(one.flops, best.flops)
    return (
        f"{one.arm}: {wording.place(one.arm)}, {wording.probability(one.chance)} to be good enough; its blocks have "
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
    return f"{wording.percent(abs(1 - own / other))} {'fewer' if own < other else 'more'}"


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

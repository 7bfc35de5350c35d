"""Why an arm was chosen, or was not: its place, its metrics, its scores, and what the search believed of it."""

from __future__ import annotations

import numpy as np

from daskmetrics.arms import Arm
from daskmetrics.report import facts, wording
from daskmetrics.report.belief import Belief, believe
from daskmetrics.report.run import Run, cell_of
from daskmetrics.report.text import fact, table
from daskmetrics.report.wording import number


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
    lines = [*fact(str(arm), wording.place(arm)), "", *_verdict(run, belief, place)]
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
    better = wording.probability(float(belief.chance_within([place], 0.0)[0]))
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
    known = facts.scores(run)
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
    for name, values in facts.metrics(run).items():
        if arm in values:
            share = float(np.mean(np.array(list(values.values())) < values[arm]))
            rows.append((name, f"{values[arm]:.4g}", facts.units(run, name), f"{wording.percent(share)} of the arms"))
        else:
            rows.append((name, "undefined", facts.units(run, name), ""))
    return table(rows)

"""The sentences that terminal, page and notebook share, so that all say the same and no more than is known."""

from __future__ import annotations

from daskmetrics.arms import Arm
from daskmetrics.planning import duration
from daskmetrics.report import facts
from daskmetrics.report.run import Best, Run

NOISE = 2.0  #: differences below this many standard errors are called noise


def state(run: Run) -> str:
    """How the run stands."""
    if run.finished:
        return "finished"
    if run.driver:
        return f"running, driven by {run.driver}"
    return "unfinished, and nobody drives it; run the same command again to resume"


def place(arm: Arm) -> str:
    """An arm as one would say it.

    Examples
    --------
    >>> place(Arm("tiny", "step8", 3))
    'layer 3 of tiny at step 8'
    """
    step = arm.checkpoint.step
    return f"layer {arm.layer} of {arm.model} at {arm.revision if step is None else f'step {step:,}'}"


def number(value: float | None, stderr: float | None = None, sign: bool = False) -> str:
    """A score with its standard error.

    Examples
    --------
    >>> number(0.5, 0.01), number(0.02, 0.01, sign=True), number(None)
    ('0.500 ± 0.010', '+0.020 ± 0.010', 'not measured')
    """
    if value is None:
        return "not measured"
    text = f"{value:{'+' if sign else ''}.3f}"
    return text if stderr is None else f"{text} ± {stderr:.3f}"


def percent(share: float) -> str:
    """A share, with no more digits than it deserves.

    Examples
    --------
    >>> percent(0.2842), percent(0.0123), percent(0.0), percent(1.0)
    ('28 %', '1.2 %', '0 %', '100 %')
    """
    return f"{share:.1%}".replace("%", " %") if 0 < share < 0.095 else f"{share:.0%}".replace("%", " %")


def probability(share: float) -> str:
    """A probability from draws, which can tell neither 0 nor 1.

    Examples
    --------
    >>> probability(0.41), probability(1.0), probability(0.001)
    ('41 %', 'over 99 %', 'under 1 %')
    """
    return "over 99 %" if share > 0.99 else "under 1 %" if share < 0.01 else percent(share)


def difference(best: Best) -> str:
    """How much better than the default arm the best one is, and what that amounts to."""
    if best.arm == best.default:
        return "None: the default arm is the best that was found."
    if best.gain is None:
        return "Not known: the two were not scored on a common task."
    return f"{number(*best.gain, sign=True)}. {_verdict(*best.gain)}"


def _verdict(gain: float, error: float) -> str:
    if abs(gain) < NOISE * error:
        return "Within the noise: less than 2 standard errors of the difference."
    if gain < 0:
        return "Its mean raw score is lower than the default's: the search weighed the tasks by its reward instead."
    beyond = f" ({gain / error:.1f} standard errors)" if error else ""
    return f"Beyond the noise{beyond}, though somewhat optimistic: the arm was chosen by these very scores."


def certainty(best: Best) -> str:
    """What the probability of being best means."""
    unconfirmed = "" if best.confirmed else " Not all tasks were tried with this arm."
    return (
        f"{probability(best.probability)} that no other arm is better on these tasks, by the search's statistical "
        f"model of all arms, not by a test on fresh data.{unconfirmed}"
    )


def searched(run: Run) -> str:
    """How many cells were scored, of how many."""
    done, planned = run.counts["score", "ok"], facts.cells_planned(run)
    failed = sum(n for (kind, status), n in run.counts.items() if kind == "score" and status != "ok")
    parts = [f"{done:,} of {planned:,} cells scored ({percent(done / planned)})" if planned else "no cells"]
    parts += [f"{failed:,} failed"] if failed else []
    parts += [f"{waiting:,} open"] if (waiting := facts.open_picks(run)) else []
    return ", ".join(parts)


def cost(run: Run) -> str:
    """What the search has spent, in the costs that it weighs."""
    if run.result:
        spent, whole = run.result["spent"], run.result["exhaustive"]
        return (
            f"{percent(spent / whole)} of the exhaustive sweep's cost ({duration(spent)} of {duration(whole)}, assumed)"
        )
    spent = sum(pick["cost"] for pick in run.picks)
    budget = percent(run.config["search"]["budget"])
    return f"{duration(spent)} so far (assumed); the budget is {budget} of the exhaustive sweep's cost"


def worker_seconds(run: Run) -> str:
    """Measured seconds on the workers, by kind of work."""
    spent = facts.spending(run)
    kinds = (("train", spent.train), ("measure", spent.measure), ("encode", spent.encode), ("score", spent.score))
    return ", ".join(f"{kind} {duration(value)}" for kind, value in kinds if value) or "none"


def leading(run: Run) -> str:
    """Who leads while the search goes on."""
    found = facts.leader(run)
    if found is None:
        return "no arm has been scored on every task yet"
    arm, score = found
    return f"{arm}, mean score {number(score)}, the greatest among the arms scored on every task"


def headline(run: Run) -> str:
    """The run in one line."""
    if run.result:
        best = run.best()
        return f"best arm {best.arm}, mean score {number(best.score, best.stderr)}"
    measured = f"{run.counts['measure', 'ok']:,} of {run.start['checkpoints']:,} checkpoints measured"
    standing = "finished" if run.finished else "unfinished"
    return f"{standing}, {measured}, {searched(run) if run.tasks else 'no tasks to search'}"

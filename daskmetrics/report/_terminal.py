"""A run as text for a terminal: plain, aligned, at most 100 columns wide."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from daskmetrics.core._files import RunFolder
from daskmetrics.core._text import duration
from daskmetrics.core.names import Arm
from daskmetrics.report import _analysis as analysis
from daskmetrics.report import _timing as timing
from daskmetrics.report._run import Best, Run

__all__ = ["best_text", "headline", "status_text", "summary_text", "whereabouts"]

WIDTH = 98  #: columns; with the comment sign of `best_text` they are 100
LABEL = 12  #: columns of the labels on the left


def status_text(run: Run) -> str:
    """What is done of what, what failed and why, who leads, and where the files lie."""
    lines = [*fact(run.start["name"], state(run)), *_progress(run)]
    if run.tasks:
        lines += fact("cost", cost(run))
        lines += fact("answer", headline(run)) if run.result else fact("leader", leading(run))
    lines += fact("time", f"{worker_seconds(run)} (measured on the workers)")
    lines += _planned(run)
    return "\n".join([*lines, *_failures(run), "", whereabouts(run.folder)])


def summary_text(run: Run) -> str:
    """The answer with its confidence and price, and the scores of each task."""
    lines = [*fact(run.start["name"], state(run))]
    if run.result:
        best = run.best()
        lines += ["", *_answer(best), *fact("certainty", certainty(best))]
        lines += [*_effort(run), "", *_scores(run, best), *_kinds(run)]
    else:
        lines += [*_progress(run), *_effort(run)]
        lines += fact("leader", leading(run)) if run.tasks else fact("search", "none: the run has no tasks")
    return "\n".join([*lines, *_failures(run)])


def best_text(run: Run) -> str:
    """The best arm and the lines of Python that load it."""
    best = run.best()
    lines = [f"# {line}" for line in _answer(best) + fact("certainty", certainty(best))]
    return "\n".join([*lines, "", best.code.rstrip()])


def whereabouts(folder: RunFolder) -> str:
    """Where the files of a run lie, as far as they exist."""
    page = folder.report / "index.html"
    places = (("report", page), ("journal", folder.journal), ("arrays", folder.store), ("config", folder.config))
    return "\n".join(f"{label:<{LABEL}}{path}" for label, path in places if path.exists())


def _progress(run: Run) -> list[str]:
    train = _counted(run, "train")
    measure = _counted(run, "measure", f" of {run.start['checkpoints']:,} checkpoints")
    search = searched(run) if run.tasks else "none: the run has no tasks"
    return [*(fact("train", train) if train else []), *fact("measure", measure), *fact("search", search)]


def _counted(run: Run, kind: str, of: str = "") -> str:
    """Records of a kind, by status; what is done comes first."""
    own = {status: n for (each, status), n in run.counts.items() if each == kind}
    done = own.pop("ok", 0)
    parts = [f"{done:,}{of} done"] if done or of else []
    return ", ".join(parts + [f"{n:,} {status}" for status, n in own.items()])


def _answer(best: Best) -> list[str]:
    over = f"mean of {len(best.shared)} task{'' if len(best.shared) == 1 else 's'}"
    width = max(len(str(best.arm)), len(str(best.default)))
    lines = [
        f"{label:<{LABEL}}{arm!s:<{width}}  {number(score, stderr)}  {over}"
        for label, arm, score, stderr in (
            ("best", best.arm, best.score, best.stderr),
            ("default", best.default, best.default_score, best.default_stderr),
        )
    ]
    return lines + fact("difference", difference(best))


def _effort(run: Run) -> list[str]:
    lines = [*fact("searched", searched(run)), *fact("cost", cost(run))] if run.tasks else []
    return [*lines, *fact("time", f"{worker_seconds(run)} (measured on the workers)"), *_planned(run)]


def _planned(run: Run) -> list[str]:
    """The prediction, if there was one, and how it goes."""
    told = timing.prediction(run)
    return fact("plan", told.text) if told else []


def _scores(run: Run, best: Best) -> list[str]:
    """One line per task: best, default and their difference."""
    rows = [("task", "score", "best", "default", "difference")]
    for task, about in run.tasks.items():
        own, default = (
            (score["score"], score["stderr"]) if (score := scores.get(task)) else (None, None)
            for scores in (best.scores, best.default_scores)
        )
        gain = "" if own[0] is None or default[0] is None else number(own[0] - default[0], sign=True)
        rows.append((task, about["main_score"], number(*own), number(*default), gain))
    return table(rows)


def _kinds(run: Run) -> list[str]:
    """One line per kind of task: the arm that is best at it, by the posterior of all scores."""
    rows = [
        (
            each["kind"].replace("_", " "),
            str(Arm(**each["arm"])),
            f"{number(each['score'])} ({each['scored']} of {len(each['tasks'])} tasks)",
            probability(each["probability_best"]),
        )
        for each in analysis.champions(run)
    ]
    header = ("kind of task", "best arm at it", "its mean score", "that none is better")
    return ["", *table([header, *rows])] if rows else []


def _failures(run: Run) -> list[str]:
    failures = analysis.failures(run)
    lines = ["", "without a value:"] if failures else []
    for each in failures:
        text = f"{each.count:,} x {each.kind}, {each.status}: {each.reason} (first: {each.example})"
        lines += fact("", text)
    if run.failed:
        where = run.folder.path
        lines += ["", *fact("look into", f"daskmetrics logs {where} {run.failed[0].name}")]
        lines += fact("try again", f"daskmetrics retry {where}, and the same command again")
    return lines + _survived(run)


def _survived(run: Run) -> list[str]:
    faults = ", ".join(f"{n:,} x {fault}" for fault, n in analysis.survived(run).most_common())
    return ["", *fact("survived", f"{faults} of attempts whose units succeeded later")] if faults else []


def fact(label: str, text: str) -> list[str]:
    """A label and its text, wrapped beside it.

    Examples
    --------
    >>> fact("run", "demo")
    ['run         demo']
    """
    label = plain(label)
    first = f"{label:<{LABEL}}" if len(label) < LABEL else f"{label}: "
    return textwrap.wrap(
        plain(text), WIDTH, initial_indent=first, subsequent_indent=" " * LABEL, break_long_words=False
    )


def table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows as aligned columns; a cell too long for the width is cut in its middle.

    Examples
    --------
    >>> print(*table([("task", "score"), ("order", "0.5")]), sep="\\n")
    task   score
    order  0.5
    """
    widest = max(8, WIDTH - sum(max(map(len, column)) + 2 for column in list(zip(*rows, strict=True))[1:]))
    fitted = [[_cut(plain(row[0]), widest), *map(plain, row[1:])] for row in rows]
    widths = [max(map(len, column)) for column in zip(*fitted, strict=True)]
    return ["  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip() for row in fitted]


def _cut(text: str, width: int) -> str:
    half = (width - 1) // 2
    return text if len(text) <= width else f"{text[:half]}…{text[len(text) - half :]}"


def plain(text: str) -> str:
    """Without control characters: a reason comes from foreign code, and a terminal obeys what it prints."""
    return "".join(character if character.isprintable() else "?" for character in text)


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
    done, planned = run.counts["score", "ok"], analysis.cells_planned(run)
    failed = sum(n for (kind, status), n in run.counts.items() if kind == "score" and status != "ok")
    parts = [f"{done:,} of {planned:,} cells scored ({percent(done / planned)})" if planned else "no cells"]
    parts += [f"{failed:,} failed"] if failed else []
    parts += [f"{waiting:,} open"] if (waiting := analysis.open_picks(run)) else []
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
    spent = analysis.spending(run)
    kinds = (("train", spent.train), ("measure", spent.measure), ("encode", spent.encode), ("score", spent.score))
    return ", ".join(f"{kind} {duration(value)}" for kind, value in kinds if value) or "none"


def leading(run: Run) -> str:
    """Who leads while the search goes on."""
    found = analysis.leader(run)
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

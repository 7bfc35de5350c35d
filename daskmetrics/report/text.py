"""A run as text for a terminal: plain, aligned, at most 100 columns wide."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from daskmetrics.arms import Arm
from daskmetrics.layout import RunFolder
from daskmetrics.report import facts, prediction, wording
from daskmetrics.report.run import Best, Run
from daskmetrics.report.wording import headline, number

WIDTH = 98  #: columns; with the comment sign of `best_text` they are 100
LABEL = 12  #: columns of the labels on the left
__all__ = ["best_text", "headline", "status_text", "summary_text", "whereabouts"]


def status_text(run: Run) -> str:
    """What is done of what, what failed and why, who leads, and where the files lie."""
    lines = [*fact(run.start["name"], wording.state(run)), *_progress(run)]
    if run.tasks:
        lines += fact("cost", wording.cost(run))
        lines += fact("answer", headline(run)) if run.result else fact("leader", wording.leading(run))
    lines += fact("time", f"{wording.worker_seconds(run)} (measured on the workers)")
    lines += _planned(run)
    return "\n".join([*lines, *_failures(run), "", whereabouts(run.folder)])


def summary_text(run: Run) -> str:
    """The answer with its confidence and price, and the scores of each task."""
    lines = [*fact(run.start["name"], wording.state(run))]
    if run.result:
        best = run.best()
        lines += ["", *_answer(best), *fact("certainty", wording.certainty(best))]
        lines += [*_effort(run), "", *_scores(run, best), *_kinds(run)]
    else:
        lines += [*_progress(run), *_effort(run)]
        lines += fact("leader", wording.leading(run)) if run.tasks else fact("search", "none: the run has no tasks")
    return "\n".join([*lines, *_failures(run)])


def best_text(run: Run) -> str:
    """The best arm and the lines of Python that load it."""
    best = run.best()
    lines = [f"# {line}" for line in _answer(best) + fact("certainty", wording.certainty(best))]
    return "\n".join([*lines, "", best.code.rstrip()])


def whereabouts(folder: RunFolder) -> str:
    """Where the files of a run lie, as far as they exist."""
    page = folder.report / "index.html"
    places = (("report", page), ("journal", folder.journal), ("arrays", folder.store), ("config", folder.config))
    return "\n".join(f"{label:<{LABEL}}{path}" for label, path in places if path.exists())


def _progress(run: Run) -> list[str]:
    train = _counted(run, "train")
    measure = _counted(run, "measure", f" of {run.start['checkpoints']:,} checkpoints")
    search = wording.searched(run) if run.tasks else "none: the run has no tasks"
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
    return lines + fact("difference", wording.difference(best))


def _effort(run: Run) -> list[str]:
    cost = [*fact("searched", wording.searched(run)), *fact("cost", wording.cost(run))] if run.tasks else []
    return [*cost, *fact("time", f"{wording.worker_seconds(run)} (measured on the workers)"), *_planned(run)]


def _planned(run: Run) -> list[str]:
    """The prediction, if there was one, and how it goes."""
    told = prediction.prediction(run)
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
            wording.probability(each["probability_best"]),
        )
        for each in facts.champions(run)
    ]
    header = ("kind of task", "best arm at it", "its mean score", "that none is better")
    return ["", *table([header, *rows])] if rows else []


def _failures(run: Run) -> list[str]:
    failures = facts.failures(run)
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
    faults = ", ".join(f"{n:,} x {fault}" for fault, n in facts.survived(run).most_common())
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

"""A run as plain text for a terminal, at most 100 columns wide."""

from __future__ import annotations

import time
from collections.abc import Container
from importlib.util import find_spec

from daskmetrics.core._files import RunFolder
from daskmetrics.core._table import Table
from daskmetrics.core._telemetry import idle_gpus, read_samples
from daskmetrics.core._text import duration, equal_names
from daskmetrics.report import _analysis as analysis
from daskmetrics.report import _timing as timing
from daskmetrics.report._best import Best
from daskmetrics.report._format import LABEL, WIDTH, apart, fact, number, percent, scored, unpaired
from daskmetrics.report._fresh import fresh_items
from daskmetrics.report._outlook import interrupted
from daskmetrics.report._run import Run

NO_PICTURES = (
    "No PNG or SVG files of the figures were written: they need matplotlib. Run pip install 'daskmetrics[plot]', then "
    "daskmetrics report again."
)
WORTH = "What each choice is worth:"
DETAILS = "The Python that loads the arm, the scores of each task, how sure the verdict is, what more would buy."


def status_text(run: Run) -> str:
    """Progress, failures, the leading arm and the location of the files."""
    lines = [*fact(run.start.name, run.state), *_progress(run)]
    if run.tasks:
        lines += fact("cost", cost(run))
        lines += fact("answer", run.headline) if run.result else fact("leader", leading(run))
    lines += fact("watch", run.watched) if run.watched else []
    for worker, reason in ({} if run.finished else idle_now(run.folder)).items():
        lines += fact("idle", f"worker {worker}: {reason}")
    return "\n".join([*lines, *_time(run), *_notices(run), *_failures(run), "", whereabouts(run.folder)])


def idle_now(folder: RunFolder) -> dict[str, str]:
    """Workers of a run whose GPU idles now, with the reason."""
    return idle_gpus(read_samples(folder.telemetry), time.time())


def summary_text(run: Run) -> str:
    """What a run ends with: the verdict, the best arm of every kind and task, and what they cost."""
    lines = [*fact(run.start.name, run.state)]
    if run.result:
        best, verdict = run.best(), run.verdict
        lines += ["", *fact("verdict", verdict.text), *_arms(best), *fact("difference", best.difference)]
        lines += fact("watch", run.watched) if run.watched else []
        lines += [*fact("certainty", best.certainty), *_outlook(best, ("ended", "changed")), *_fresh(run)]
        lines += fact("readouts", f"{run.worth.sentence}.") if run.worth.each else []
        lines += [*_effort(run), "", verdict.table.as_text(WIDTH) if verdict.parts else _scores(run, best)]
        lines += ["", verdict.model_table.as_text(WIDTH)] if verdict.model_table.rows else []
        lines += ["", *fact("details", f"daskmetrics best {run.folder.path}"), *fact("", DETAILS)]
    else:
        lines += [*_progress(run), *_effort(run)]
        lines += fact("leader", leading(run)) if run.tasks else fact("search", "none: the run has no tasks")
    return "\n".join([*lines, *_notices(run), *_failures(run)])


def best_text(run: Run) -> str:
    """The verdict with its reasons, the scores of each task, and the Python that loads the best arm."""
    best, verdict = run.best(), run.verdict
    same = run.start.aliases.get(str(best.arm.checkpoint))
    about = [*fact("verdict", verdict.text), *_arms(best), *fact("difference", best.difference)]
    about += fact("test", verdict.basis)
    about += fact("identical", equal_names(str(best.arm.checkpoint), same)) if same else []
    about += [*fact("certainty", best.certainty), *_outlook(best), "", *_scores(run, best).splitlines()]
    about += ["", *fact("readouts", WORTH), "", *run.worth.table.as_text(WIDTH).splitlines()] if run.worth.each else []
    lines = [f"# {line}".rstrip() for line in about]
    return "\n".join([*lines, "", best.code.rstrip()])


def whereabouts(folder: RunFolder) -> str:
    """The paths of the files of a run that exist; that of the report as a link, which terminals open.

    Where no figures were written because matplotlib is missing, that is said below the link.
    """
    page = folder.report / "index.html"
    lines = [f"{'report':<{LABEL}}{page.resolve().as_uri()}"] if page.exists() else []
    if lines and find_spec("matplotlib") is None and not any(folder.report.glob("*.png")):
        lines += fact("figures", NO_PICTURES)
    places = (("journal", folder.journal), ("arrays", folder.store), ("config", folder.config))
    return "\n".join([*lines, *(f"{label:<{LABEL}}{path}" for label, path in places if path.exists())])


def _progress(run: Run) -> list[str]:
    train = _counted(run, "train")
    measure = "none: the run has no metrics"
    if run.config["metrics"]:
        measure = _counted(run, "measure", f" of {run.start.checkpoints:,} checkpoints")
    search = run.searched if run.tasks else "none: the run has no tasks"
    return [*(fact("train", train) if train else []), *fact("measure", measure), *fact("search", search)]


def _counted(run: Run, kind: str, of: str = "") -> str:
    """Records of a kind by status, those with a value first."""
    counts = {status: n for (each, status), n in run.counts.items() if each == kind}
    done = counts.pop("ok", 0)
    parts = [f"{done:,}{of} done"] if done or of else []
    return ", ".join(parts + [f"{n:,} {status}" for status, n in counts.items()])


def _arms(best: Best) -> list[str]:
    """The best and the default arm."""
    named = (
        (best.label, best.arm, best.score, best.stderr),
        ("default", best.default, best.default_score, best.default_stderr),
    )
    width = max(len(str(arm)) for _, arm, _, _ in named)
    return [
        f"{label:<{LABEL}}{arm!s:<{width}}  {number(score, error)}  {best.over}" for label, arm, score, error in named
    ]


def _fresh(run: Run) -> list[str]:
    """The finalists on items that were kept back from the search, if any were."""
    fresh = fresh_items(run)
    return [*fact("fresh items", fresh.sentence), "", fresh.table.as_text(WIDTH), ""] if fresh else []


def _effort(run: Run) -> list[str]:
    lines = [*fact("searched", run.searched), *fact("cost", cost(run))] if run.tasks else []
    if not run.result and run.picks and not run.driver:
        lines += fact("ended", interrupted(len(run.picks)))
    return [*lines, *_time(run)]


def _outlook(best: Best, labels: Container[str] | None = None) -> list[str]:
    chosen = (each for each in best.outlook.items() if labels is None or each[0] in labels)
    return [line for label, text in chosen for line in fact(label, text)]


def _time(run: Run) -> list[str]:
    """Measured seconds, and the plan beside the run if there is one."""
    lines = fact("time", f"{worker_seconds(run)} (measured on the workers)")
    prediction = timing.prediction(run)
    return lines + fact("plan", prediction.text) if prediction else lines


def _scores(run: Run, best: Best) -> str:
    """One line per task: best arm, default arm, and their difference."""
    rows = []
    for task, about in run.tasks.items():
        both = (scored(scores.get(task)) for scores in (best.scores, best.default_scores))
        rows.append((task, about["main_score"], *both, apart(best.differences.get(task), " *")))
    header = ("task", "score", best.label, "default", "difference")
    return Table(header, tuple(rows), notes=unpaired(best.differences.values())).as_text(WIDTH)


def _notices(run: Run) -> list[str]:
    """Checkpoints of equal weights, and what is doubtful about the weights and the data."""
    lines = [line for names in run.identical for line in fact("identical", names)]
    lines += [line for text in run.start.warnings for line in fact("warning", text)]
    return ["", *lines] if lines else []


def _failures(run: Run) -> list[str]:
    failures = analysis.failures(run)
    lines = ["", "missing values:"] if failures else []
    for each in failures:
        lines += fact("", f"{each.count:,} x {each.kind}, {each.status}: {each.reason} (first: {each.example})")
    if run.failed:
        where = run.folder.path
        lines += ["", *fact("details", f"daskmetrics logs {where} {run.failed[0].name}")]
        lines += fact("try again", f"daskmetrics retry {where}, then run the same command again")
    faults = ", ".join(f"{n:,} x {fault}" for fault, n in analysis.survived(run).most_common())
    return lines + (["", *fact("recovered", f"{faults} in attempts whose units succeeded later")] if faults else [])


def cost(run: Run) -> str:
    """The cost of the search so far, in its assumed costs."""
    if run.result:
        spent, total = run.result.spent, run.result.exhaustive
        assumed = f"({duration(spent)} of {duration(total)}, assumed)"
        return f"{percent(spent / total)} of the exhaustive sweep's cost {assumed}"
    spent = sum(pick["cost"] for pick in run.picks)
    share = run.config["search"]["budget"]
    budget = "chosen by the search" if share == "auto" else f"{percent(share)} of the exhaustive sweep's cost"
    return f"{duration(spent)} so far (assumed); the budget is {budget}"


def worker_seconds(run: Run) -> str:
    """Measured seconds on the workers, by kind of work."""
    spent = analysis.spending(run)
    kinds = (("train", spent.train), ("measure", spent.measure), ("encode", spent.encode), ("score", spent.score))
    return ", ".join(f"{kind} {duration(value)}" for kind, value in kinds if value) or "none"


def leading(run: Run) -> str:
    """The leading arm while the search continues."""
    if (leader := analysis.leader(run)) is None:
        return "no arm has been scored on every task yet"
    return f"{leader[0]}, mean score {number(leader[1])}, the greatest among the arms scored on every task"

"""A run as plain text for a terminal, at most 100 columns wide."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib.util import find_spec

from daskmetrics.answer import analysis
from daskmetrics.answer.answer import cost_of
from daskmetrics.answer.status import WorkerUse, idle_now
from daskmetrics.core.files import RunFolder
from daskmetrics.core.table import Table
from daskmetrics.core.text import duration, equal_names
from daskmetrics.report._format import LABEL, fact, number, percent
from daskmetrics.report._run import Run
from daskmetrics.report._sections import ReportSection, facts, last_screen, sections

NO_PICTURES = (
    "No PNG or SVG files of the figures were written: they need matplotlib. Run pip install "
    "'daskmetrics[plot]', then daskmetrics report again."
)


def status_text(run: Run) -> str:
    """Progress, failures, the leading candidate and the location of the files."""
    lines = [*fact(run.start.name, run.state), *_progress(run)]
    if not run.finished:
        for worker, reason in idle_now(run.folder).items():
            lines += fact("idle", f"worker {worker}: {reason}")
    return "\n".join([*lines, *_notices(run), *_failures(run), "", whereabouts(run.folder)])


def summary_text(run: Run) -> str:
    """What a run ends with: the answer, and the best candidate of every kind and task."""
    if not run.result:
        lines = [*fact(run.start.name, run.state), *_progress(run)]
        return "\n".join([*lines, *_notices(run), *_failures(run)])
    shown = [section.as_text() for section in last_screen(run.answer, str(run.folder.path))]
    return "\n".join(["\n\n".join(shown), *_watched(run), *_notices(run), *_failures(run)])


def best_text(run: Run) -> str:
    """The whole answer: what to use, by task and by model, how sure that is."""
    lines = Table((), tuple(facts(run.answer, str(run.folder.path)).items()))
    shown = [ReportSection("", table=lines), *sections(run.answer)]
    return "\n\n".join(section.as_text() for section in shown)


def whereabouts(folder: RunFolder) -> str:
    """The paths of the files of a run that exist; that of the report as a link, which terminals
    open.

    Where no figures were written because matplotlib is missing, that is said below the link.
    """
    page = folder.report / "index.html"
    lines = []
    if page.exists():
        lines.append(f"{'report':<{LABEL}}{page.resolve().as_uri()}")
        if find_spec("matplotlib") is None and not any(folder.report.glob("*.png")):
            lines += fact("figures", NO_PICTURES)
    files = {"journal": folder.journal, "arrays": folder.store, "config": folder.config}
    lines += [f"{label:<{LABEL}}{path}" for label, path in files.items() if path.exists()]
    return "\n".join(lines)


def _progress(run: Run) -> Iterator[str]:
    """What is done of every kind of work, the leader and what that took."""
    if trained := _counted(run, "train"):
        yield from fact("train", trained)
    measured = "none: the run has no metrics"
    if run.config["metrics"]:
        measured = _counted(run, "measure") or "nothing yet"
        measured += f", of {run.start.checkpoints:,} checkpoints"
    yield from fact("measure", measured)
    if run.tasks:
        yield from fact("search", run.searched)
        yield from fact("cost", cost(run))
        yield from fact("answer" if run.result else "leader", leading(run))
    else:
        yield from fact("search", "none: the run has no tasks")
    yield from fact("time", f"{worker_seconds(run)} (measured on the workers)")
    yield from _watched(run)


def _counted(run: Run, kind: str) -> str:
    """Records of a kind by status, those with a value first."""
    counts = {status: count for (name, status), count in run.counts.items() if name == kind}
    done = [("done", counts.pop("ok"))] if "ok" in counts else []
    return ", ".join(f"{count:,} {status}" for status, count in [*done, *counts.items()])


def _watched(run: Run) -> list[str]:
    return fact("watch", run.watched) if run.watched else []


def _notices(run: Run) -> list[str]:
    """Checkpoints of equal weights, and what is doubtful about the weights and the data."""
    lines = []
    for kept, names in run.start.aliases.items():
        lines += fact("identical", equal_names(kept, names))
    for warning in run.start.warnings:
        lines += fact("warning", warning)
    if lines:
        lines.insert(0, "")
    return lines


def _failures(run: Run) -> list[str]:
    lines = []
    for failure in analysis.failures(run):
        missing = f"{failure.count:,} x {failure.kind}, {failure.status}"
        lines += fact("", f"{missing}: {failure.reason} (first: {failure.example})")
    if lines:
        lines = ["", "missing values:", *lines]
    if run.failed:
        where = run.folder.path
        lines += ["", *fact("details", f"daskmetrics runs logs {where} {run.failed[0].name}")]
        retry = f"daskmetrics runs retry {where}, then run the same command again"
        lines += fact("try again", retry)
    if survived := analysis.survived(run):
        faults = ", ".join(f"{count:,} x {fault}" for fault, count in survived.most_common())
        lines += fact("recovered", f"{faults} in attempts whose units succeeded later")
    return lines


def cost(run: Run) -> str:
    """The cost of the search so far, in its assumed costs."""
    paid = cost_of(run)
    if paid.exhaustive and paid.share is not None:
        times = f"{duration(paid.spent)} of {duration(paid.exhaustive)}, assumed"
        return f"{percent(paid.share)} of the cost of scoring everything ({times})"
    budget = run.config["search"]["budget"]
    if budget != "auto":
        budget = f"{percent(budget)} of the cost of scoring everything"
    return f"{duration(paid.spent)} so far (assumed); budget: {budget}"


def worker_seconds(run: Run) -> str:
    """Measured seconds on the workers, by kind of work."""
    seconds = vars(analysis.spending(run))
    spent = [f"{kind} {duration(value)}" for kind, value in seconds.items() if value]
    return ", ".join(spent) or "none"


def leading(run: Run) -> str:
    """The answer or, while the search continues, the leading candidate."""
    if run.result:
        return run.headline
    leader = analysis.leader(run)
    if leader is None:
        return "no candidate has been scored on every task yet"
    arm, score = leader
    return f"{arm}, mean score {number(score)}, the greatest of those scored on every task"


def worker_table(uses: Sequence[WorkerUse]) -> Table:
    """How busy the workers were."""
    rows = []
    for use in uses:
        used = (_share(use.busy), _share(use.cpu), _gib(use.memory), _gib(use.gpu_memory, "none"))
        rows.append((use.worker, use.host, str(use.units), *used))
    header = ("worker", "host", "units", "busy", "CPU", "memory", "GPU memory")
    return Table(header, tuple(rows))


def _share(share: float | None) -> str:
    return "unknown" if share is None else f"{share:.0%}"


def _gib(size: int | None, missing: str = "unknown") -> str:
    return missing if size is None else f"{size / 2**30:.1f} GiB"

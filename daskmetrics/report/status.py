"""How far a run is, line by line, and what is missing or doubtful."""

from __future__ import annotations

from collections.abc import Mapping
from shlex import quote

from daskmetrics.answer import analysis
from daskmetrics.answer.analysis import Cost, Leader
from daskmetrics.answer.answer import Answer
from daskmetrics.answer.recorded import RecordedRun
from daskmetrics.answer.status import RunStatus, status_of
from daskmetrics.core.table import printable
from daskmetrics.core.text import duration, plural, score_text
from daskmetrics.domain.names import LayerNames
from daskmetrics.domain.training import TrainingStatus
from daskmetrics.report._format import Line, candidate, percent
from daskmetrics.report.lines import use

OF_ALL = "of the time that all scores would take"


def status_lines(run: RecordedRun, answer: Answer | None) -> list[Line]:
    """State, progress, cost, best candidate and time.

    ``answer`` is None while there is none.
    """
    status = status_of(run)
    done = progress(status, has_metrics=bool(run.config["metrics"]))
    texts = {"state": state(status.finished, status.driver), **done}
    if run.kinds:
        texts["cost"] = cost(status.cost, run.config["search"]["budget"])
        texts["best"] = leader(status.leader, len(run.means), run.plan.layer_names)
        if answer:
            texts["best"] = use(answer)
    texts["time"] = time(status.seconds)
    if run.watched:
        texts["watch"] = printable(run.watched)
    return [Line(label, text) for label, text in texts.items()]


def problem_lines(run: RecordedRun) -> list[Line]:
    """What is missing or doubtful, and what to do."""
    lines = [
        Line("identical", " = ".join([kept, *names])) for kept, names in run.plan.aliases.items()
    ]
    lines += [Line("warning", warning) for warning in (*run.plan.warnings, *run.notices)]
    for failure in analysis.failures(run.records):
        what = f"{failure.count:,} x {failure.kind}, {failure.status}"
        lines.append(Line("missing", f"{what}: {failure.reason} (first: {failure.example})"))
    if run.failed:
        folder = quote(str(run.folder.path))
        retry = f"daskmetrics runs retry {folder}, then run the same command again"
        lines += [
            Line("details", f"daskmetrics runs logs {folder} {run.failed[0].name}"),
            Line("try again", retry),
        ]
    if survived := analysis.survived(run.entries, run.records):
        faults = ", ".join(f"{count:,} x {fault}" for fault, count in survived.most_common())
        lines.append(Line("recovered", f"{faults} in attempts whose units succeeded later"))
    return lines


def training_lines(status: TrainingStatus) -> list[Line]:
    """State, ranks, progress and failed ranks of a program that trains."""
    driver = str(status.driver) if status.is_driven else None
    text = state(status.finished, driver)
    if status.error:
        text = f"failed. {status.error}"
    ranks = f"none of {status.ranks}"
    if status.is_driven:
        ranks += " yet: it waits for workers"
    if status.nodes:
        ranks = (
            f"{len(status.nodes)} of {status.ranks}, on {plural(len(set(status.nodes)), 'node')}"
        )
    if status.attempt > 1:
        ranks += f"; attempt {status.attempt}"
    lines = [Line(status.name, text), Line("ranks", ranks), Line("step", training_step(status))]
    if status.progress and status.progress.text:
        lines.append(Line("latest", status.progress.text))
    for ending in status.failed:
        text = f"failed: {ending.reason}"
        # a rank that was lost with its worker leaves no line, and a traceback ends with the reason
        if ending.lines and ending.lines[-1] != ending.reason:
            text += f"; its last line: {ending.lines[-1]}"
        lines.append(Line(f"rank {ending.rank}", text))
    if status.notice:
        lines.append(Line("warning", status.notice))
    return lines


def training_step(status: TrainingStatus) -> str:
    """How many steps a program has taken, and how long the others take."""
    progress = status.progress
    if progress is None:
        return "none is reported yet"
    if not progress.total:
        return f"{progress.step:,}"
    text = f"{progress.step:,} of {progress.total:,} ({percent(progress.step / progress.total)})"
    if status.left:
        text += f", {duration(status.left)} left"
    return text


def progress(status: RunStatus, has_metrics: bool) -> dict[str, str]:
    """What is done of each kind of work, by kind."""
    texts = {}
    if "train" in status.counts:
        texts["train"] = _done(status.counts["train"])
    texts["measure"] = "none: the run has no metrics"
    if has_metrics:
        done = _done(status.counts.get("measure", {}))
        texts["measure"] = f"{done} of {status.checkpoints:,} checkpoints"
    texts["search"] = "none: the run has no tasks"
    if status.cells["planned"]:
        scores = status.counts.get("score", {})
        texts["search"] = _scores(status.cells, sum(scores.values()) - scores.get("ok", 0))
    return texts


def _done(counts: Mapping[str, int]) -> str:
    names = {"ok": "done"}
    done_first = sorted(counts, key=lambda status: status != "ok")
    texts = [f"{counts[status]:,} {names.get(status, status)}" for status in done_first]
    return ", ".join(texts) or "nothing yet"


def _scores(cells: Mapping[str, int], failed: int) -> str:
    share = percent(cells["scored"] / cells["planned"])
    text = f"{cells['scored']:,} of {plural(cells['planned'], 'score')} ({share})"
    if failed:
        text += f", {failed:,} failed"
    if cells["open"]:
        text += f", {cells['open']:,} open"
    return text


def state(finished: bool, driver: str | None) -> str:
    """Whether a run is finished, running or interrupted, in a sentence."""
    if finished:
        return "finished"
    if driver:
        return f"running, driven by {driver}"
    return "unfinished, and no process drives it; run the same command again to resume"


def cost(search: Cost, budget: float | str) -> str:
    """What the search took, or may take, of all time."""
    spent = duration(search.spent)
    if search.share is not None and search.exhaustive is not None:
        of_all = duration(search.exhaustive)
        return f"{percent(search.share)} {OF_ALL} ({spent} of {of_all}, estimated)"
    allowed = str(budget)
    if not isinstance(budget, str):
        allowed = f"{percent(budget)} {OF_ALL}"
    return f"{spent} so far (estimated); budget: {allowed}"


def leader(best: Leader | None, scored: int, layer_names: LayerNames) -> str:
    """The best candidate so far, of those scored everywhere."""
    if best is None:
        return "no candidate has been scored on every task yet"
    score = score_text(best.score, best.stderr)
    return f"{candidate(best.arm, layer_names)}: score {score}, the best of the {scored:,} scored so far"


def time(seconds: Mapping[str, float]) -> str:
    """What each kind of work took."""
    spent = [f"{kind} {duration(amount)}" for kind, amount in seconds.items() if amount]
    return f"{', '.join(spent) or 'none'} (measured on the workers)"

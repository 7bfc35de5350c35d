"""A run as plain text for a terminal, at most 100 columns wide, except for tables of trade-offs."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.util import find_spec
from itertools import chain

from daskmetrics.answer import analysis
from daskmetrics.answer.answer import cost_of
from daskmetrics.answer.posterior import posterior_of
from daskmetrics.answer.recorded import cell_of
from daskmetrics.answer.status import idle_now
from daskmetrics.core.files import RunFolder
from daskmetrics.core.names import Arm
from daskmetrics.core.table import Table
from daskmetrics.core.text import duration, equal_names, shortened
from daskmetrics.report._format import LABEL, WIDTH, fact, number, percent, probability, si
from daskmetrics.report._run import Run
from daskmetrics.report._sections import (
    MOST_ROWS,
    ReportSection,
    cheaper,
    facts,
    sections,
    tasks_section,
    trade_offs_table,
    use,
)

NO_PICTURES = (
    "No PNG or SVG files of the figures were written: they need matplotlib. Run pip install "
    "'daskmetrics[plot]', then daskmetrics report again."
)
TABLE_WIDTH = 132  #: columns, since a row of trade-offs has nine cells
SHOWN = 6  #: decisions that are listed

Facts = list[tuple[str, str]]  # labels and texts


def _text(blocks: Iterable[Iterable[tuple[str, str]]]) -> str:
    """Labelled lines, with an empty line between blocks."""
    lines = ["\n".join(chain.from_iterable(fact(*row) for row in block)) for block in blocks]
    return "\n\n".join(filter(None, lines))


def status_text(run: Run) -> str:
    """Progress, failures, the leading candidate and the location of the files."""
    known = [(run.start.name, run.state), *_progress(run)]
    if not run.finished:
        for worker, reason in idle_now(run.folder).items():
            known.append(("idle", f"worker {worker}: {reason}"))
    return "\n\n".join([_text([known, *_problems(run)]), whereabouts(run.folder)])


def summary_text(run: Run) -> str:
    """What a run ends with: the answer, and the best candidates of a few tasks."""
    if not run.result:
        return _text([[(run.start.name, run.state), *_progress(run)], *_problems(run)])
    lines = Table((), tuple(facts(run.answer, str(run.folder.path)).items()))
    shown = [lines.as_text(WIDTH), tasks_section(run.answer, MOST_ROWS).table.as_text(WIDTH)]
    watched = [("watch", run.watched)] if run.watched else []
    shown[1:] = ["\n".join(filter(None, [shown[1], _text([watched])]))]
    problems = _text(_problems(run))
    return "\n\n".join(filter(None, [*shown, problems]))


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


def _progress(run: Run) -> Facts:
    """What is done of every kind of work, the leader and what that took."""
    done = {}
    for kind in ("train", "measure"):
        counts = {status: count for (name, status), count in run.counts.items() if name == kind}
        known = [("done", counts.pop("ok"))] if "ok" in counts else []
        texts = [f"{count:,} {status}" for status, count in [*known, *counts.items()]]
        done[kind] = ", ".join(texts)
    rows = [("train", done["train"])] if done["train"] else []
    measured = "none: the run has no metrics"
    if run.config["metrics"]:
        measured = f"{done['measure'] or 'nothing yet'}, of {run.start.checkpoints:,} checkpoints"
    rows.append(("measure", measured))
    if run.tasks:
        rows += [("search", run.searched), ("cost", cost(run))]
        rows.append(("answer" if run.result else "leader", leading(run)))
    else:
        rows.append(("search", "none: the run has no tasks"))
    rows.append(("time", f"{worker_seconds(run)} (measured on the workers)"))
    if run.watched:
        rows.append(("watch", run.watched))
    return rows


def _problems(run: Run) -> list[Facts]:
    """Checkpoints of equal weights, what is doubtful about the weights and the data, and failures."""
    equal = run.start.aliases.items()
    notices = [("identical", equal_names(kept, names)) for kept, names in equal]
    notices += [("warning", warning) for warning in run.start.warnings]
    missing: Facts = []
    for failure in analysis.failures(run):
        values = f"{failure.count:,} x {failure.kind}, {failure.status}"
        text = f"{values}: {failure.reason} (first: {failure.example})"
        missing.append(("" if missing else "missing", text))
    remedies = []
    if run.failed:
        where = run.folder.path
        retry = f"daskmetrics runs retry {where}, then run the same command again"
        logs = f"daskmetrics runs logs {where} {run.failed[0].name}"
        remedies += [("details", logs), ("try again", retry)]
    if survived := analysis.survived(run):
        faults = ", ".join(f"{count:,} x {fault}" for fault, count in survived.most_common())
        remedies.append(("recovered", f"{faults} in attempts whose units succeeded later"))
    return [notices, missing, remedies]


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


def explain_text(run: Run, name: str) -> str:
    """Rank, decisions, scores and metrics of an arm such as ``tiny@step8/3``."""
    posterior = posterior_of(run)
    for alias, kept in run.measured_as.items():
        if name.startswith(f"{alias}/"):
            name = kept + name.removeprefix(alias)
    index = posterior.index(name)
    arm, leader = (posterior.problem.arms[i] for i in (index, posterior.leader))
    reward, mean = posterior.problem.reward, posterior.posterior.mean[index]
    lead = posterior.lead(index)
    ahead = "the recommended one" if run.result else "the leading one so far"
    if arm != leader:
        ahead = (
            f"{leader} is expected to be better by {number(lead.value, lead.stderr, sign=True)}; "
            f"{probability(1 - lead.probability)} that this one is better"
        )
    rank = f"{posterior.rank(index)} of {len(posterior.problem.arms):,} by the posterior mean"
    expected = f"{number(mean, posterior.posterior.sd[index], sign=True)} (reward {reward})"
    chosen = "never: the search expected more information per cost from other candidates"
    if picks := [pick for pick in run.picks if cell_of(pick).arm == arm]:
        texts = [f"{pick['index'] + 1} ({pick['stage']}, {cell_of(pick).task})" for pick in picks]
        chosen = f"{len(picks)} of {len(run.picks)} decisions: {shortened(texts, SHOWN)}"
    rows = (("rank", rank), ("expected", expected), ("leader", ahead), ("chosen", chosen))
    tables = [_scores(run, arm, leader), _metrics(run, arm)]
    shown = [ReportSection(str(arm), table=Table((), rows))]
    shown += [ReportSection("", table=table) for table in tables if table.rows]
    return "\n\n".join(section.as_text() for section in shown)


def _scores(run: Run, arm: Arm, leader: Arm) -> Table:
    """The arm's score on every task beside the leader's and the best."""
    scores = analysis.scores(run)
    rows = []
    for task in run.tasks:
        by_arm = {scored: by_task.get(task) for scored, by_task in scores.items()}
        best = max((score for score in by_arm.values() if score is not None), default=None)
        rows.append((task, *map(number, (by_arm.get(arm), by_arm.get(leader), best))))
    return Table(("task", "this one", "leader", "best score"), tuple(rows))


def _metrics(run: Run, arm: Arm) -> Table:
    """The metrics of the arm's layer, and how they compare with those of all."""
    layer = analysis.layer_of(arm)
    rows = []
    for name, values in analysis.metrics(run).items():
        if layer not in values:
            rows.append((name, "undefined", "", ""))
            continue
        below = sum(value < values[layer] for value in values.values()) / len(values)
        value = f"{values[layer]:.4g}"
        rows.append((name, value, analysis.units(run, name), f"{percent(below)} of the layers"))
    return Table(("metric", "value", "units", "greater than"), tuple(rows))


def within_text(run: Run, within: float) -> str:
    """The best arm, and the simplest that loses at most a share of its score."""
    simpler = run.verdict.cheaper(within)
    rows = [("best", use(run.answer))]
    if simpler is None:
        rows.append(("cheaper", f"none loses at most {percent(within)} of the score (95 %)"))
    else:
        less, best = run.cost_of(simpler.arm), run.cost_of(run.answer.best.arm)
        weights = f"{si(less.parameters)} weights in place of {si(best.parameters)}"
        saved = f"{weights}, {si(less.flops)} operations for a text in place of {si(best.flops)}"
        rows += [("cheaper", cheaper(simpler)), ("saves", saved)]
    return Table((), tuple(rows)).as_text(WIDTH)


def trade_offs_text(run: Run) -> str:
    """Scores against what arms take."""
    return trade_offs_table(run.trade_offs()).as_text(TABLE_WIDTH)

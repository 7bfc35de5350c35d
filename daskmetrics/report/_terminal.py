"""A run as plain text for a terminal, at most 100 columns wide, except for tables of trade-offs."""

from __future__ import annotations

from importlib.util import find_spec
from operator import itemgetter
from shlex import quote

from daskmetrics.answer import analysis
from daskmetrics.answer.answer import cost_of
from daskmetrics.answer.posterior import posterior_of
from daskmetrics.answer.recorded import cell_of
from daskmetrics.answer.status import idle_now
from daskmetrics.core.files import RunFolder
from daskmetrics.core.names import Arm
from daskmetrics.core.outcomes import means_of
from daskmetrics.core.table import Table
from daskmetrics.core.text import duration, equal_names, shortened
from daskmetrics.report._format import (
    LABEL,
    WIDTH,
    candidate,
    fact,
    number,
    percent,
    probability,
    si,
)
from daskmetrics.report._run import Run
from daskmetrics.report._sections import (
    MOST_ROWS,
    answer_rows,
    cheaper,
    tables,
    tasks_table,
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


def _text(facts: Facts) -> str:
    """Labelled lines."""
    return "\n".join(line for row in facts for line in fact(*row))


def status_text(run: Run) -> str:
    """Progress, what is missing or doubtful, the leading candidate and the location of the files."""
    facts = [(run.start.name, run.state), *_progress(run)]
    if not run.finished:
        for worker, reason in idle_now(run.folder).items():
            facts.append(("idle", f"worker {worker}: {reason}"))
    blocks = [_text(facts), _text(_problems(run)), whereabouts(run.folder)]
    return "\n\n".join(filter(None, blocks))


def summary_text(run: Run) -> str:
    """What a run ends with: the answer, the best candidates of a few tasks, and three paths."""
    if not run.result:
        return status_text(run)
    by_task = tasks_table(run.answer, MOST_ROWS)
    blocks = [_answer(run), by_task.as_text(WIDTH)]
    if run.watched:
        blocks.append(_text([("watch", run.watched)]))
    return "\n\n".join([*blocks, whereabouts(run.folder)])


def best_text(run: Run) -> str:
    """The whole answer, with all its tables."""
    blocks = [_answer(run), *(table.as_text(WIDTH) for table in tables(run.answer))]
    return "\n\n".join([*blocks, whereabouts(run.folder)])


def _answer(run: Run) -> str:
    return Table((), tuple(answer_rows(run.answer).items())).as_text(WIDTH)


def whereabouts(folder: RunFolder) -> str:
    """The page as a link, which terminals open; the folder of a run; and where more is said.

    Where no figures were written because matplotlib is missing, that is said below the link.
    """
    page = folder.report / "index.html"
    lines = []
    if page.exists():
        lines.append(f"{'page':<{LABEL}}{page.resolve().as_uri()}")
        if find_spec("matplotlib") is None and not any(folder.report.glob("*.png")):
            lines += fact("figures", NO_PICTURES)
    lines += [f"{'files':<{LABEL}}{folder.path}", f"{'more':<{LABEL}}daskmetrics best --help"]
    return "\n".join(lines)


def _progress(run: Run) -> Facts:
    """What is done of every kind of work, the leader and what that took."""
    done = {}
    for kind in ("train", "measure"):
        by_status = [
            (status, count) for (name, status), count in run.counts.items() if name == kind
        ]
        by_status.sort(key=lambda item: item[0] != "ok")
        texts = [f"{count:,} {status}" for status, count in by_status]
        done[kind] = ", ".join(texts).replace(" ok", " done")
    rows = []
    if done["train"]:
        rows.append(("train", done["train"]))
    measured = "none: the run has no metrics"
    if run.config["metrics"]:
        measured = f"{done['measure'] or 'nothing yet'}, of {run.start.checkpoints:,} checkpoints"
    rows.append(("measure", measured))
    if run.tasks:
        rows += [("search", run.searched), ("cost", cost(run)), ("best", leading(run))]
    else:
        rows.append(("search", "none: the run has no tasks"))
    rows.append(("time", f"{worker_seconds(run)} (measured on the workers)"))
    if run.watched:
        rows.append(("watch", run.watched))
    return rows


def _problems(run: Run) -> Facts:
    """Checkpoints of equal weights, what is doubtful about the weights and the data, and failures."""
    equal = run.start.aliases.items()
    rows = [("identical", equal_names(kept, names)) for kept, names in equal]
    rows += [("warning", warning) for warning in run.start.warnings]
    for failure in analysis.failures(run):
        values = f"{failure.count:,} x {failure.kind}, {failure.status}"
        rows.append(("missing", f"{values}: {failure.reason} (first: {failure.example})"))
    if run.failed:
        where = quote(str(run.folder.path))
        retry = f"daskmetrics runs retry {where}, then run the same command again"
        rows += [
            ("details", f"daskmetrics runs logs {where} {run.failed[0].name}"),
            ("try again", retry),
        ]
    if survived := analysis.survived(run):
        faults = ", ".join(f"{count:,} x {fault}" for fault, count in survived.most_common())
        rows.append(("recovered", f"{faults} in attempts whose units succeeded later"))
    return rows


def cost(run: Run) -> str:
    """The time of the search so far, as the search computes it before it measures any."""
    paid = cost_of(run)
    if paid.exhaustive and paid.share is not None:
        times = f"{duration(paid.spent)} of {duration(paid.exhaustive)}, estimated"
        return f"{percent(paid.share)} of the time that all scores would take ({times})"
    budget = run.config["search"]["budget"]
    if budget != "auto":
        budget = f"{percent(budget)} of the time that all scores would take"
    return f"{duration(paid.spent)} so far (estimated); budget: {budget}"


def worker_seconds(run: Run) -> str:
    """Measured seconds on the workers, by kind of work."""
    seconds = vars(analysis.spending(run))
    spent = [f"{kind} {duration(value)}" for kind, value in seconds.items() if value]
    return ", ".join(spent) or "none"


def leading(run: Run) -> str:
    """The answer or, while the search continues, the leading candidate."""
    if run.result:
        return run.headline
    means = means_of(run.recorded, run.weights)
    if not means:
        return "no candidate has been scored on every task yet"
    arm, mean = max(means.items(), key=itemgetter(1))
    return f"{candidate(arm)}: score {number(*mean)}, the best of the {len(means):,} scored so far"


def explain_text(run: Run, name: str) -> str:
    """Rank, decisions, scores and metrics of an arm such as ``tiny@step8/3``."""
    posterior = posterior_of(run)
    for alias, kept in run.measured_as.items():
        if name.startswith(f"{alias}/"):
            name = kept + name.removeprefix(alias)
    index = posterior.index(name)
    arm, leader = (posterior.problem.arms[i] for i in (index, posterior.leader))
    mean, lead = posterior.posterior.mean[index], posterior.lead(index)
    ahead = "the recommended one" if run.result else "the leading one so far"
    if arm != leader:
        ahead = (
            f"{leader} is expected to be better by {number(lead.value, lead.stderr, sign=True)}; "
            f"{probability(1 - lead.probability)} that this one is better"
        )
    chosen = "never: the search expected more information per cost from other candidates"
    if picks := [pick for pick in run.picks if cell_of(pick).arm == arm]:
        texts = [f"{pick['index'] + 1} ({pick['stage']}, {cell_of(pick).task})" for pick in picks]
        chosen = f"{len(picks)} of {len(run.picks)} decisions: {shortened(texts, SHOWN)}"
    rank = f"{posterior.rank(index)} of {len(posterior.problem.arms):,} by the posterior mean"
    expected = number(mean, posterior.posterior.sd[index], sign=True)
    expected += f" (compared by {posterior.problem.reward})"
    rows = (("rank", rank), ("expected", expected), ("leader", ahead), ("chosen", chosen))
    shown = [Table((), rows, str(arm)), _scores(run, arm, leader), _metrics(run, arm)]
    return "\n\n".join(table.as_text(WIDTH) for table in shown if table.rows)


def _scores(run: Run, arm: Arm, leader: Arm) -> Table:
    """The arm's score on every task beside the leader's and the best."""
    scores = analysis.scores(run)
    rows = []
    for task in run.tasks:
        by_arm = {other: by_task[task] for other, by_task in scores.items() if task in by_task}
        best = max(by_arm.values(), default=None)
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
    answer, simpler = run.answer, run.verdict.cheaper(within)
    rows = [("Use", use(answer))]
    if simpler is None:
        rows.append(("Cheaper", f"none loses at most {percent(within)} of the score (95 %)"))
    else:
        less, best = run.cost_of(simpler.arm), run.cost_of(answer.best.arm)
        weights = f"{si(less.parameters)} weights in place of {si(best.parameters)}"
        saved = f"{weights}, {si(less.flops)} operations for a text in place of {si(best.flops)}"
        rows += [("Cheaper", cheaper(simpler, answer.reward)), ("Saves", saved)]
    return Table((), tuple(rows)).as_text(WIDTH)


def trade_offs_text(run: Run) -> str:
    """Scores against what candidates take."""
    return trade_offs_table(run.trade_offs()).as_text(TABLE_WIDTH)

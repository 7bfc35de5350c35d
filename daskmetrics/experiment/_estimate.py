"""What a run takes by assumed costs, before anything is submitted, and what tasks cost in earlier runs."""

from __future__ import annotations

import math
import shutil
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from daskmetrics.bandit import Problem
from daskmetrics.config import _checkpoints as checkpoints
from daskmetrics.core._costs import CHARACTERS_PER_TOKEN, DOWNLOAD_RATE, UNKNOWN_TASK, CostModel, TextSize, weight_bytes
from daskmetrics.core._events import Event, Record, SearchEnded, UnitAsked, is_finished, records, standing
from daskmetrics.core._files import RunFolder
from daskmetrics.core._table import Table
from daskmetrics.core._text import duration, equal_names, listed, plural, size_text
from daskmetrics.core.errors import DaskmetricsError
from daskmetrics.core.names import Cell, Checkpoint, Suite, step_of
from daskmetrics.execution import WorkUnit
from daskmetrics.execution._journal import read
from daskmetrics.experiment import _fresh as fresh
from daskmetrics.experiment import _measure as measure
from daskmetrics.experiment import _search as search
from daskmetrics.experiment._prepare import Experiment
from daskmetrics.metrics._operations import operations
from daskmetrics.training import revisions
from daskmetrics.training._data import effective
from daskmetrics.training._estimate import shape_of


@dataclass(frozen=True)
class RunEstimate:
    """What is left of a run, in assumed seconds of its workers.

    >>> run = RunEstimate(2, 6, {"forward passes": 3.0, "search": 10.0}, 43.0, workers=2, download_bytes=5e7)
    >>> run.wall_seconds
    7.5
    """

    units: int  # of the measuring phase, training included, whether done or not
    remaining: int  # of these, to do
    work: Mapping[str, float] = field(default_factory=dict)  # seconds left, by kind of work
    exhaustive_seconds: float = 0.0  # of the whole run, every cell scored, encodings shared
    workers: int = 1
    store_bytes: float = 0.0  # of the arrays and the journal
    missing: tuple[str, ...] = ()  # what is not on this machine
    download_bytes: float = 0.0  # of that
    sizes_listed: bool = False  # whether these bytes are those of the hub's lists
    search_workers: int | None = None  # that have work, as many as decisions may be open; None for all

    @property
    def download_seconds(self) -> float:
        return self.download_bytes / DOWNLOAD_RATE

    @property
    def wall_seconds(self) -> float:
        """Assumed time to the report, with all workers busy that can be; they share one connection to the hub."""
        busy = dict.fromkeys(self.work, self.workers) | {
            "search": min(self.workers, self.search_workers or self.workers)
        }
        return sum(seconds / busy[kind] for kind, seconds in self.work.items()) + self.download_seconds


def estimate(experiment: Experiment, folder: RunFolder, entries: Sequence[Event]) -> RunEstimate:
    """What is left of a run with this journal, on the device that the configuration assumes."""
    costs = CostModel(experiment.config.search.device)
    units = _working_units(experiment, folder, records(entries))
    left = units_left(experiment, folder, entries)
    work: dict[str, float] = defaultdict(float)
    for unit in left:
        for kind, seconds in _unit_work(experiment, unit.kind, unit.name, costs).items():
            work[kind] += seconds
    problem = search.build_problem(experiment, experiment.suites) if experiment.tasks else None
    exhaustive = problem.exhaustive_cost if problem else 0.0
    everything = fresh.allotment_of(experiment).exhaustive if experiment.fresh else exhaustive
    if problem and (cells := cells_left(experiment, entries, problem)):
        work["search"] = cells * exhaustive / (len(experiment.arms) * len(experiment.tasks))
    missing, size = _downloads(experiment) if work else ((), 0.0)
    sizes_listed = all(each.rolling for each in experiment.missing_locations)
    return RunEstimate(
        units=len(units),
        remaining=len(left),
        work=work,
        exhaustive_seconds=everything + sum(unit_seconds(experiment, unit.kind, unit.name, costs) for unit in units),
        workers=experiment.config.cluster.workers,
        store_bytes=store_bytes(experiment),
        missing=missing,
        download_bytes=size,
        sizes_listed=sizes_listed and all(task.is_local for task in experiment.tasks),
        search_workers=search.window(experiment, entries),
    )


def _downloads(experiment: Experiment) -> tuple[tuple[str, ...], float]:
    """What a run would download, and its assumed bytes: weights, and the texts of tasks with a byte for a character."""
    weights = [Checkpoint(model, name) for model, names in experiment.missing.items() for name in names]
    tasks = [task for task in experiment.tasks if not task.is_local]
    texts = (search.task_size(task, experiment.config.protocol, read=False) for task in tasks)
    size = sum(_bytes_of(experiment, checkpoint) for checkpoint in weights)
    size += sum(CHARACTERS_PER_TOKEN * text.tokens for text in texts)
    named = [plural(len(weights), "checkpoint")] if weights else []
    return tuple([*named, f"the data of {plural(len(tasks), 'task')}"] if tasks else named), size


def units_left(experiment: Experiment, folder: RunFolder, entries: Sequence[Event]) -> list[WorkUnit]:
    """The units of training and measuring that are to do; a recorded failure counts as done until `retry`."""
    if is_finished(entries, experiment.key):
        return []
    known = tuple(records(entries))
    done = {record.key for record in known}
    return [unit for unit in _working_units(experiment, folder, known) if unit.key not in done]


def _working_units(experiment: Experiment, folder: RunFolder, known: Iterable[Record]) -> list[WorkUnit]:
    """The units of training, and those of measuring if there is a metric."""
    units = measure.units(experiment, folder, known)
    return units if experiment.metrics else [unit for unit in units if unit.kind == "train"]


def cells_left(experiment: Experiment, entries: Sequence[Event], problem: Problem) -> int:
    """The scores that the search will still pay for: what its budget allows, less those that this run has.

    The budget for the finalists on fresh items is counted as so many scores of the search.
    """
    if not experiment.tasks or is_finished(entries, experiment.key):
        return 0
    of_kind = {"score": experiment.tasks, "fresh": experiment.fresh}
    tasks = {kind: {task.name: task for task in each} for kind, each in of_kind.items()}
    arms, done = set(experiment.arms), {record.key for record in records(entries) if record.kind == "score"}

    def is_ours(name: str, key: str, kind: str = "score") -> bool:
        cell = Cell.parse(name)
        known = cell.arm in arms and cell.task in tasks[kind]
        return known and experiment.score_key(cell.arm, tasks[kind][cell.task]) == key

    if any(isinstance(entry, SearchEnded) and entry.key == experiment.key for entry in entries):
        # `retry` took results back: the search makes its decisions again
        asked = {e.key: e.name for e in standing(entries) if isinstance(e, UnitAsked) and e.pick and e.key not in done}
        return sum(is_ours(name, key) for key, name in asked.items())
    cells, exhaustive = len(arms) * len(experiment.tasks), problem.exhaustive_cost
    budget = search.budget(experiment.config.search, problem)
    total = fresh.allotment_of(experiment, exhaustive).total if experiment.fresh else budget.within(exhaustive)
    allowed = min(total / exhaustive * cells, budget.cells or math.inf)
    scored = sum(is_ours(r.name, r.key, r.kind) for r in records(entries) if r.kind in tasks)
    return max(0, round(allowed) - scored)


def store_bytes(experiment: Experiment) -> float:
    """Assumed size of the arrays and the journal, and of the states that are kept; weights are not counted."""
    layers = [(suite.model, len(suite.revisions) * len(suite.layers)) for suite in experiment.suites]
    cells = len(experiment.arms) * len(experiment.tasks)
    metrics = sum(count for _, count in layers) * len(experiment.metrics)
    # two doubles and a byte in the store, about 80 bytes of text in the journal; small files fill a disk block
    size = (metrics + cells) * 97.0 + len(experiment.checkpoints) * 6 * 4096
    if experiment.config.keep_states:
        size += sum(2.0 * len(experiment.prompts) * experiment.widths[model] * count for model, count in layers)
    return size


def unit_seconds(experiment: Experiment, kind: str, name: str, costs: CostModel) -> float:
    """Assumed seconds of a ``train`` or ``measure`` unit with a checkpoint's name."""
    return sum(_unit_work(experiment, kind, name, costs).values())


def _unit_work(experiment: Experiment, kind: str, name: str, costs: CostModel) -> Mapping[str, float]:
    """The same by kind of work."""
    checkpoint = Checkpoint.parse(name)
    model = checkpoint.model
    width, suite = experiment.widths[model], experiment.by_model[model]
    if kind == "train":
        recipe = experiment.trainings[model].recipe
        saved, step = [step_of(revision) or 0 for revision in revisions(recipe)], step_of(checkpoint.revision) or 0
        steps = max(1, step - max((each for each in saved if each < step), default=0))
        tokens = float(steps * effective(recipe) * recipe.context)
        return {"training": costs.train_seconds(width, suite.depth, tokens, recipe.context)}
    prompts = TextSize.of(map(len, experiment.prompts), experiment.config.protocol.max_length)
    reduce = len(suite.layers) * operations(experiment.metrics, prompts.texts, width, prompts.length)
    return {
        "loading": costs.load_seconds(_bytes_of(experiment, checkpoint)),
        "forward passes": experiment.views * costs.forward_seconds(width, suite.depth, prompts),
        "metrics": costs.reduce_seconds(reduce),
    }


def _bytes_of(experiment: Experiment, checkpoint: Checkpoint) -> float:
    """Bytes of a checkpoint's weights: of its files, of its recipe, or assumed from its shape."""
    location, model = experiment.locations.get(checkpoint), checkpoint.model
    if location and location.rolling:
        return float(location.rolling.bytes)
    folder = checkpoints.folder_of(location) if location else None  # recorded for an earlier configuration
    files = sorted(folder.glob("*.safetensors")) or sorted(folder.glob("*.bin")) if folder else []
    if files:
        return float(sum(path.stat().st_size for path in files))
    if model in experiment.trainings:
        return 4.0 * shape_of(experiment.trainings[model].recipe).parameters
    return weight_bytes(experiment.widths[model], experiment.by_model[model].depth)


def texts_of(experiment: Experiment) -> str:
    """How many texts the tasks have by this estimate, and how that is known."""
    sizes = [(task, search.task_size(task, experiment.config.protocol, read=False)) for task in experiment.tasks]
    total = sum(size.texts for _, size in sizes)
    assumed = sum(size is UNKNOWN_TASK for _, size in sizes)
    benchmark = sum(getattr(task, "statistics", None) is not None for task, _ in sizes)
    counted = len(sizes) - assumed - benchmark
    parts = [f"{counted:,} counted"] if counted else []
    parts += [f"{benchmark:,} as the benchmark lists them"] if benchmark else []
    if assumed:
        parts += [
            f"{assumed:,} with an assumed {UNKNOWN_TASK.texts:,} texts each, since their data is not on this machine "
            "and no benchmark here lists their size"
        ]
    return f"{plural(total, 'text')} in {plural(len(sizes), 'task')}: {', '.join(parts)}"


@dataclass(frozen=True)
class TaskCost:
    """Median seconds of a task in earlier runs."""

    encode: float  # of one checkpoint, all layers
    score: float  # of one layer
    cells: int  # number of scores


def task_costs(runs: Path) -> Mapping[str, TaskCost]:
    """The cost of each task in the runs of a folder; a journal that cannot be read is skipped."""
    seconds: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for journal in sorted(runs.glob("*/journal.jsonl")):
        try:
            finished = [record for record in records(read(journal)) if record.ok]
        except DaskmetricsError:
            continue
        for record in finished:
            if record.kind == "score" and record.worker != "imported":
                seconds[Cell.parse(record.name).task].append((record.value["encode_seconds"], record.seconds))
    return {
        task: TaskCost(median(encode for encode, _ in pairs), median(score for _, score in pairs), len(pairs))
        for task, pairs in seconds.items()
    }


def preview(experiment: Experiment, folder: RunFolder) -> Table:
    """Counts, disk, units and assumed time of the remaining work, and warnings about the data."""
    entries = tuple(read(folder.journal)) if folder.journal.is_file() else ()
    if not is_finished(entries, experiment.key):
        search.check(experiment)
    return Table((), tuple(_rows(experiment, folder, entries)), f"{experiment.config.name} (nothing is submitted)")


def _rows(experiment: Experiment, folder: RunFolder, entries: Sequence[Event]) -> Iterator[tuple[str, str]]:
    plan = estimate(experiment, folder, entries)
    path = folder.path.resolve()
    free = shutil.disk_usage(next(each for each in (path, *path.parents) if each.exists())).free
    suites = (f"{s.model} ({len(s.revisions)} checkpoints x {_rows_of(s)})" for s in experiment.suites)
    metrics, tasks = experiment.metrics, experiment.tasks
    yield "models", ", ".join(suites)
    yield "arms", f"{len(experiment.arms):,} in {len(experiment.checkpoints):,} checkpoints"
    yield "vectors", _vectors(experiment)
    yield "metrics", f"{len(metrics)}: {', '.join(metric.name for metric in metrics)}" if metrics else "none"
    yield "tasks", f"{len(tasks):,}, so {len(experiment.arms) * len(tasks):,} cells"
    if tasks:
        yield "texts", texts_of(experiment)
    yield "measuring", f"{plan.units:,} units, {plan.remaining:,} to do"
    yield "search", _limits(experiment) if tasks else "none: the run has no tasks"
    yield "workers", f"{plan.workers} ({experiment.config.cluster.kind})"
    yield "time", _time(plan)
    if plan.missing:
        limited = [f"; {model.name} through {model.disk} of disk" for model in experiment.config.models if model.disk]
        yield "download", f"{listed(plan.missing)}, not on this machine: {download_text(plan)}{''.join(limited)}"
    for text in experiment.offered:
        yield "weights", text
    yield "disk", f"{size_text(plan.store_bytes)} of results in '{folder.path}', {free / 1e9:,.0f} GB free"
    for checkpoint, names in experiment.aliases.items():
        yield "identical", f"{equal_names(str(checkpoint), names)}: equal weights, measured and scored once"
    for warning in experiment.warnings:
        yield "warning", warning


def _rows_of(suite: Suite) -> str:
    """How many layers and readouts of a suite make its arms.

    >>> _rows_of(Suite("m", ("main",), (0, 1, 2), 2, ("", "int8", "mean0-2", "mean0-2,int8")))
    '3 layers x 2 readouts, and 2 of layers together'
    """
    together = sum(bool(readout.together) for readout in suite.reads)
    alone = len(suite.reads) - together
    text = f"{len(suite.layers)} layers" + (f" x {plural(alone, 'readout')}" if suite.has_readouts else "")
    return text + (f", and {together} of layers together" if together else "")


def _time(plan: RunEstimate) -> str:
    whole = f"; all of it, with every cell scored, takes {duration(plan.exhaustive_seconds / plan.workers)}"
    if not plan.work:
        return f"0 s: nothing is left to do{whole}"
    parts = [f"{kind} {duration(seconds)}" for kind, seconds in plan.work.items()]
    parts = [f"{', '.join(parts)} of worker time"]
    parts += [f"downloads {duration(plan.download_seconds)}"] if plan.missing else []
    return f"about {duration(plan.wall_seconds)} (assumed, not measured): {'; '.join(parts)}{whole}"


def download_text(plan: RunEstimate) -> str:
    """Bytes and time of the downloads, and what both assume."""
    known = "listed by the hub" if plan.sizes_listed else "assumed: weights from their shapes, in half precision"
    return (
        f"{size_text(plan.download_bytes)} ({known}), "
        f"{duration(plan.download_seconds)} at an assumed {DOWNLOAD_RATE / 1e6:.0f} MB/s"
    )


def _vectors(experiment: Experiment) -> str:
    """How texts become vectors, and for which models if they differ."""
    models: dict[str, dict[str, None]] = defaultdict(dict)
    for checkpoint, protocol in experiment.protocols.items():
        models[protocol.summary][checkpoint.model] = None
    if len(models) == 1:
        return next(iter(models))
    return "; ".join(f"{', '.join(names)}: {summary}" for summary, names in models.items())


def _limits(experiment: Experiment) -> str:
    """The policy, and what ends the search."""
    limits = experiment.config.search
    parts = [f"budget {budget_text(experiment)}"]
    if limits.cells:
        parts.append(f"up to {plural(limits.cells, 'score')}")
    if limits.gpu_hours:
        parts.append(f"up to {limits.gpu_hours:g} hours of workers")
    if limits.wall_hours:
        parts.append(f"up to {limits.wall_hours:g} h of wall time")
    if limits.confidence:
        parts.append(f"until {limits.confidence:.0%} confidence to be within {limits.within:.1%}")
    if limits.spend:
        parts.append(f"at least {limits.spend:.1%} even if it is sure earlier")
    if limits.confirm == "fresh":
        parts.append(f"{limits.fresh_share:.0%} of the items are kept back from it, for the finalists")
    return f"{limits.policy}, {'; '.join(parts)}"


def budget_text(experiment: Experiment) -> str:
    """What the search may spend and, if it has chosen that itself, why."""
    share = experiment.config.search.budget
    if share == "auto":
        return str(search.automatic_budget(search.build_problem(experiment, experiment.suites)))
    return f"{share:.1%} of the cost of every score"

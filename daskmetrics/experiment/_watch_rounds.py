"""What a round of a watch says, and where it says it: the best arm, whether its layer still rises
and what may be deleted; the events, one JSON object a line of ``events.jsonl``; MLflow and Weights
& Biases, also of a run.

A library of these is imported only if `log_to` names it.
"""

from __future__ import annotations

import json
import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from daskmetrics.bandit import Outcome
from daskmetrics.bandit.model import fit_posterior
from daskmetrics.bandit.recommend import rise_forecast
from daskmetrics.core.errors import ConfigError, room_for
from daskmetrics.core.events import Event, Record, RunStarted, SearchEnded, measured, scored
from daskmetrics.core.names import Arm, Cell, Checkpoint, Suite, content_key, training_order
from daskmetrics.core.outcomes import mean_score
from daskmetrics.core.results import Scored
from daskmetrics.core.text import plural
from daskmetrics.experiment import search as search
from daskmetrics.experiment.preparation import Experiment

PACKAGES = {"mlflow": "mlflow-skinny", "wandb": "wandb"}  # to install, by the name in `log_to`
PROJECT = "daskmetrics"  # by default, of W&B; the experiment of MLflow
Numbers = Mapping[str, float]
Log = Callable[[int, Numbers], None]  # of the numbers of a training step
RISE = 0.01  # the rise of the score that would matter, as a share of the best score
AHEAD = 3  # future checkpoints for which a rise is predicted
STOPPED = 0.1  # the score has stopped rising if the probability of such a rise is below this


def round_fields(
    experiment: Experiment, records: Sequence[Record], ended: SearchEnded
) -> dict[str, Any]:
    """What a round found, as the fields of its event ``updated``; docs/watch.md names them."""
    best, checkpoints = ended.best_arm, len(experiment.checkpoints)
    counted = {task: weight for task, weight in experiment.task_weights.items() if weight > 0}
    scores = {task: Scored(**score) for task, score in ended.best["scores"].items()}
    score, stderr = mean_score(scores, counted) or (None, None)
    sentence = f"{best} is the best of {plural(checkpoints, 'checkpoint')}"
    if score is not None:
        sentence += f", {score:.3f} ± {stderr:.3f}"
    sentences = [f"{sentence}."]
    fields: dict[str, Any] = {
        "checkpoints": checkpoints,
        "cells": ended.cells,
        "best": {
            "arm": str(best),
            "checkpoint": str(best.checkpoint),
            "step": best.checkpoint.step,
            "layer": best.layer,
            "score": score,
            "stderr": stderr,
        },
        "rise": None,
    }
    forecast = rise_forecast(
        _all_suites(experiment, records),
        _scores(records),
        best,
        tasks=experiment.task_weights,
        kinds=experiment.kinds,
        reward=experiment.config.search.reward,
        share=RISE,
        ahead=AHEAD,
        seed=experiment.config.seed,
    )
    if forecast:
        fields["rise"] = {
            "layer": best.layer,
            "probability": round(forecast.probability, 4),
            "more_than": forecast.more_than,
            "steps": list(forecast.steps),
            "stopped": forecast.probability < STOPPED,
        }
        state = "may still rise"
        if fields["rise"]["stopped"]:
            state = "has stopped rising"
        sentences.append(
            f"Layer {best.layer} {state}: by step {forecast.steps[-1]:,} it rises by more than "
            f"{100 * RISE:g} % with probability {forecast.probability:.2f}."
        )
    if experiment.config.watch.kept:
        keep, deletable = _sorted_out(experiment, records, best, experiment.config.watch.kept)
        fields["keep"], fields["deletable"] = list(map(str, keep)), list(map(str, deletable))
        if deletable:
            sentences.append(
                f"Keep {', '.join(fields['keep'])}. May be deleted:"
                f" {', '.join(fields['deletable'])}."
            )
    return {**fields, "text": " ".join(sentences)}


def _scores(records: Sequence[Record]) -> dict[Cell, Outcome]:
    """The scores by cell, also those of checkpoints that were deleted since."""
    return {
        Cell.parse(record.name): Outcome(result.score, result.stderr)
        for record, result in scored(records)
    }


def _all_suites(experiment: Experiment, records: Sequence[Record]) -> list[Suite]:
    """The suites, also with the checkpoints that were measured and deleted since."""
    revisions = {suite.model: set(suite.revisions) for suite in experiment.suites}
    for record, _ in measured(records):
        checkpoint = Checkpoint.parse(record.name)
        revisions.get(checkpoint.model, set()).add(checkpoint.revision)
    return [
        replace(suite, revisions=training_order(revisions[suite.model]))
        for suite in experiment.suites
    ]


def _sorted_out(
    experiment: Experiment, records: Sequence[Record], best: Arm, count: int
) -> tuple[tuple[Checkpoint, ...], tuple[Checkpoint, ...]]:
    """The checkpoints to keep, and the others.

    Those with the greatest posterior means of an arm are kept, that of the best arm first, and the
    latest of each model, from which a training goes on. One without a score is never among the
    others.
    """
    problem = search.problem(experiment, records)
    seen = problem.observe(_scores(records).items())
    order = np.argsort(-fit_posterior(problem, seen).mean, kind="stable")
    arms = [best, *(problem.arms[i] for i in order)]
    ranked = list(dict.fromkeys(arm.checkpoint for arm in arms))
    latest = [suite.checkpoints()[-1] for suite in experiment.suites]
    keep = tuple(dict.fromkeys([*ranked[:count], *latest]))
    with_score = {problem.arms[arm].checkpoint for arm in seen.arm}
    deletable = with_score - set(keep)
    return keep, tuple(c for c in experiment.checkpoints if c in deletable)


class WatchLog:
    """A file of events that only grows; docs/watch.md lists the events and their fields.

    An event is one write of one line, so that a reader never sees half of one that was committed.
    An event that the file has already, but for its time, is not written again: a watch that was
    killed writes what is missing when it goes on.

    >>> import tempfile
    >>> with WatchLog(Path(tempfile.mkdtemp()) / "events.jsonl", clock=lambda: 12.0) as log:
    ...     log.write("measured", checkpoint="out@step8"), log.write("measured", checkpoint="out@step8")
    ...     log.path.read_text()
    (True, False)
    '{"event":"measured","at":12.0,"checkpoint":"out@step8"}\\n'
    """

    def __init__(self, path: Path, clock: Callable[[], float] = time.time) -> None:
        self.path, self._clock = path, clock
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        complete, _, torn = path.read_bytes().rpartition(b"\n")
        if torn:  # a killed writer leaves half a line
            os.ftruncate(self._file, len(complete) + bool(complete))
        events = [json.loads(line) for line in complete.splitlines()]
        self._written = set(map(_content, events))
        # of each kind
        self.latest: dict[str, dict[str, Any]] = {event["event"]: event for event in events}

    def write(self, event: str, **fields: Any) -> bool:
        """Append an event with the present time, unless the file has it; returns whether it was
        new.
        """
        content = _content({"event": event, **fields})
        if content in self._written:
            return False
        line = json.dumps(
            {"event": event, "at": round(self._clock(), 3), **fields}, separators=(",", ":")
        )
        with room_for(f"the events '{self.path}'"):
            os.write(self._file, f"{line}\n".encode())
        self._written.add(content)
        self.latest[event] = {"event": event, **fields}
        return True

    def has(self, event: str, **fields: Any) -> bool:
        """Whether the file has this event, at any time."""
        return _content({"event": event, **fields}) in self._written

    def __enter__(self) -> WatchLog:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._file)


def _content(event: Mapping[str, Any]) -> str:
    return json.dumps(
        {name: value for name, value in event.items() if name != "at"}, sort_keys=True
    )


def require_trackers(names: Sequence[str]) -> None:
    """Check that the libraries are installed; a `ConfigError` otherwise."""
    if missing := [PACKAGES[name] for name in names if find_spec(name) is None]:
        raise ConfigError(
            f"log_to needs {' and '.join(missing)}, not installed here: pip install"
            f" {' '.join(missing)}"
        )


def numbers_of(fields: Mapping[str, Any]) -> dict[str, float]:
    """The numbers of a round, of the fields of its event ``updated``; what is not known is left
    out.

    >>> best = {"arm": "out@step8/1", "step": 8, "layer": 1, "score": 0.5, "stderr": 0.1}
    >>> numbers_of({"checkpoints": 2, "cells": 4, "best": best, "rise": None})
    ... # doctest: +NORMALIZE_WHITESPACE
    {'checkpoints': 2.0, 'cells': 4.0, 'best_step': 8.0, 'best_layer': 1.0, 'best_score': 0.5,
    'best_stderr': 0.1}
    """
    numbers = {name: fields[name] for name in ("checkpoints", "cells")}
    for name in ("step", "layer", "score", "stderr"):
        numbers[f"best_{name}"] = fields["best"][name]
    if fields["rise"]:
        numbers["rise_probability"] = fields["rise"]["probability"]
    return {name: float(value) for name, value in numbers.items() if value is not None}


@contextmanager
def logged_scores(
    experiment: Experiment, folder: Path, entries: Sequence[Event], say: Callable[[str], None]
) -> Iterator[Callable[[Record], None]]:
    """A function that logs the best mean score so far with each score of a run, whose start and
    earlier records are in the journal.

    The step is the number of scores.
    """
    if not experiment.config.log_to:
        yield lambda record: None
        return
    start = next(entry for entry in entries if isinstance(entry, RunStarted))
    identity = content_key("tracked", start.key, start.at)  # the same when the run goes on
    counted = {task: weight for task, weight in experiment.task_weights.items() if weight > 0}
    by_arm: dict[Arm, dict[str, Scored]] = defaultdict(dict)
    best: dict[str, Any] = {"score": None}

    def take(record: Record, value: Scored) -> None:
        """Count a score, and replace the best if its candidate is better."""
        cell = Cell.parse(record.name)
        by_arm[cell.arm][cell.task] = value
        score, stderr = mean_score(by_arm[cell.arm], counted) or (None, None)
        if score is not None and (best["score"] is None or score > best["score"]):
            step, layer = cell.arm.checkpoint.step, cell.arm.layer
            best.update(step=step, layer=layer, score=score, stderr=stderr)

    def on_record(record: Record) -> None:
        if record.kind == "score" and isinstance(record.value, Scored):
            take(record, record.value)
            count = sum(map(len, by_arm.values()))
            numbers = {f"best_{name}": value for name, value in best.items() if value is not None}
            log(count, {"scores": count, **numbers})

    for record, value in scored(entries):
        take(record, value)
    name = experiment.config.name
    with trackers(experiment.config.log_to, name, identity, folder, say) as log:
        yield on_record


@contextmanager
def trackers(
    names: Sequence[str], run: str, identity: str, folder: Path, say: Callable[[str], None]
) -> Iterator[Log]:
    """A function that logs numbers at a step to one run of each library.

    ``identity`` names the run there, so that what goes on adds to it. Where to log is as
    the libraries read it from their own settings and variables. A library that fails later is
    reported to ``say``, and the work goes on.
    """
    with ExitStack() as stack:
        writers: dict[str, Log] = {}
        for name in names:
            open_run = {"mlflow": _mlflow, "wandb": _wandb}[name]
            with _errors_of(f"log_to: {name} cannot be used", _refuse):
                writers[name] = stack.enter_context(open_run(run, identity, folder))

        def log(step: int, numbers: Numbers) -> None:
            for name, write in writers.items():
                with _errors_of(f"{name} did not take step {step:,}", say):
                    write(step, numbers)

        yield log


@contextmanager
def _errors_of(what: str, report: Callable[[str], None]) -> Iterator[None]:
    try:
        yield
    except Exception as error:  # a server that does not answer can raise anything
        report(f"{what}: {type(error).__name__}: {error}")


def _refuse(text: str) -> None:
    raise ConfigError(text)


@contextmanager
def _mlflow(run: str, identity: str, folder: Path) -> Iterator[Log]:
    import mlflow
    from mlflow.entities import Metric

    client = mlflow.MlflowClient()
    tag = "daskmetrics.watch"
    name = os.environ.get("MLFLOW_EXPERIMENT_NAME", PROJECT)
    existing = client.get_experiment_by_name(name)
    experiment = existing.experiment_id if existing else client.create_experiment(name)
    runs = client.search_runs([experiment], f"tags.`{tag}` = '{identity}'", max_results=1)
    if not runs:
        runs = [client.create_run(experiment, tags={tag: identity}, run_name=run)]
    run_id = runs[0].info.run_id
    client.update_run(run_id, status="RUNNING")

    def log(step: int, numbers: Numbers) -> None:
        milliseconds = int(1000 * time.time())
        metrics = [Metric(key, value, milliseconds, step) for key, value in numbers.items()]
        client.log_batch(run_id, metrics)

    yield log
    client.set_terminated(run_id)


@contextmanager
def _wandb(run: str, identity: str, folder: Path) -> Iterator[Log]:
    import wandb

    quiet = wandb.Settings(
        silent=True, console="off", x_disable_stats=True, disable_git=True, save_code=False
    )
    project = os.environ.get("WANDB_PROJECT", PROJECT)
    with wandb.init(
        project=project, name=run, id=identity, resume="allow", dir=folder, settings=quiet
    ) as started:
        # a round may have a lower step than the one before
        started.define_metric("*", step_metric="step")
        yield lambda step, numbers: started.log({"step": step, **numbers})

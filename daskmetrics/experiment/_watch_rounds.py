"""What a round of a watch says, and where it says it: the best arm, whether its layer still rises
and what may be deleted; the events, one JSON object a line of ``events.jsonl``; MLflow and Weights
& Biases.

A library of these is imported only if `watch.log` names it.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from daskmetrics.bandit import Outcome
from daskmetrics.bandit.model import fit_posterior
from daskmetrics.bandit.recommend import RiseForecast, rise_forecast
from daskmetrics.core.errors import ConfigError, room_for
from daskmetrics.core.events import Record, SearchEnded, measured, scored
from daskmetrics.core.names import Arm, Cell, Checkpoint, Suite, training_order
from daskmetrics.core.outcomes import mean_score
from daskmetrics.core.results import Scored
from daskmetrics.core.text import plural
from daskmetrics.execution import Journal
from daskmetrics.experiment import search as search
from daskmetrics.experiment.preparation import Experiment

PACKAGES = {"mlflow": "mlflow-skinny", "wandb": "wandb"}  # to install, by the name in `watch.log`
PROJECT = "daskmetrics"  # by default, of W&B; the experiment of MLflow
Numbers = Mapping[str, float]
RISE = 0.01  # the rise of the score that would matter, as a share of the best score
AHEAD = 3  # future checkpoints for which a rise is predicted
STOPPED = 0.1  # the score has stopped rising if the probability of such a rise is below this


@dataclass(frozen=True)
class RoundAnswer:
    """The answer of one round, for the terminal and for other programs."""

    checkpoints: int
    cells: int  # scored so far
    best: Arm
    score: float | None  # mean over the tasks of the objective; None if it lacks one of them
    stderr: float | None
    rise: RiseForecast | None
    stopped_below: float  # the probability below which the score counts as no longer rising
    # the best, best first, and the latest of each model; empty if none is asked for
    keep: tuple[Checkpoint, ...] = ()
    deletable: tuple[Checkpoint, ...] = ()  # the others

    @property
    def has_stopped(self) -> bool:
        """Whether the score of the best arm's layer has stopped rising."""
        return self.rise is not None and self.rise.probability < self.stopped_below

    def as_dict(self) -> dict[str, Any]:
        """The answer as plain JSON values; docs/watch.md names the fields."""
        best = {
            "arm": str(self.best),
            "checkpoint": str(self.best.checkpoint),
            "step": self.best.checkpoint.step,
            "layer": self.best.layer,
            "score": self.score,
            "stderr": self.stderr,
        }
        rise = self.rise and {
            "layer": self.best.layer,
            "probability": round(self.rise.probability, 4),
            "more_than": self.rise.more_than,
            "steps": list(self.rise.steps),
            "stopped": self.has_stopped,
        }
        answer = {
            "checkpoints": self.checkpoints,
            "cells": self.cells,
            "best": best,
            "rise": rise,
        }
        if self.keep:
            answer["keep"] = list(map(str, self.keep))
            answer["deletable"] = list(map(str, self.deletable))
        answer["text"] = " ".join(self.lines)
        return answer

    @property
    def lines(self) -> list[str]:
        best = f"{self.best} is the best of {plural(self.checkpoints, 'checkpoint')}"
        if self.score is not None:
            best += f", {self.score:.3f} ± {self.stderr:.3f}"
        lines = [f"{best}."]
        if self.rise:
            state = "has stopped rising" if self.has_stopped else "may still rise"
            lines.append(
                f"Layer {self.best.layer} {state}: by step {self.rise.steps[-1]:,} it rises by more than "
                f"{100 * self.rise.more_than:g} % with probability {self.rise.probability:.2f}."
            )
        if self.deletable:
            keep = ", ".join(map(str, self.keep))
            deletable = ", ".join(map(str, self.deletable))
            lines.append(f"Keep {keep}. May be deleted: {deletable}.")
        return lines


def answer_of(experiment: Experiment, journal: Journal, ended: SearchEnded) -> RoundAnswer:
    """The answer of a round whose search has ended."""
    config, best = experiment.config, ended.best_arm
    records = list(journal.records())
    weights = experiment.task_weights
    counted = {task: weight for task, weight in weights.items() if weight > 0}
    scores = {task: Scored(**score) for task, score in ended.best["scores"].items()}
    score, stderr = mean_score(scores, counted) or (None, None)
    rise = rise_forecast(
        _all_suites(experiment, records),
        _scores(records),
        best,
        tasks=weights,
        kinds=experiment.kinds,
        reward=config.search.reward,
        share=RISE,
        ahead=AHEAD,
        seed=config.seed,
    )
    keep: tuple[Checkpoint, ...] = ()
    deletable: tuple[Checkpoint, ...] = ()
    if config.watch.kept:
        keep, deletable = _sorted_out(experiment, records, best, config.watch.kept)
    return RoundAnswer(
        checkpoints=len(experiment.checkpoints),
        cells=ended.cells,
        best=best,
        score=score,
        stderr=stderr,
        rise=rise,
        stopped_below=STOPPED,
        keep=keep,
        deletable=deletable,
    )


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
            f"watch.log needs {' and '.join(missing)}, not installed here: pip install {' '.join(missing)}"
        )


def numbers_of(answer: Mapping[str, Any]) -> dict[str, float]:
    """The numbers of a round, of the fields of its event ``updated``; what is not known is left
    out.

    >>> best = {"arm": "out@step8/1", "step": 8, "layer": 1, "score": 0.5, "stderr": 0.1}
    >>> numbers_of({"checkpoints": 2, "cells": 4, "best": best, "rise": None})
    ... # doctest: +NORMALIZE_WHITESPACE
    {'checkpoints': 2.0, 'cells': 4.0, 'best_step': 8.0, 'best_layer': 1.0, 'best_score': 0.5,
    'best_stderr': 0.1}
    """
    numbers = {name: answer[name] for name in ("checkpoints", "cells")}
    for name in ("step", "layer", "score", "stderr"):
        numbers[f"best_{name}"] = answer["best"][name]
    if answer["rise"]:
        numbers["rise_probability"] = answer["rise"]["probability"]
    return {name: float(value) for name, value in numbers.items() if value is not None}


@contextmanager
def trackers(
    names: Sequence[str], run: str, identity: str, folder: Path, say: Callable[[str], None]
) -> Iterator[Callable[[int, Numbers], None]]:
    """A function that logs the numbers of a round at a training step to one run of each library.

    ``identity`` names the run there, so that a watch that goes on adds to it. Where to log is as
    the libraries read it from their own settings and variables. A library that fails later is
    reported to ``say``, and the watch goes on.
    """
    opened = {"mlflow": _mlflow, "wandb": _wandb}
    with ExitStack() as stack:
        writers = {}
        for name in names:
            try:
                writers[name] = stack.enter_context(opened[name](run, identity, folder))
            except Exception as error:  # a server that does not answer can raise anything
                raise ConfigError(
                    f"watch.log: {name} cannot be used: {type(error).__name__}: {error}"
                ) from error

        def log(step: int, numbers: Numbers) -> None:
            for name, write in writers.items():
                try:
                    write(step, numbers)
                except Exception as error:  # a server that does not answer can raise anything
                    say(f"{name} did not take step {step:,}: {type(error).__name__}: {error}")

        yield log


@contextmanager
def _mlflow(run: str, identity: str, folder: Path) -> Iterator[Callable[[int, Numbers], None]]:
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
def _wandb(run: str, identity: str, folder: Path) -> Iterator[Callable[[int, Numbers], None]]:
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

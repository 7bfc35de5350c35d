"""MLflow and Weights & Biases: the best score so far of a run with each score, and of a watch with
each round.

A library is imported only if `log_to` names it.
"""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path

from daskmetrics.core.errors import ConfigError, foreign_errors
from daskmetrics.core.events import Event, Record, RunStarted, scored
from daskmetrics.core.names import Arm, Cell, content_key
from daskmetrics.core.outcomes import mean_score
from daskmetrics.core.results import Scored
from daskmetrics.experiment.preparation import Experiment

PACKAGES = {"mlflow": "mlflow-skinny", "wandb": "wandb"}  # to install, by the name in `log_to`
PROJECT = "daskmetrics"  # by default, of W&B; the experiment of MLflow
Numbers = Mapping[str, float]
Log = Callable[[int, Numbers], None]  # of the numbers of a training step


def require_trackers(names: Sequence[str]) -> None:
    """Check that the libraries are installed; a `ConfigError` otherwise."""
    missing = [PACKAGES[name] for name in names if find_spec(name) is None]
    if missing:
        raise ConfigError(
            f"log_to needs {' and '.join(missing)}, not installed here: pip install"
            f" {' '.join(missing)}"
        )


@contextmanager
def logged_scores(
    names: Sequence[str],
    experiment: Experiment,
    folder: Path,
    entries: Sequence[Event],
    say: Callable[[str], None],
) -> Iterator[Callable[[Record], None]]:
    """A function that logs the best mean score so far with each score of a run, whose start and
    earlier records are in the journal, to these libraries.

    The step is the number of scores.
    """
    if not names:
        yield lambda record: None
        return
    start = next(entry for entry in entries if isinstance(entry, RunStarted))
    identity = content_key("tracked", start.key, start.at)  # the same when the run goes on
    counted = {task: weight for task, weight in experiment.task_weights.items() if weight > 0}
    by_arm: dict[Arm, dict[str, Scored]] = defaultdict(dict)
    best: dict[str, float] = {}

    def take(record: Record, value: Scored) -> None:
        """Count a score, and replace the best if its candidate is better."""
        nonlocal best
        cell = Cell.parse(record.name)
        by_arm[cell.arm][cell.task] = value
        mean = mean_score(by_arm[cell.arm], counted)
        if mean and (not best or mean[0] > best["best_score"]):
            best = {"best_score": mean[0], "best_stderr": mean[1], "best_layer": cell.arm.layer}
            if (step := cell.arm.checkpoint.step) is not None:
                best["best_step"] = step

    def on_record(record: Record) -> None:
        if record.kind == "score" and isinstance(record.value, Scored):
            take(record, record.value)
            count = sum(map(len, by_arm.values()))
            log(count, {"scores": count, **best})

    for record, value in scored(entries):
        take(record, value)
    with trackers(names, experiment.config.name, identity, folder, say) as log:
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
            with foreign_errors(f"log_to: {name} cannot be used"):
                writers[name] = stack.enter_context(open_run(run, identity, folder))

        def log(step: int, numbers: Numbers) -> None:
            for name, write in writers.items():
                try:
                    with foreign_errors(f"{name} did not take step {step:,}"):
                        write(step, numbers)
                except ConfigError as error:
                    say(str(error))

        yield log


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

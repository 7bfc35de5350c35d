"""MLflow and Weights & Biases: the best score of a run at its end, and of a watch with each round.

A library is imported only if `log_to` names it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from daskmetrics.core.errors import ConfigError, foreign_errors
from daskmetrics.domain.events import SearchEnded
from daskmetrics.domain.outcomes import mean_score
from daskmetrics.domain.plan import Plan

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


def best_fields(plan: Plan, ended: SearchEnded) -> dict[str, Any]:
    """The best arm of a search, in the fields of docs/watch.md."""
    best = ended.recommendation.best
    score, stderr = mean_score(best.scores, plan.weights) or (None, None)
    return {
        "arm": str(best.arm),
        "checkpoint": str(best.arm.checkpoint),
        "step": best.arm.checkpoint.step,
        "layer": best.arm.layer,
        "score": score,
        "stderr": stderr,
    }


def log_search(log: Log, plan: Plan, ended: SearchEnded, **more: float | None) -> None:
    """Log the best arm, at the step of the latest checkpoint."""
    best = best_fields(plan, ended)
    numbers = {
        "checkpoints": len(plan.checkpoints),
        "cells": ended.recommendation.cells,
        **{f"best_{name}": best[name] for name in ("step", "layer", "score", "stderr")},
        **more,
    }
    step = max(checkpoint.step or 0 for checkpoint in plan.checkpoints)
    log(step, {name: float(x) for name, x in numbers.items() if x is not None})


@contextmanager
def trackers(
    names: Sequence[str], run: str, identity: str, folder: Path, say: Callable[[str], None]
) -> Iterator[Log]:
    """A function that logs numbers at a step to each library.

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

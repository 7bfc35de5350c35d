"""The events of a watch, one JSON object a line of ``events.jsonl``; its rounds in MLflow and Weights & Biases.

A library of these is imported only if `watch.log` names it.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from daskmetrics.core.errors import ConfigError, room_for

PACKAGES = {"mlflow": "mlflow-skinny", "wandb": "wandb"}  # to install, by the name in `watch.log`
PROJECT = "daskmetrics"  # by default, of W&B; the experiment of MLflow
Numbers = Mapping[str, float]


class WatchLog:
    """A file of events that only grows; docs/watch.md lists the events and their fields.

    An event is one write of one line, so that a reader never sees half of one that was committed. An event that the
    file has already, but for its time, is not written again: a watch that was killed writes what is missing when it
    goes on.

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
        whole, _, torn = path.read_bytes().rpartition(b"\n")
        if torn:  # a killed writer leaves half a line
            os.ftruncate(self._file, len(whole) + bool(whole))
        events = [json.loads(line) for line in whole.splitlines()]
        self._known = set(map(_content, events))
        self.last: dict[str, dict[str, Any]] = {each["event"]: each for each in events}  # the latest of each kind

    def write(self, event: str, **fields: Any) -> bool:
        """Append an event with the present time, unless the file has it; returns whether it was new."""
        content = _content({"event": event, **fields})
        if content in self._known:
            return False
        line = json.dumps({"event": event, "at": round(self._clock(), 3), **fields}, separators=(",", ":"))
        with room_for(f"the events '{self.path}'"):
            os.write(self._file, f"{line}\n".encode())
        self._known.add(content)
        self.last[event] = {"event": event, **fields}
        return True

    def __enter__(self) -> WatchLog:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._file)


def _content(event: Mapping[str, Any]) -> str:
    return json.dumps({name: value for name, value in event.items() if name != "at"}, sort_keys=True)


def require_trackers(names: Sequence[str]) -> None:
    """Check that the libraries are installed; a `ConfigError` otherwise."""
    if missing := [PACKAGES[name] for name in names if find_spec(name) is None]:
        raise ConfigError(
            f"watch.log needs {' and '.join(missing)}, not installed here: pip install {' '.join(missing)}"
        )


def numbers_of(answer: Mapping[str, Any]) -> dict[str, float]:
    """The numbers of a round, of the fields of its event ``updated``; what is not known is left out.

    >>> best = {"arm": "out@step8/1", "step": 8, "layer": 1, "score": 0.5, "stderr": 0.1}
    >>> numbers_of({"checkpoints": 2, "cells": 4, "best": best, "rise": None})
    {'checkpoints': 2.0, 'cells': 4.0, 'best_step': 8.0, 'best_layer': 1.0, 'best_score': 0.5, 'best_stderr': 0.1}
    """
    best = {f"best_{name}": answer["best"][name] for name in ("step", "layer", "score", "stderr")}
    rise = {"rise_probability": answer["rise"]["probability"]} if answer["rise"] else {}
    found = {"checkpoints": answer["checkpoints"], "cells": answer["cells"], **best, **rise}
    return {name: float(value) for name, value in found.items() if value is not None}


@contextmanager
def trackers(
    names: Sequence[str], run: str, identity: str, folder: Path, say: Callable[[str], None]
) -> Iterator[Callable[[int, Numbers], None]]:
    """A function that logs the numbers of a round at a training step to one run of each library.

    ``identity`` names the run there, so that a watch that goes on adds to it. Where to log is as the libraries read it
    from their own settings and variables. A library that fails later is reported to ``say``, and the watch goes on.
    """
    opened = {"mlflow": _mlflow, "wandb": _wandb}
    with ExitStack() as stack:
        each = {}
        for name in names:
            try:
                each[name] = stack.enter_context(opened[name](run, identity, folder))
            except Exception as error:  # a server that does not answer can raise anything
                raise ConfigError(f"watch.log: {name} cannot be used: {type(error).__name__}: {error}") from error

        def log(step: int, numbers: Numbers) -> None:
            for name, write in each.items():
                try:
                    write(step, numbers)
                except Exception as error:  # a server that does not answer can raise anything
                    say(f"{name} did not take step {step:,}: {type(error).__name__}: {error}")

        yield log


@contextmanager
def _mlflow(run: str, identity: str, folder: Path) -> Iterator[Callable[[int, Numbers], None]]:
    import mlflow
    from mlflow.entities import Metric

    client, tag = mlflow.MlflowClient(), "daskmetrics.watch"
    name = os.environ.get("MLFLOW_EXPERIMENT_NAME", PROJECT)
    found = client.get_experiment_by_name(name)
    experiment = found.experiment_id if found else client.create_experiment(name)
    earlier = client.search_runs([experiment], f"tags.`{tag}` = '{identity}'", max_results=1)
    started = earlier[0] if earlier else client.create_run(experiment, tags={tag: identity}, run_name=run)
    client.update_run(started.info.run_id, status="RUNNING")

    def log(step: int, numbers: Numbers) -> None:
        now = int(1000 * time.time())
        client.log_batch(started.info.run_id, [Metric(key, value, now, step) for key, value in numbers.items()])

    yield log
    client.set_terminated(started.info.run_id)


@contextmanager
def _wandb(run: str, identity: str, folder: Path) -> Iterator[Callable[[int, Numbers], None]]:
    import wandb

    quiet = wandb.Settings(silent=True, console="off", x_disable_stats=True, disable_git=True, save_code=False)
    project = os.environ.get("WANDB_PROJECT", PROJECT)
    with wandb.init(project=project, name=run, id=identity, resume="allow", dir=folder, settings=quiet) as started:
        started.define_metric("*", step_metric="step")  # a round may have a lower step than the one before
        yield lambda step, numbers: started.log({"step": step, **numbers})

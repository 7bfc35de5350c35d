"""The rounds of a watch, logged by the real libraries without a network."""

from __future__ import annotations

import subprocess
import sys

import pytest

import daskmetrics as dm
from daskmetrics.core.errors import ConfigError
from daskmetrics.core.keys import content_key
from daskmetrics.domain.events import SearchEnded
from daskmetrics.domain.names import Arm, Suite
from daskmetrics.domain.recommendation import ArmSummary, Recommendation, ScoreEstimate
from daskmetrics.experiment import _trackers
from daskmetrics.experiment._trackers import log_search, trackers
from daskmetrics.experiment.watch import WatchLog
from tests.events import planned, task


@pytest.fixture
def logged(tmp_path, monkeypatch):
    """Reads the only run that mlflow has, and the history of its metric ``best_score``."""
    mlflow = pytest.importorskip("mlflow", reason="mlflow-skinny is in the extra 'dev'")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"file:{tmp_path}/mlruns")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")

    def read():
        client = mlflow.MlflowClient()
        (run,) = client.search_runs([client.get_experiment_by_name("daskmetrics").experiment_id])
        history = client.get_metric_history(run.info.run_id, "best_score")
        return run, sorted((entry.step, entry.value) for entry in history)

    return read


def test_a_watch_that_goes_on_adds_to_the_same_run_of_mlflow(tmp_path, logged):
    messages = []
    for steps in ((8, 16), (12,)):  # as if the first watch had been killed
        events = WatchLog(tmp_path / "events.jsonl")
        events.write("started", pid=steps[0])
        identity = content_key("tracked", events.begun)
        with trackers(["mlflow"], "mine", identity, tmp_path, messages.append) as log:
            for step in steps:
                log(step, {"best_score": step / 100})
    run, history = logged()
    assert history == [(8, 0.08), (12, 0.12), (16, 0.16)] and messages == []
    assert (run.info.run_name, run.info.status) == ("mine", "FINISHED")


TWO_WATCHES = """
import sys
from pathlib import Path
from daskmetrics.experiment._trackers import trackers
for steps in ((8, 16), (12,)):
    with trackers(["wandb"], "mine", "abc123", Path(sys.argv[1]), print) as log:
        for step in steps:
            log(step, {"best_score": step / 100})
"""


@pytest.mark.slow  # the library has processes of its own
def test_rounds_are_logged_by_weights_and_biases_offline(tmp_path, monkeypatch):
    pytest.importorskip("wandb", reason="wandb is in the extra 'dev'")
    monkeypatch.setenv("WANDB_MODE", "offline")
    command = [sys.executable, "-c", TWO_WATCHES, str(tmp_path)]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == ""
    files = sorted((tmp_path / "wandb").glob("offline-run-*/run-abc123.wandb"))
    written = b"".join(path.read_bytes() for path in files)
    assert all(text in written for text in (b"best_score", b"0.16", b"0.12"))


def test_a_library_that_fails_later_does_not_end_the_watch(tmp_path, logged):
    messages = []
    with trackers(["mlflow"], "mine", "abc123", tmp_path, messages.append) as log:
        log(8, {"no/../name": 1.0})
        log(16, {"best_score": 1.0})
    (message,) = messages
    assert message.startswith("mlflow did not take step 8: MlflowException: ")


def test_a_missing_library_is_an_error_before_anything_starts(tmp_path, monkeypatch):
    monkeypatch.setattr(_trackers, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match="pip install mlflow-skinny wandb"):
        dm.watch(models=[tmp_path / "out"], folder=tmp_path / "run", log_to=["mlflow", "wandb"])
    assert not (tmp_path / "run").exists()


def test_the_best_of_a_run_is_logged_at_its_end():
    arm = ArmSummary(Arm("m", "step8", 1), 0.0, 0.0, {"order": ScoreEstimate(0.7, 0.01)})
    fields = dict.fromkeys(Recommendation.__dataclass_fields__)
    recommended = Recommendation(**{**fields, "cells": 3, "best": arm})
    plan = planned([Suite("m", ("step8", "step16"), (1,), 1)], [task("order"), task("x", weight=0)])
    ended = SearchEnded(plan.key, recommended, {}, (), {}, "sure")
    logged = []
    log_search(lambda *given: logged.append(given), plan, ended, rise_probability=None)
    best = {"best_step": 8, "best_layer": 1, "best_score": 0.7, "best_stderr": 0.01}
    assert logged == [(16, {"checkpoints": 2, "cells": 3, **best})]

"""The chance of success of an option, from journals of earlier runs; without any, nothing is said."""

from __future__ import annotations

from dataclasses import replace

import yaml

from daskmetrics.config import Cluster
from daskmetrics.core._events import RunFinished
from daskmetrics.core._files import RunFolder
from daskmetrics.execution import Journal
from daskmetrics.planning._success import of_jobs, of_partition
from tests.events import started


def earlier(place, name, profile, finished):
    folder = RunFolder(place / name).create()
    folder.config.write_text(yaml.safe_dump({"cluster": profile.model_dump(mode="json")}))
    with Journal(folder.journal, folder.lock) as journal:
        journal.append(replace(started(), key="k"))
        if finished:
            journal.append(RunFinished("k", 1.0))


def test_earlier_runs_on_the_partition_are_counted_and_others_are_not(tmp_path):
    here, there = Cluster(kind="slurm", partition="gpu"), Cluster(kind="slurm", partition="cpu")
    for number, (profile, finished) in enumerate([(here, True), (here, True), (here, False), (there, False)]):
        earlier(tmp_path, f"run{number}", profile, finished)
    record = of_partition("gpu", here, tmp_path, ask=False)
    assert (record.well, record.ended) == (2, 3) and record.what == "earlier runs on gpu here"
    assert record.chance.low < 2 / 3 < record.chance.high and len({record, record}) == 1
    assert of_partition(None, Cluster(), tmp_path, ask=False) is None


def test_jobs_that_are_not_over_or_were_cancelled_by_hand_say_nothing():
    assert of_jobs(["a|RUNNING", "b|PENDING", "c|CANCELLED by 1000", ""], "gpu") is None
    record = of_jobs(["daskmetrics-x|CANCELLED by 0", "e|NODE_FAIL", "f|OUT_OF_MEMORY", "a|b|COMPLETED"], "gpu")
    assert (record.well, record.ended, dict(record.lost)) == (2, 4, {"NODE_FAIL": 1, "OUT_OF_MEMORY": 1})

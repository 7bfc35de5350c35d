"""Encoding on a worker with a GPU resource, trees on one without: the journal tells which worker
ran what.
"""

from __future__ import annotations

import pytest
from distributed import Client, Nanny, Scheduler, SpecCluster

import daskmetrics as dm
from daskmetrics import config, experiment
from daskmetrics.core.files import RunFolder
from daskmetrics.experiment import _worker as worker
from daskmetrics.tasks import _probes as probes
from tests.models.architectures import DEPTH, SMALL, build

TASKS = [
    "stdlib:package(probe=xgboost)",
    "stdlib:package(probe=lightgbm)",
    "stdlib:package(probe=ridge)",
]


@pytest.fixture
def two_kinds():
    """One worker that offers a GPU and nothing else, one that offers a CPU."""
    options = {
        "nthreads": 1,
        "host": "127.0.0.1",
        "dashboard": False,
        "env": {"OMP_NUM_THREADS": "1"},
    }
    workers = {
        kind: {"cls": Nanny, "options": {**options, "resources": {kind: 1}, "memory_limit": 0}}
        for kind in ("GPU", "CPU")
    }
    scheduler = {
        "cls": Scheduler,
        "options": {"host": "127.0.0.1", "dashboard_address": "127.0.0.1:0"},
    }
    with (
        SpecCluster(scheduler=scheduler, workers=workers) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        client.wait_for_workers(2, timeout=120)
        yield client


def test_trees_run_on_cpu_workers_beside_encoding(two_kinds, minilm, tmp_path):
    if not any(map(any, map(probes.library_version, ("xgboost", "lightgbm")))):
        pytest.skip("needs the extra 'trees'")
    narrow = build("gpt_neox", tmp_path / "narrow", minilm)  # trees on its vectors are quick
    model = {"name": "narrow", "source": str(narrow), "layers": [0, DEPTH]}
    # less than the vectors need, so that they go through files
    two_kinds.run(setattr, worker, "MEMORY", 10_000)
    wanted = {
        "name": "trees",
        "models": [model],
        "corpus": {"prompts": 8},
        "metrics": ["prompt_entropy"],
        "tasks": TASKS,
        "search": {"policy": "sweep", "budget": 1.0},
    }
    prepared = experiment.prepare(config.parse(wanted))
    folder = RunFolder(tmp_path / "run")
    experiment.run(prepared, folder, experiment.Display(), two_kinds)
    records = [record for record in dm.open(folder.path).records if record.kind == "score"]
    assert len(records) == 2 * len(TASKS) and all(record.ok for record in records), records
    assert {record.worker for record in records} == {"CPU"}
    assert {record.value.encoded_on for record in records} == {"GPU"}
    assert all(record.value.score > 1 / 12 for record in records)
    value = records[0].value
    assert value.protocol == prepared.readers[prepared.plan.checkpoints[0]].protocol.key
    width = SMALL["hidden_size"]
    assert value.bytes == 2 * 480 * width * 4 and value.dimensions == width
    assert 3 < value.tokens <= prepared.config.protocol.max_length
    assert {"scikit-learn", "lightgbm"} <= value.versions.keys()

"""An encoder of an arm gives what tasks were scored on."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from daskmetrics.checkpoints.locations import Location
from daskmetrics.checkpoints.shipped import protocol_of
from daskmetrics.config import Model, Protocol
from daskmetrics.core.readouts import Readout
from daskmetrics.experiment import _worker as worker
from daskmetrics.models import Encoder
from daskmetrics.tasks import resolve
from tests import embedders

CORPUS = [
    f"{word} layers of network {number}"
    for number in range(10)
    for word in ("one", "two", "all", "these")
]
READOUTS = (
    "",
    "max,8d",
    "mean1+2",
    "last,concat1+2",
    "mean,8d",
    "weighted,pca8",
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return embedders.build("e5", tmp_path_factory.mktemp("model"))


@pytest.mark.parametrize("readout", READOUTS)
def test_vectors_are_those_that_a_worker_scores(folder: Path, tmp_path: Path, readout: str) -> None:
    read = protocol_of(Protocol(), Model(name="m", source=str(folder)), folder)
    table, path = tmp_path / "own.csv", tmp_path / "corpus.json"
    table.write_text(
        "text,label\n" + "".join(f"text {i} of {'ab'[i % 2] * i},{i % 2}\n" for i in range(40))
    )
    (task,) = resolve([f"file:{table}"])
    path.write_text(json.dumps(CORPUS))
    spec = worker.EncodeSpec(
        key="k",
        location=Location(str(folder), None, "x"),
        protocol=read,
        task=task,
        layers=(1, 2),
        scratch=str(tmp_path),
        poolings=(Readout.parse(readout).pooling,),
        corpus=tuple(CORPUS),
    )
    scored = worker.read_out(worker.encode(spec), 2, readout)
    encoder = Encoder.load(str(folder), None, 2, read.as_dict(), readout=readout, corpus=path)
    vectors = encoder.encode(task.texts())
    assert vectors.dtype == np.float32 and vectors.shape == scored.shape
    np.testing.assert_allclose(vectors, scored, atol=1e-5 * np.abs(scored).max())

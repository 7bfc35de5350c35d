"""The functions of workers: a unit computes only metrics that are not recorded, from kept states
without a model.
"""

from __future__ import annotations

import gc
import json
import pickle
import shutil
import sys
from dataclasses import replace

import numpy as np
import pytest

from daskmetrics import store
from daskmetrics.checkpoints.locations import Location
from daskmetrics.core.corpus import digest
from daskmetrics.core.errors import DataError, UndefinedError
from daskmetrics.core.files import RunFolder
from daskmetrics.execution import Record
from daskmetrics.experiment import _worker as worker
from daskmetrics.experiment import measure as measuring
from daskmetrics.experiment._worker import LayerEmbeddings, remove
from daskmetrics.training import train
from tests.stored import read_block

FEW, MORE = ["curvature", "anisotropy"], ["anisotropy", "alpha_req", "curvature", "cka_next"]
PROMPTS = ["one two three", "four five", "six seven eight nine", "ten"]
NOWHERE = Location("/nowhere", None, "nowhere")  # a name without a slash is looked for on the hub


@pytest.fixture
def measured(prepared, tmp_path):
    """Measures the first checkpoint with these metrics; earlier records are taken into account."""

    def measure(metrics, records=(), location=None, prompts=PROMPTS, **changes):
        experiment = prepared(metrics=metrics, **changes)
        folder = RunFolder(tmp_path / "run").create()
        folder.corpus.write_text(json.dumps(prompts))
        units = measuring.units(experiment, folder, records)
        first = next(unit for unit in units if unit.kind == "measure")
        for suite in experiment.trainings.values():
            train(suite.recipe, suite.folder)
        if folder.store.exists():
            shutil.rmtree(folder.store)
        store.create(folder.store, experiment.plan, {})
        spec = replace(first.args[0], prompts_key=digest(prompts))
        reader = replace(spec.reader, location=location or spec.reader.location)
        spec = replace(spec, reader=reader)
        record = Record(first.key, first.name, "measure", "ok", value=first.function(spec))
        return record, read_block(folder.store, "metrics", spec.checkpoint)

    return measure


def test_prompts_that_changed_during_the_run_are_refused(prepared, tmp_path):
    experiment, folder = prepared(), RunFolder(tmp_path / "run").create()
    folder.corpus.write_text(json.dumps(experiment.prompts[1:]))
    unit = next(unit for unit in measuring.units(experiment, folder, ()) if unit.kind == "measure")
    with pytest.raises(DataError, match=r"prompts of the run cannot be read .* changed"):
        unit.function(*unit.args)


def test_known_metrics_are_reused_and_the_others_computed(measured):
    before, _ = measured(FEW)
    added, _ = measured(MORE, [before])
    complete, _ = measured(MORE)
    assert added.value == complete.value
    again, _ = measured(FEW[::-1], [added], NOWHERE)
    assert list(again.value.names) == FEW[::-1]
    with pytest.raises(Exception, match="nowhere"):
        measured(MORE, [before], NOWHERE)

    size, layers = before.value.size, before.value.layers
    assert len(size.parameters) == len(size.computed) == len(layers)
    assert size.whole > size.parameters[0] > 0 and size.attention > 0
    assert again.value.size == size


def test_prompts_that_are_copies_do_not_count_and_are_told(measured):
    once, _ = measured(FEW)
    twice, _ = measured(FEW, prompts=[*PROMPTS, *PROMPTS[:3]])
    again, _ = measured(MORE, [twice], prompts=[*PROMPTS, *PROMPTS[:3]])
    assert twice.value.values == once.value.values
    assert [record.value.copies for record in (once, twice, again)] == [None, 3, 3]
    assert worker.record_text(twice).endswith("(without 3 prompts with the tokens of another one)")
    with pytest.raises(DataError, match="All 3 texts have the same tokens"):
        measured(FEW, prompts=3 * PROMPTS[:1])


def test_a_layer_whose_vectors_are_equal_has_no_score(tmp_path, prepared):
    task = prepared().tasks[0]
    texts = len(task.texts())
    vectors = np.random.default_rng(0).normal(size=(1, texts, 8)).astype(np.float32)
    equal = vectors[:, :1] * (1 + 1e-7 * vectors)  # up to rounding

    def score(values):
        embeddings = LayerEmbeddings((3,), texts, {"": [8]}, tmp_path, "key")
        embeddings.put(np.arange(texts), [values])
        return worker.score(embeddings, task, 3, 0, "protocol")

    assert np.isfinite(score(vectors).score)
    with pytest.raises(UndefinedError, match=f"equal for all {texts} texts"):
        score(equal)


# embeddings of any size in limited memory

LAYERS, TEXTS, WIDTH = (0, 2, 5), 40, 8
SIZE = 4 * len(LAYERS) * TEXTS * WIDTH
VECTORS = np.random.default_rng(0).normal(size=(len(LAYERS), TEXTS, WIDTH)).astype(np.float32)


def filled(folder):
    """Filled in batches of scattered texts, one of which is added twice."""
    made = LayerEmbeddings(LAYERS, TEXTS, {"": [WIDTH] * len(LAYERS)}, folder, "key")
    order = np.random.default_rng(1).permutation(TEXTS)
    made.put(order[:7], [np.zeros((len(LAYERS), 7, WIDTH), np.float32)])
    for start in range(0, TEXTS, 7):
        texts = order[start : start + 7]
        made.put(texts, [VECTORS[:, texts]])
    return made


@pytest.mark.parametrize("limit", [SIZE, SIZE - 1, 0])
def test_copies_of_vectors_outlive_their_original(tmp_path, limit, monkeypatch):
    """Dask keeps one of several copies, not always the first."""
    monkeypatch.setattr(worker, "MEMORY", limit)
    made = filled(tmp_path)
    assert any(tmp_path.iterdir()) == (limit < SIZE)
    assert (sys.getsizeof(made) >= SIZE) == (limit == SIZE)
    assert made.nbytes == SIZE
    copy = pickle.loads(pickle.dumps(made))
    del made
    gc.collect()
    np.testing.assert_array_equal([copy.at(layer) for layer in LAYERS], VECTORS)
    remove(tmp_path, "key")
    assert list(tmp_path.iterdir()) == []


def test_missing_files_are_an_error(tmp_path, monkeypatch):
    monkeypatch.setattr(worker, "MEMORY", 0)
    made = filled(tmp_path)
    for path in tmp_path.glob("*/*.f32"):
        path.unlink()
    with pytest.raises(DataError, match="Embeddings cannot be read"):
        made.at(2)

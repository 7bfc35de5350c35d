"""Sentence-transformers folders in a run: scores of the benchmark, prompts, and what is
imported.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass

import numpy as np
import pytest

from daskmetrics import config, experiment
from daskmetrics.core.errors import ConfigError
from daskmetrics.experiment import _worker as worker
from daskmetrics.experiment.score import score_unit
from daskmetrics.tasks import Task
from tests.embedders import DEPTH, WIDTH, network_of, save

pytestmark = pytest.mark.filterwarnings("ignore", "error:::daskmetrics")  # the benchmark's own
PROMPTS = {"query": "query: ", "document": "passage: ", "Clustering": "topic: ", "other": "text: "}


@pytest.fixture(scope="module")
def embedder(tmp_path_factory):
    """With prompts, and vectors of any length that are compared by their dot product."""
    from sentence_transformers.sentence_transformer.modules import Pooling

    folder = tmp_path_factory.mktemp("embedder")
    return save(
        folder / "model",
        network_of("e5", folder / "network"),
        [Pooling(WIDTH, "max")],
        prompts=PROMPTS,
        default_prompt_name="other",
        similarity_fn_name="dot",
    )


def prepared(folder, task, **model):
    about = {"name": "m", "source": str(folder), "layers": [DEPTH], **model}
    # one text at a time, so that vectors differ by nothing from those of another library
    plain = {"name": "shipped", "metrics": [], "protocol": {"batch_tokens": 1}, "tasks": [task]}
    return experiment.prepare(config.parse({**plain, "models": [about]}))


@pytest.mark.parametrize(
    ("name", "error"),
    [
        # the last bit of a vector, which differs by processor, can move a text to another cluster;
        # without its prompt the score differs by 0.026
        ("LocalClustering", 0.01),
        ("LocalRetrieval", 1e-6),
        ("LocalReranking", 1e-6),
        ("LocalPairs", 1e-6),
    ],
)
def test_the_last_layer_scores_as_the_benchmark_does(local_mteb, embedder, name, error, tmp_path):
    import mteb
    from sentence_transformers import SentenceTransformer

    whole = prepared(embedder, f"mteb:{local_mteb.PLACES[name]}")
    unit = score_unit(whole, whole.plan.arms[0], whole.tasks[0], tmp_path, "score", {})
    assert unit.input is not None
    score = unit.function(unit.input.function(*unit.input.args), *unit.args)
    plain = mteb.evaluate(
        SentenceTransformer(str(embedder), device="cpu"),
        getattr(local_mteb, name)(),
        cache=None,
        encode_kwargs={"batch_size": 1, "show_progress_bar": False},
        show_progress_bar=False,
    )
    assert score.score == pytest.approx(plain.task_results[0].get_score(), abs=error)


def test_prompts_of_a_model_change_keys_and_are_for_something(embedder):
    shipped = prepared(embedder, "stdlib:candidates")
    assert shipped.plan.key != prepared(embedder, "stdlib:candidates", prompts="").plan.key
    with pytest.raises(ConfigError, match=r"prompt 'querry'.*'query'"):
        prepared(embedder, "stdlib:candidates", prompts={"querry": "query: "})


@dataclass(frozen=True)
class Twice(Task):
    """A task in which a text is a query and a document."""

    name: str = "twice"
    kind: str = "retrieval"
    pooling: None = None

    def texts(self):
        return ["the same text"] * 3

    def roles(self):
        return ("query", "document", None)

    def evaluate(self, embeddings, seed):
        raise AssertionError("it is not scored")


@pytest.mark.parametrize(
    ("prompts", "vectors"),
    [
        ({"query": "query: ", "document": "passage: "}, 3),
        ({"query": "query: "}, 2),
        ("all: ", 1),
        ({}, 1),
    ],
)
def test_a_text_is_read_once_for_each_prompt(embedder, tmp_path, prompts, vectors, monkeypatch):
    whole = prepared(embedder, "stdlib:candidates", prompts=prompts)
    (checkpoint,) = whole.plan.checkpoints
    spec = worker.EncodeSpec("key", Twice(), (DEPTH,), tmp_path)
    embeddings = worker.encode(whole.readers[checkpoint], spec)
    monkeypatch.setattr(worker, "MEMORY", 0)
    in_files = worker.encode(whole.readers[checkpoint], spec)
    assert embeddings.texts == vectors
    for read in (embeddings.at(DEPTH), in_files.at(DEPTH)):
        assert read.shape[0] == 3 and len(np.unique(read, axis=0)) == vectors


def test_a_preview_of_shipped_models_does_not_import_torch(embedder, tmp_path):
    path = tmp_path / "x.yaml"
    path.write_text(json.dumps({"name": "x", "models": [{"name": "m", "source": str(embedder)}]}))
    code = (
        "import sys\nfrom daskmetrics import config, experiment\n"
        f"experiment.prepare(config.load({str(path)!r}))\nprint('torch' in sys.modules)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=os.environ, capture_output=True, text=True, check=False
    )
    assert done.stdout == "False\n", done.stderr

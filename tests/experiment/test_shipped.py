"""Sentence-transformers folders in a run: scores of the benchmark, what is recorded, what is
previewed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from daskmetrics import config, experiment, store
from daskmetrics.bandit import Learner, policy_named
from daskmetrics.core.errors import ConfigError, DataError
from daskmetrics.core.files import RunFolder
from daskmetrics.core.names import Key, content_key
from daskmetrics.experiment import Display
from daskmetrics.experiment import _worker as worker
from daskmetrics.experiment import search as search
from daskmetrics.planning.preview import preview
from daskmetrics.report import Run
from daskmetrics.tasks import Score

pytestmark = pytest.mark.filterwarnings("ignore", "error:::daskmetrics")  # the benchmark's own
PROMPTS = {
    "query": "query: ",
    "document": "passage: ",
    "STS": "same: ",
    "Clustering": "topic: ",
    "other": "text: ",
}


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from tests.embedders import network_of

    return network_of("e5", tmp_path_factory.mktemp("network"))


def embedder_of(kind: str, network: Path, folder: Path) -> Path:
    """With prompts; ``dot`` compares vectors of any length."""
    from sentence_transformers.base.modules import Normalize
    from sentence_transformers.sentence_transformer.modules import Pooling

    from tests.embedders import WIDTH, save

    rest = [Pooling(WIDTH, "max")] if kind == "dot" else [Pooling(WIDTH, "mean"), Normalize()]
    similarity = "dot" if kind == "dot" else "cosine"
    return save(
        folder,
        network,
        rest,
        prompts=PROMPTS,
        default_prompt_name="other",
        similarity_fn_name=similarity,
    )


@pytest.fixture(scope="module")
def embedders(minilm: Path, tmp_path_factory: pytest.TempPathFactory, network: Path) -> Any:
    folder = tmp_path_factory.mktemp("embedders")
    made = {kind: embedder_of(kind, network, folder / kind / "model") for kind in ("e5", "dot")}
    return {"minilm": minilm, **made}


def prepared_for(folder: Path, tasks: list[str], **changes: Any) -> experiment.Experiment:
    depth = json.loads((folder / "config.json").read_text())["num_hidden_layers"]
    model = {"name": "m", "source": str(folder), "layers": [depth], **changes.pop("model", {})}
    wanted = {"name": "shipped", "models": [model], "corpus": {"prompts": 8}, "tasks": tasks}
    return experiment.prepare(config.parse({**wanted, "metrics": ["anisotropy"], **changes}))


def last_score(prepared: experiment.Experiment, scratch: Path) -> float:
    """The score of the only arm, by the work units of a search."""
    learner = Learner(
        search.build_problem(prepared, prepared.suites),
        policy_named("sweep"),
        budget=1.0,
        window=8,
        seed=0,
    )
    (unit,) = search.SearchSource(prepared, learner, "key", scratch).ask(1)
    assert unit.input is not None
    return float(unit.function(unit.input.function(*unit.input.args), *unit.args).score)


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("e5", "LocalClustering"),  # with a prompt for each
        ("e5", "LocalSTS"),
        ("e5", "LocalRetrieval"),
        ("minilm", "LocalClassification"),
        ("minilm", "LocalRetrieval"),
        ("dot", "LocalPairs"),
        ("dot", "LocalReranking"),
    ],
)
def test_the_last_layer_scores_as_the_model_does_in_the_benchmark(
    local_mteb: ModuleType, embedders: dict[str, Path], kind: str, name: str, tmp_path: Path
) -> None:
    import mteb
    from sentence_transformers import SentenceTransformer

    embedder = embedders[kind]
    # one text at a time here and there, so that vectors differ by nothing
    prepared = prepared_for(
        embedder, [f"mteb:{local_mteb.PLACES[name]}"], protocol={"batch_tokens": 1}
    )
    model = SentenceTransformer(str(embedder), device="cpu")
    options = {"batch_size": 1, "show_progress_bar": False}
    task = getattr(local_mteb, name)()
    plain = mteb.evaluate(model, task, cache=None, encode_kwargs=options, show_progress_bar=False)
    # the last bit of a vector, which differs by processor, can move a text to another cluster;
    # without its prompt the score differs by 0.026
    error = 0.01 if kind == "e5" and name == "LocalClustering" else 1e-6
    assert last_score(prepared, tmp_path) == pytest.approx(
        plain.task_results[0].get_score(), abs=error
    )


def test_prompts_of_a_model_change_scores_and_keys(network: Path, tmp_path: Path) -> None:
    folder = embedder_of("e5", network, tmp_path / "e5")
    shipped = prepared_for(folder, ["stdlib:candidates"])
    none = prepared_for(folder, ["stdlib:candidates"], model={"prompts": ""})
    assert last_score(shipped, tmp_path) != last_score(none, tmp_path)
    assert shipped.key != none.key
    with pytest.raises(ConfigError, match=r"prompt 'querry'.*'query'"):
        prepared_for(folder, ["stdlib:candidates"], model={"prompts": {"querry": "query: "}})


@dataclass(frozen=True)
class Twice:
    """A task in which a text is a query and a document."""

    said: tuple[str | None, ...] = ("query", "document", None)
    name: str = "twice"
    kind: str = "retrieval"
    main_score: str = "spread"
    pooling: None = None
    description: str = "how far apart are the vectors of one text?"
    is_local: bool = True

    @property
    def key(self) -> Key:
        return content_key("twice")

    def texts(self) -> list[str]:
        return ["the same text", "the same text", "the same text"]

    def roles(self) -> tuple[str | None, ...]:
        return self.said

    def evaluate(self, embeddings: np.ndarray, seed: int) -> Score:
        return Score(float(len(np.unique(embeddings, axis=0))), 0.0, len(embeddings))


@pytest.mark.parametrize(
    ("prompts", "vectors"),
    [
        ({"query": "query: ", "document": "passage: "}, 3),
        ({"query": "query: "}, 2),
        ("all: ", 1),
        ({}, 1),
    ],
)
def test_a_text_is_read_once_for_each_prompt(
    network: Path, tmp_path: Path, prompts: Any, vectors: int
) -> None:
    folder = embedder_of("e5", network, tmp_path / "e5")
    prepared = prepared_for(folder, [], model={"prompts": prompts})
    (checkpoint,) = prepared.checkpoints
    spec = worker.EncodeSpec(
        "key",
        prepared.locations[checkpoint],
        prepared.protocols[checkpoint],
        Twice(),
        (3,),
        str(tmp_path),
    )
    embeddings = worker.encode(spec)
    in_files = worker.encode(replace(spec, memory=0))
    assert embeddings.texts == vectors and embeddings.at(3).shape[0] == 3
    assert Twice().evaluate(embeddings.at(3), 0).value == vectors
    assert Twice().evaluate(in_files.at(3), 0).value == vectors


@pytest.mark.parametrize("said", [("query",), ("query", "passage", None)])
def test_roles_that_do_not_fit_the_texts_are_an_error(said: Any) -> None:
    from daskmetrics.tasks.task import roles_of

    with pytest.raises(DataError, match="roles"):
        roles_of(Twice(said))


def test_a_run_records_what_was_done_and_its_snippet_does_it_again(
    network: Path, tmp_path: Path
) -> None:
    folder = embedder_of("e5", network, tmp_path / "e5")
    prepared = prepared_for(
        folder,
        ["stdlib:closeness"],
        model={"layers": "blocks"},
        search={"budget": 1.0},
        cluster={"workers": 1},
    )
    run_folder = RunFolder(tmp_path / "run")
    assert "as shipped (mean, normalize), 128 tokens, prompts: Clustering 'topic: '" in str(
        preview(prepared, run_folder)
    )
    experiment.run(prepared, run_folder, Display())
    done = store.open_tree(run_folder.store).attrs["protocols"]["m"]
    assert done == prepared.protocols[prepared.checkpoints[0]].as_dict()
    assert done["prompts"]["query"] == "query: " and done["shipped"]["steps"] == ["normalize"]
    best = Run(run_folder.path).best()
    with best.load() as encoder:
        vectors = encoder.encode(["one text", "another"])
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1.0, atol=1e-5)


def test_a_preview_of_shipped_models_does_not_import_torch(network: Path, tmp_path: Path) -> None:
    folder = embedder_of("e5", network, tmp_path / "e5")
    path = tmp_path / "x.yaml"
    path.write_text(json.dumps({"name": "x", "models": [{"name": "m", "source": str(folder)}]}))
    code = (
        "import sys\nfrom daskmetrics import config, experiment\n"
        f"experiment.prepare(config.load({str(path)!r}))\nprint('torch' in sys.modules)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=os.environ, capture_output=True, text=True, check=False
    )
    assert done.stdout == "False\n", done.stderr

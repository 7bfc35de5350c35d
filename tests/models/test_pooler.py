"""Sentence-transformers folders as their authors mean them, beside `SentenceTransformer.encode`
itself.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Normalize
from sentence_transformers.sentence_transformer.modules import Pooling
from torch import nn

from daskmetrics.checkpoints.locations import Location
from daskmetrics.checkpoints.shipped import protocol_of
from daskmetrics.config import Model, Protocol
from daskmetrics.core.errors import DataError
from daskmetrics.models import LoadedModel, Pooler
from daskmetrics.models._pooler import MODES
from tests.embedders import DEPTH, KINDS, LENGTH, WIDTH, build, dense, network_of, save

TEXTS = [
    "one",
    "A much longer sentence about the Layers of a network, " * 20,
    "two words",
    "",
    "Ünder three LITTLE words",
]
ROLES = ["query", "document", None]


def shipped_vectors(
    folder: Path, role: str | None, layers: Any, texts: Any = TEXTS, **model: Any
) -> np.ndarray:
    """Vectors (layers, texts, D) of a folder as shipped."""
    protocol = protocol_of(Protocol(), Model(name="m", source=str(folder), **model), folder)
    assert protocol.shipped is not None
    with LoadedModel(Location(str(folder), None, str(folder)), protocol.base) as read:
        pooler = Pooler(read, protocol, texts, protocol.prompts.of(role))
        return pooler.vectors(layers)[0]


def theirs(model: SentenceTransformer, role: str | None, texts: Any = TEXTS) -> np.ndarray:
    encode = {"query": model.encode_query, "document": model.encode_document, None: model.encode}
    return np.asarray(encode[role](texts, show_progress_bar=False))


def rewrite(file: Path, **keys: object) -> None:
    file.write_text(json.dumps({**json.loads(file.read_text()), **keys}))


@pytest.fixture(scope="module", params=KINDS)
def embedder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(request.param, tmp_path_factory.mktemp(request.param))


def test_a_layer_is_what_a_model_that_ends_there_gives(embedder):
    model = SentenceTransformer(str(embedder), device="cpu")
    vectors = {role: shipped_vectors(embedder, role, range(1, DEPTH + 1)) for role in ROLES}
    for role in ROLES:
        expected = theirs(model, role)
        np.testing.assert_allclose(vectors[role][-1], expected, atol=1e-5)
        assert len(np.unique(expected.round(4), axis=0)) == len(TEXTS)
    network = model[0].model
    holder, name = (network, "layers") if hasattr(network, "layers") else (network.encoder, "layer")
    for layer in reversed(range(1, DEPTH)):
        setattr(holder, name, getattr(holder, name)[:layer])
        expected = theirs(model, "query")
        np.testing.assert_allclose(vectors["query"][layer - 1], expected, atol=1e-5)


@pytest.fixture(scope="module", params=["e5", "qwen3"])
def network(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return network_of(request.param, tmp_path_factory.mktemp("network"))


@settings(
    max_examples=4, phases=[Phase.explicit, Phase.reuse, Phase.generate]
)  # a network for each is slow to shrink
@given(
    modes=st.lists(st.sampled_from(sorted(MODES.values())), min_size=1, max_size=2, unique=True),
    include_prompt=st.booleans(),
    activation=st.sampled_from([None, nn.Tanh(), nn.GELU(), nn.Identity()]),
    residual=st.booleans(),
    normalize=st.booleans(),
    lower_case=st.booleans(),
    prompts=st.fixed_dictionaries(
        {}, optional={"query": st.just("Ask: "), "document": st.just("Tell me about ")}
    ),
    dimensions=st.none() | st.integers(1, WIDTH // 2),
)
@example(["mean_sqrt_len_tokens", "lasttoken"], True, None, False, False, False, {}, None)
@example(["max", "weightedmean"], False, nn.Tanh(), True, True, True, {"query": "ASK: "}, 5)
def test_vectors_are_those_of_sentence_transformers(
    network, tmp_path_factory, modes, include_prompt, activation, residual, normalize, lower_case,
    prompts, dimensions,
):  # fmt: skip
    rest = [Pooling(WIDTH, modes, include_prompt)]
    if activation is not None:
        rest.append(dense(activation, residual, len(modes) * WIDTH))
    rest += [Normalize()] * normalize
    folder = save(
        tmp_path_factory.mktemp("drawn"),
        network,
        rest,
        prompts={**prompts, "other": "OTHER "},
        default_prompt_name="other",
        truncate_dim=dimensions,
    )
    rewrite(folder / "sentence_bert_config.json", do_lower_case=lower_case)
    model = SentenceTransformer(str(folder), device="cpu")
    for role in ROLES:
        expected = theirs(model, role)
        vectors = shipped_vectors(folder, role, [DEPTH])[0]
        np.testing.assert_allclose(vectors, expected, atol=1e-5 * max(1.0, abs(expected).max()))


def test_configured_prompts_and_length_replace_shipped_ones(e5):
    model = SentenceTransformer(str(e5), device="cpu", prompts={"query": "Q "})
    model.max_seq_length = 16
    vectors = shipped_vectors(e5, "query", [DEPTH], prompts={"query": "Q "}, max_length=16)[0]
    np.testing.assert_allclose(vectors, theirs(model, "query"), atol=1e-5)
    assert LENGTH > 16 and abs(vectors - shipped_vectors(e5, "query", [DEPTH])[0]).max() > 0.01


@pytest.mark.parametrize("length", [12, 150])
def test_the_shipped_length_holds_beside_that_of_the_tokenizer(e5, tmp_path, length):
    folder = shutil.copytree(e5, tmp_path / "e5")
    rewrite(folder / "sentence_bert_config.json", max_seq_length=length)
    model = SentenceTransformer(str(folder), device="cpu")
    assert model.max_seq_length == length != LENGTH
    vectors = shipped_vectors(folder, None, [DEPTH])[0]
    np.testing.assert_allclose(vectors, theirs(model, None), atol=1e-5)


def test_a_dense_layer_without_its_weights_is_one_message(tmp_path, network):
    folder = save(tmp_path / "model", network, [Pooling(WIDTH), dense(nn.Tanh())])
    save_file({"weight": torch.eye(2)}, next(folder.glob("2_Dense/*.safetensors")))
    with pytest.raises(DataError, match=r"2_Dense.* has no linear\.weight, but weight\. Copy"):
        shipped_vectors(folder, None, [DEPTH])


def test_a_network_in_a_sub_folder_with_dense_weights_beside_it(tmp_path, network):
    """As sentence-transformers 1 and 2 saved them."""
    rest = [Pooling(WIDTH), dense(nn.Tanh())]
    folder = save(tmp_path / "new", network, rest, prompts={"query": "q: "})
    inside = tmp_path / "old" / "0_Transformer"
    inside.mkdir(parents=True)
    for path in list(folder.iterdir()):
        outside = ("modules.json", "config_sentence_transformers.json")
        place = inside.parent if path.is_dir() or path.name in outside else inside
        path.rename(place / path.name)
    modules = inside.parent / "modules.json"
    listed = json.loads(modules.read_text())
    listed[0]["path"] = "0_Transformer"
    modules.write_text(json.dumps(listed))
    expected = theirs(SentenceTransformer(str(inside.parent), device="cpu"), "query")
    np.testing.assert_allclose(shipped_vectors(inside, "query", [DEPTH])[0], expected, atol=1e-5)

"""Adapters give what the models give into which peft merges them, and their base is loaded once."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers import AutoModel, AutoModelForCausalLM

from daskmetrics.checkpoints import locations as checkpoints
from daskmetrics.checkpoints.shipped import protocol_of
from daskmetrics.config import Model, Protocol
from daskmetrics.core.errors import ConfigError, DataError
from daskmetrics.models import Encoder, LoadedModel
from daskmetrics.models import _networks as networks

from .architectures import build

peft = pytest.importorskip("peft", reason="needs the extra 'dev'")
pytestmark = pytest.mark.filterwarnings("ignore")  # of peft

TEXTS = ["one text", "another text, which is a longer one", "the third"]
CPU = torch.device("cpu")


def adapted(base, folder, seed=1, head=AutoModelForCausalLM, **options):
    """Write a random adapter of a base; returns the network into which peft merges it."""
    torch.manual_seed(seed)
    network = peft.get_peft_model(head.from_pretrained(base), peft.LoraConfig(**options))
    for name, parameter in network.named_parameters():
        if parameter.requires_grad:
            torch.nn.init.normal_(parameter, 1.0 if "norm" in name else 0.0, 0.1)
    network.save_pretrained(folder)
    again = peft.PeftModel.from_pretrained(head.from_pretrained(base), folder)
    return again.merge_and_unload().base_model.eval()


def located(folder, **options):
    return checkpoints.locate(Model(name="m", source=str(folder), **options))


def encoder_of(location, layer=2):
    read = protocol_of(
        Protocol(), Model(name="m", source="x"), checkpoints.shipped_folder(location)
    )
    return Encoder(LoadedModel(location, read.base, "cpu"), read, [layer])


def assert_equal(network, wanted):
    own, merged = dict(network.named_parameters()), dict(wanted.named_parameters())
    assert own.keys() == merged.keys()
    for name in own:
        torch.testing.assert_close(own[name], merged[name], rtol=1e-5, atol=1e-6, msg=name)


LORAS = {
    "plain": {"r": 4, "lora_alpha": 8},
    "rank stabilized": {"r": 4, "lora_alpha": 8, "use_rslora": True},
    "ranks and alphas": {
        "r": 4,
        "lora_alpha": 8,
        "rank_pattern": {"layers.1.attention.query_key_value": 2},
        "alpha_pattern": {"layers.1.attention.query_key_value": 3, "^nothing": 100, "dense": 5},
        "target_modules": ["query_key_value", "dense"],
        "use_rslora": True,
    },
    "biases": {"r": 4, "bias": "all", "target_modules": ["query_key_value"]},
    "biases of the targets": {"r": 4, "bias": "lora_only", "target_modules": ["query_key_value"]},
    "biases of the matrices": {"r": 4, "lora_bias": True, "target_modules": ["query_key_value"]},
    "whole modules": {"r": 4, "modules_to_save": ["final_layer_norm", "embed_out"]},
    "an embedding": {"r": 4, "target_modules": ["embed_in", "dense_h_to_4h"]},
    "all linear layers": {"r": 4, "target_modules": "all-linear", "task_type": "CAUSAL_LM"},
}


@pytest.fixture
def neox(tmp_path, minilm):
    return build("gpt_neox", tmp_path / "base", minilm, head=True)


@pytest.mark.parametrize("kind", LORAS)
def test_the_weights_are_those_that_peft_merges(tmp_path, neox, kind):
    wanted = adapted(neox, tmp_path / "lora", **LORAS[kind])
    (location,) = located(tmp_path / "lora").locations
    network = networks.NetworkPool().borrow(location, torch.float32, CPU)
    assert_equal(network.module, wanted)
    plain = AutoModel.from_pretrained(neox)
    assert any(
        not torch.equal(a, b)
        for a, b in zip(plain.parameters(), network.module.parameters(), strict=True)
    )


def test_linear_layers_that_are_stored_transposed(tmp_path, minilm):
    base = build("gpt2", tmp_path / "base", minilm, head=True)
    wanted = adapted(
        base, tmp_path / "lora", r=4, target_modules=["c_attn", "c_fc", "wte"], fan_in_fan_out=True
    )
    (location,) = located(tmp_path / "lora").locations
    assert_equal(networks.NetworkPool().borrow(location, torch.float32, CPU).module, wanted)


def test_an_encoder_that_was_trained_with_a_head(tmp_path, minilm):
    head = transformers.AutoModelForSequenceClassification
    wanted = adapted(
        minilm,
        tmp_path / "lora",
        head=head,
        r=4,
        target_modules=["query", "value"],
        task_type="SEQ_CLS",
    )
    (location,) = located(tmp_path / "lora").locations
    network = networks.NetworkPool().borrow(location, torch.float32, CPU)
    assert_equal(network.module, wanted)
    with encoder_of(location, layer=6) as encoder:
        assert encoder.protocol.summary.startswith("as shipped (mean, normalize)")  # by its base
        assert encoder.encode(TEXTS).shape == (3, 384)


def test_an_adapter_of_sentence_transformers_is_read_as_shipped_and_saved_merged(tmp_path, minilm):
    library = pytest.importorskip("sentence_transformers", reason="needs the extra 'mteb'")
    torch.manual_seed(1)
    model = library.SentenceTransformer(str(minilm), device="cpu")
    model.add_adapter(
        peft.LoraConfig(r=2, target_modules=["query"], task_type="FEATURE_EXTRACTION")
    )
    for name, parameter in model.named_parameters():
        if "lora_" in name:
            torch.nn.init.normal_(parameter, 0.0, 0.3)
    model.save_pretrained(str(tmp_path / "out" / "checkpoint-3"))
    wanted = model.encode(TEXTS)
    assert (
        abs(wanted - library.SentenceTransformer(str(minilm), device="cpu").encode(TEXTS)).max()
        > 0.01
    )
    suite = located(tmp_path / "out")
    assert suite.suite.revisions == ("checkpoint-3",) and (suite.suite.depth, suite.width) == (
        6,
        384,
    )
    with encoder_of(suite.locations[0], layer=6) as encoder:
        np.testing.assert_allclose(encoder.encode(TEXTS), wanted, atol=1e-5)
        saved = library.SentenceTransformer(str(encoder.save(tmp_path / "merged")), device="cpu")
    np.testing.assert_allclose(saved.encode(TEXTS), wanted, atol=1e-5)
    assert not (tmp_path / "merged" / "adapter_config.json").exists()


def test_the_base_of_a_suite_is_loaded_once_and_never_worn_by_rounding(tmp_path, neox, monkeypatch):
    wanted = [
        adapted(neox, tmp_path / "out" / f"checkpoint-{step}", step, r=4) for step in (1, 2, 3)
    ]
    only_norm = tmp_path / "out" / "checkpoint-4"
    wanted.append(
        adapted(
            neox, only_norm, 4, r=4, target_modules=["dense"], modules_to_save=["final_layer_norm"]
        )
    )
    suite, loaded, opened = located(tmp_path / "out"), [], []
    load_module, open_weights = networks.load_module, networks.open_weights
    monkeypatch.setattr(
        networks, "load_module", lambda at, dtype: loaded.append(at.path) or load_module(at, dtype)
    )
    monkeypatch.setattr(
        networks, "open_weights", lambda at: opened.append(at.path) or open_weights(at)
    )
    pool, first = networks.NetworkPool(), None
    for place in (0, 1, 2, 3, 0, 3, 1, 0):
        network = pool.borrow(suite.locations[place], torch.float32, CPU)
        assert_equal(network.module, wanted[place])
        state = {name: tensor.clone() for name, tensor in network.module.state_dict().items()}
        first = first or state
        pool.give_back(network)
    assert loaded == [str(neox)] and opened.count(str(neox)) == 1
    # bit by bit, after seven others
    assert all(torch.equal(first[name], state[name]) for name in first)
    (base,) = located(neox).locations
    plain = pool.borrow(base, torch.float32, CPU)
    assert loaded == [str(neox)]
    assert_equal(plain.module, AutoModel.from_pretrained(neox))


def rewrite(folder, **keys):
    file = folder / "adapter_config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **keys}))


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (
            {"use_dora": True},
            r"it uses use_dora, which is not applied here\. Merge it into its base",
        ),
        ({"peft_type": "IA3"}, "it is of the type IA3, where LORA is expected"),
        (
            {"layer_replication": [[0, 1]], "trainable_token_indices": [3]},
            "layer_replication and trainable_token_ind",
        ),
        (
            {"init_lora_weights": "pissa"},
            "'init_lora_weights: pissa' changes the weights of the base model",
        ),
        ({"an_option_of_tomorrow": 1}, "it uses an_option_of_tomorrow"),
        (
            {"base_model_name_or_path": "/none/at/all"},
            "'/none/at/all' of the adapter in .* is not on this",
        ),
        (
            {"base_model_name_or_path": None},
            "the base model '' of the adapter in .*'base' of the model",
        ),
        (
            {"base_model_name_or_path": "org/none"},
            r"or fetch it: hf download org/none --revision main",
        ),
    ],
)
def test_what_cannot_be_applied_is_refused_before_anything_starts(tmp_path, neox, keys, message):
    adapted(neox, tmp_path / "lora", r=2)
    rewrite(tmp_path / "lora", **keys)
    with pytest.raises(ConfigError, match=message):
        located(tmp_path / "lora")


def test_a_base_of_the_configuration_replaces_the_one_that_the_adapter_names(tmp_path, neox):
    adapted(neox, tmp_path / "lora", r=2)
    moved = tmp_path / "moved"
    shutil.move(neox, moved)
    with pytest.raises(ConfigError, match="is not on this machine"):
        located(tmp_path / "lora")
    (location,) = located(tmp_path / "lora", base=str(moved)).locations
    assert location.base.path == str(moved)
    with pytest.raises(ConfigError, match="has no adapter"):
        located(moved, base=str(moved))


def test_the_key_has_the_content_of_the_base_and_of_the_adapter(tmp_path, neox, minilm):
    for number in (1, 2):
        adapted(neox, tmp_path / str(number), number, r=2)
    shutil.copytree(tmp_path / "1", tmp_path / "copy")
    build("gpt_neox", tmp_path / "other", minilm, seed=5, head=True)
    first, second, copy = (
        located(tmp_path / name).locations[0].identity for name in ("1", "2", "copy")
    )
    other = located(tmp_path / "1", base=str(tmp_path / "other")).locations[0].identity
    assert first == copy and len({first, second, other}) == 3


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda w: {n.replace("query_key_value", "c_attn"): t for n, t in w.items()},
            "a GPTNeoXModel does not have",
        ),
        (
            lambda w: {n: t[:, :5] if "lora_A" in n else t for n, t in w.items()},
            "numbers for .* and its base model",
        ),
        (
            lambda w: {n.replace("gpt_neox", "bert"): t for n, t in w.items()},
            "changes no parameter that a GPTNeoX",
        ),
    ],
)
def test_an_adapter_of_another_network_is_an_error(tmp_path, neox, change, message):
    adapted(neox, tmp_path / "lora", r=2)
    file = tmp_path / "lora" / "adapter_model.safetensors"
    save_file({name: tensor.contiguous() for name, tensor in change(load_file(file)).items()}, file)
    with pytest.raises(DataError, match=message):
        networks.NetworkPool().borrow(located(tmp_path / "lora").locations[0], torch.float32, CPU)

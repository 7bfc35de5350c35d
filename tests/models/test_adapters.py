"""Adapters give what the whole models give into which peft merges them; their base is loaded once."""

from __future__ import annotations

import json
import shutil
import sys

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
from daskmetrics.models import TextEncoder
from daskmetrics.models import _networks as networks

from .architectures import build

peft = pytest.importorskip("peft", reason="needs the extra 'peft'")
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


def encoder_of(location, layer):
    """As from the record of a run."""
    folder = checkpoints.shipped_folder(location)
    read = protocol_of(Protocol(), Model(name="m", source="x"), folder)
    return TextEncoder.load(layer, "", read.as_dict(), **checkpoints.recorded(location))


def assert_equal(network, wanted):
    own, merged = dict(network.named_parameters()), dict(wanted.named_parameters())
    assert own.keys() == merged.keys()
    for name in own:
        torch.testing.assert_close(own[name], merged[name], rtol=1e-5, atol=1e-6, msg=name)


LORAS = {
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
    "transposed layers of GPT-2": {
        "r": 4,
        "target_modules": ["c_attn", "c_fc", "wte"],
        "fan_in_fan_out": True,
    },
}


def borrowed(location):
    return networks.NetworkPool().borrow(location, torch.float32, CPU)


@pytest.fixture(scope="module")
def lora(neox, tmp_path_factory):
    """A small adapter of the base, for tests to copy and change."""
    folder = tmp_path_factory.mktemp("lora")
    adapted(neox, folder, r=2)
    return folder


def test_the_content_of_an_adapter_and_of_its_base_is_recorded(tmp_path, neox, lora):
    shutil.copytree(neox, tmp_path / "base")
    (location,) = located(lora, base=str(tmp_path / "base")).locations
    record = checkpoints.recorded(location)
    checkpoints.require_content(record, pickled=False)
    config = tmp_path / "base" / "config.json"
    config.write_text(config.read_text() + " ")
    with pytest.raises(DataError, match=f"{tmp_path / 'base'}' has other weights"):
        checkpoints.require_content(record, pickled=False)


@pytest.mark.parametrize("kind", LORAS)
def test_the_weights_are_those_that_peft_merges(tmp_path, neox, minilm, kind):
    base = neox
    if "GPT-2" in kind:
        base = build("gpt2", tmp_path / "base", minilm, head=True)
    wanted = adapted(base, tmp_path / "lora", **LORAS[kind])
    (location,) = located(tmp_path / "lora").locations
    network = borrowed(location)
    assert_equal(network.module, wanted)
    plain = AutoModel.from_pretrained(base).parameters()
    assert not all(map(torch.equal, plain, network.module.parameters()))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_an_adapter_is_added_in_half_precision_as_peft_does(tmp_path, neox, dtype):
    adapted(neox, tmp_path, r=4, target_modules=["query_key_value", "embed_in"])
    (location,) = located(tmp_path).locations
    base = AutoModelForCausalLM.from_pretrained(neox, dtype=dtype)
    wanted = peft.PeftModel.from_pretrained(base, tmp_path).merge_and_unload().base_model
    network = networks.NetworkPool().borrow(location, dtype, CPU)
    for name, parameter in network.module.named_parameters():
        assert torch.equal(parameter, wanted.get_parameter(name)), name


def test_an_encoder_that_was_trained_with_a_head(tmp_path, minilm):
    head = transformers.AutoModelForSequenceClassification
    options = {"r": 4, "target_modules": ["query", "value"], "task_type": "SEQ_CLS"}
    wanted = adapted(minilm, tmp_path / "lora", head=head, **options)
    (location,) = located(tmp_path / "lora").locations
    assert_equal(borrowed(location).module, wanted)
    with encoder_of(location, layer=6) as encoder:
        assert encoder.protocol.summary.startswith("as shipped (mean, normalize)")  # by its base
        assert encoder.encode(TEXTS).shape == (3, 384)


def test_an_adapter_of_a_sentence_encoder_is_saved_merged(tmp_path, minilm):
    library = pytest.importorskip("sentence_transformers", reason="needs the extra 'mteb'")
    torch.manual_seed(1)
    model = library.SentenceTransformer(str(minilm), device="cpu")
    options = {"r": 2, "target_modules": ["query"], "task_type": "FEATURE_EXTRACTION"}
    base = model.encode(TEXTS)
    model.add_adapter(peft.LoraConfig(**options))
    for name, parameter in model.named_parameters():
        if "lora_" in name:
            torch.nn.init.normal_(parameter, 0.0, 0.3)
    model.save_pretrained(str(tmp_path / "out" / "checkpoint-3"))
    wanted = model.encode(TEXTS)
    assert abs(wanted - base).max() > 0.01
    suite = located(tmp_path / "out")
    assert suite.suite.revisions == ("checkpoint-3",)
    assert (suite.suite.depth, suite.width) == (6, 384)
    with encoder_of(suite.locations[0], layer=6) as encoder:
        np.testing.assert_allclose(encoder.encode(TEXTS), wanted, atol=1e-5)
        saved = library.SentenceTransformer(str(encoder.save(tmp_path / "merged")), device="cpu")
    np.testing.assert_allclose(saved.encode(TEXTS), wanted, atol=1e-5)
    assert not (tmp_path / "merged" / "adapter_config.json").exists()


def test_the_base_is_loaded_once_and_keeps_its_weights(tmp_path, neox, monkeypatch):
    norm = {"target_modules": ["dense"], "modules_to_save": ["final_layer_norm"]}
    wanted = []
    for step, options in enumerate(({}, {}, {}, norm), start=1):
        folder = tmp_path / "out" / f"checkpoint-{step}"
        wanted.append(adapted(neox, folder, step, r=4, **options))
    suite, loaded, opened = located(tmp_path / "out"), [], []
    load_module, open_weights = networks.load_module, networks.open_weights
    monkeypatch.setattr(
        networks, "load_module", lambda at, *args: loaded.append(at.path) or load_module(at, *args)
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


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"use_dora": True}, "it uses use_dora, which is not applied here. Merge it into its base"),
        ({"peft_type": "IA3"}, "it is of the type IA3, where LORA is expected"),
        (
            {"layer_replication": [[0, 1]], "trainable_token_indices": [3]},
            "layer_replication and trainable_token_ind",
        ),
        ({"init_lora_weights": "pissa"}, "'init_lora_weights: pissa' changes the weights"),
        ({"an_option_of_tomorrow": 1}, "it uses an_option_of_tomorrow"),
        ({"base_model_name_or_path": "/none"}, "'/none' of the adapter in .* is not on this"),
        ({"base_model_name_or_path": "."}, "of the adapter in .* is an adapter itself"),
        ({"base_model_name_or_path": None}, "base model '' of the adapter in .*'base' of the mod"),
        ({"base_model_name_or_path": "org/none"}, "or fetch it: hf download org/none --revision"),
    ],
)
def test_what_cannot_be_applied_is_refused_when_located(tmp_path, monkeypatch, lora, keys, message):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(lora, tmp_path, dirs_exist_ok=True)
    file = tmp_path / "adapter_config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **keys}))
    with pytest.raises(ConfigError, match=message):
        located(tmp_path)


def test_without_peft_an_adapter_is_refused_with_the_remedy(monkeypatch, lora):
    (location,) = located(lora).locations
    monkeypatch.setitem(sys.modules, "peft", None)
    with pytest.raises(ConfigError, match=r"needs peft: pip install 'daskmetrics\[peft\]'"):
        located(lora)
    with pytest.raises(ConfigError, match="needs peft"):
        borrowed(location)


def test_the_key_has_the_content_of_the_base_and_of_the_adapter(tmp_path, neox_pair, lora):
    copy = shutil.copytree(lora, tmp_path / "copy")
    adapted(neox_pair[0], tmp_path / "other", seed=2, r=2)

    def key(folder, **options):
        return located(folder, **options).locations[0].identity

    assert key(lora) == key(copy)
    base = str(neox_pair[1])
    keys = {key(lora), key(tmp_path / "other"), key(lora, base=base)}
    assert len(keys) == 3
    with pytest.raises(ConfigError, match="has no adapter"):
        located(base, base=base)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("a name of another module", r"layers\.0\.attention\.c_attn, .* for which its base model"),
        ("one matrix of two", r"lacks .*lora_B.* it has one of two matrices alone"),
        ("another rank", "cannot be merged into its base model: .*size mismatch for .*lora_A"),
        ("names of another model", "changes no parameter that a GPTNeoX"),
        ("a third tensor", r"lora_magnitude_vector\.weight, .* for which its base model"),
    ],
)
def test_an_adapter_of_another_network_is_an_error(tmp_path, lora, change, message):
    shutil.copytree(lora, tmp_path, dirs_exist_ok=True)
    file = tmp_path / "adapter_model.safetensors"
    weights = {}
    for name, tensor in load_file(file).items():
        if change == "one matrix of two" and "lora_B" in name:
            continue
        if change == "a name of another module":
            name = name.replace("query_key_value", "c_attn")
        if change == "names of another model":
            name = name.replace("gpt_neox", "bert")
        if change == "a third tensor":
            weights[name.replace("lora_A", "lora_magnitude_vector")] = tensor.clone()
        if change == "another rank" and "lora_A" in name:
            tensor = tensor[:, :5].contiguous()
        weights[name] = tensor
    save_file(weights, file)
    with pytest.raises(DataError, match=message):
        borrowed(located(tmp_path).locations[0])

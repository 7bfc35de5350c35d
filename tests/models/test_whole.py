"""A network holds every tensor of the files of its weights, and nothing else, or it is refused."""

from __future__ import annotations

import json
import re
import shutil

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModel

from daskmetrics.config import Protocol
from daskmetrics.core.errors import DataError
from daskmetrics.models import LoadedModel
from daskmetrics.models import _networks as networks

from .architectures import KINDS, SMALL, TEXTS, at, build, encode

HEADS = ("", "ForMaskedLM", "ForCausalLM", "ForSequenceClassification", "ForTokenClassification")
ONE = torch.ones(1)
LLAMAS = [kind for kind in KINDS if KINDS[kind].norm == "norm"]
BERTS = [
    kind for kind in KINDS if not KINDS[kind].norm and KINDS[kind].config.keys() <= {"pad_token_id"}
]


def config_of(kind):
    sizes = {**SMALL, **KINDS[kind].config, "vocab_size": 50}
    return AutoConfig.for_model(kind, **{k: v for k, v in sizes.items() if v is not None})


def written(kind, folder, head=""):
    """A network of this kind and the folder in which it is saved; None if there is no such head."""
    auto = getattr(transformers, f"AutoModel{head}")
    config = config_of(kind)
    # the decoder of an encoder-decoder model alone is another model
    if type(config) not in auto._model_mapping or (
        config.is_encoder_decoder and head == "ForCausalLM"
    ):
        return None
    torch.manual_seed(0)
    network = auto.from_config(config)
    network.save_pretrained(folder)
    return network


def loaded(folder):
    location = at(folder)
    return networks.load_module(location, torch.float32, networks.open_weights(location))


def model_of(folder):
    return LoadedModel(at(folder), Protocol(), "cpu")


def change(folder, tensors):
    """Add these tensors to a folder's weights."""
    file = folder / "model.safetensors"
    save_file({**load_file(file), **tensors}, file, metadata={"format": "pt"})


def in_a_block(folder):
    """The name of a module with a weight and no bias, or else any, in a block that is read."""
    names = load_file(folder / "model.safetensors").keys() & loaded(folder).state_dict().keys()
    inside = [name.rpartition(".")[0] for name in names if re.search(r"\.\d+\..*\.weight$", name)]
    assert inside
    return min(inside, key=lambda module: f"{module}.bias" in names)


def refusal(folder, *names):
    with pytest.raises(DataError, match="has no place for") as refused:
        loaded(folder)
    assert all(name in str(refused.value) for name in names)


def test_sine_waves_that_a_translator_does_not_save_are_computed(tmp_path):
    saved = written("marian", tmp_path, "ForSeq2SeqLM")
    assert not any("embed_positions" in name for name in load_file(tmp_path / "model.safetensors"))
    waves = loaded(tmp_path).encoder.embed_positions.weight
    assert torch.equal(waves, saved.model.encoder.embed_positions.weight)


@pytest.mark.parametrize("kind", KINDS)
def test_each_tensor_is_in_the_network_or_of_a_head(tmp_path, kind):
    for head in HEADS:
        network = written(kind, tmp_path / f"m{head}", head)
        if network is None:
            continue
        module = loaded(tmp_path / f"m{head}")
        state = module.state_dict()
        original = network.base_model.state_dict()
        for name, tensor in state.items():
            if name in original:  # all but a pooler
                assert torch.equal(tensor, original[name]), name
        lacking = state.keys() - original.keys()
        assert all("pooler" in name for name in lacking)
        children = {name for name, _ in module.named_children()}
        for name in load_file(tmp_path / f"m{head}" / "model.safetensors"):
            inner = name.removeprefix(f"{module.base_model_prefix}.")
            inner = re.sub(
                r"(LayerNorm)\.beta$",
                r"\1.bias",
                re.sub(r"(LayerNorm)\.gamma$", r"\1.weight", inner),
            )
            is_buffer = inner.endswith("rotary_embeddings.inv_freq")  # which ESM computes
            is_within = inner.partition(".")[0] in children
            assert inner in state or is_buffer or not is_within, name


@pytest.mark.parametrize("kind", KINDS)
def test_a_tensor_that_the_network_has_no_place_for_is_refused(tmp_path, kind):
    written(kind, tmp_path / "m")
    block = in_a_block(tmp_path / "m")
    extras = {
        "unmerged": {f"{block}.lora_A.default.weight": 2, f"{block}.lora_B.default.weight": 2},
        "wrapped": {f"base_model.model.{block}.lora_A.weight": 2},
        "denied": {f"{block}.bias_of_another_config": 1},
    }
    bias = f"{block}.bias"
    if bias not in load_file(tmp_path / "m" / "model.safetensors"):
        extras["bias"] = {bias: 1}
    for name, shapes in extras.items():
        folder = shutil.copytree(tmp_path / "m", tmp_path / name)
        change(folder, {tensor: torch.ones((4,) * dims) for tensor, dims in shapes.items()})
        last = [tensor.removeprefix("base_model.model.").partition(".")[2] for tensor in shapes]
        refusal(folder, *last)


@pytest.mark.parametrize("kinds", [LLAMAS, BERTS], ids=["llama", "bert"])
def test_another_model_type_is_read_whole_or_refused(tmp_path, kinds):
    for kind in kinds:
        written(kind, tmp_path / kind)
    refused = 0
    for kind in kinds:
        weights = load_file(tmp_path / kind / "model.safetensors")
        for other in kinds:
            folder = shutil.copytree(tmp_path / kind, tmp_path / f"{kind} as {other}")
            shutil.copy(tmp_path / other / "config.json", folder)
            try:
                state = loaded(folder).state_dict()
            except DataError:
                assert kind != other
                refused += 1
                continue
            for name in weights.keys() | state.keys():
                is_equal = name in weights and torch.equal(weights[name], state.get(name, ONE))
                assert is_equal or name.startswith("pooler"), f"{kind} as {other}: {name}"
    assert refused > len(kinds)


@pytest.mark.parametrize("prefix", ["_orig_mod.", "module.", "base_model.model.", "student."])
def test_a_prefix_of_all_names_is_named(tmp_path, prefix):
    written("bert", tmp_path / "m", "ForMaskedLM")
    file = tmp_path / "m" / "model.safetensors"
    weights = {f"{prefix}{name}": tensor for name, tensor in load_file(file).items()}
    save_file(weights, file, metadata={"format": "pt"})
    with pytest.raises(DataError, match=f"The names in the files begin with '{re.escape(prefix)}"):
        loaded(tmp_path / "m")


def test_weights_of_an_unmerged_adapter_are_refused(tmp_path):
    written("bert", tmp_path / "m")
    file = tmp_path / "m" / "model.safetensors"
    names = {name: name.replace(".query.", ".query.base_layer.") for name in load_file(file)}
    weights = {names[name]: tensor for name, tensor in load_file(file).items()}
    save_file(weights, file, metadata={"format": "pt"})
    with pytest.raises(DataError, match=r"lack 6 parameters, .*merge_and_unload\(\)"):
        loaded(tmp_path / "m")


def test_a_norm_under_two_names_is_refused(tmp_path):
    written("bert", tmp_path / "m")
    name = "encoder.layer.0.output.LayerNorm.gamma"
    change(tmp_path / "m", {name: torch.ones(32)})
    refusal(tmp_path / "m", name)


def test_two_copies_of_a_parameter_in_one_file_are_refused(tmp_path):
    written("bert", tmp_path / "m", "ForMaskedLM")
    name = "embeddings.word_embeddings.weight"
    change(tmp_path / "m", {name: torch.ones(50, 32)})
    with pytest.raises(DataError, match=f"two sets of weights: '{name}' and 'bert.{name}'"):
        loaded(tmp_path / "m")


def test_computed_buffers_and_further_blocks_are_allowed(tmp_path):
    written("gptj", tmp_path / "gptj")
    masks = {"h.0.attn.bias": torch.ones(1, 1, 8, 8, dtype=torch.bool)}
    change(tmp_path / "gptj", {**masks, "h.0.attn.masked_bias": torch.tensor(-1e9)})
    written("bert", tmp_path / "bert")
    change(tmp_path / "bert", {"embeddings.position_ids": torch.arange(64)[None]})
    written("llama", tmp_path / "llama")
    change(tmp_path / "llama", {"layers.0.self_attn.rotary_emb.inv_freq": torch.ones(4)})
    for folder in tmp_path.iterdir():
        loaded(folder)
    further = {"layers.3.mlp.up_proj.weight": torch.ones(64, 32)}
    change(tmp_path / "llama", further)
    refusal(tmp_path / "llama", *further)
    config = tmp_path / "llama" / "config.json"
    stated = {**json.loads(config.read_text()), "num_nextn_predict_layers": 1}
    config.write_text(json.dumps(stated))
    loaded(tmp_path / "llama")


def test_a_swapped_checkpoint_is_checked_as_a_loaded_one(tmp_path, minilm):
    folders = [build("llama", tmp_path / str(seed), minilm, seed) for seed in (0, 1)]
    pool = networks.NetworkPool()
    pool.give_back(pool.borrow(at(folders[0]), torch.float32, torch.device("cpu")))
    change(folders[1], {"layers.0.self_attn.q_proj.bias": torch.ones(32)})
    with pytest.raises(DataError, match=r"has no place for 1 tensor .*q_proj\.bias"):
        pool.borrow(at(folders[1]), torch.float32, torch.device("cpu"))


@pytest.mark.filterwarnings("ignore")  # of peft
@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_what_else_lies_in_a_folder_changes_no_vector(tmp_path, minilm, fresh_pool, order):
    """An adapter of the training, other formats and variants, in any order of the command."""
    peft = pytest.importorskip("peft", reason="needs the extra 'peft'")
    folders = [build("bert", tmp_path / name, minilm) for name in ("alone", "beside")]
    options = {"r": 2, "target_modules": ["query"], "init_lora_weights": False}
    network = AutoModel.from_pretrained(folders[0])
    peft.get_peft_model(network, peft.LoraConfig(**options)).save_pretrained(folders[1])
    other = AutoModel.from_config(AutoModel.from_pretrained(folders[0]).config)
    other.save_pretrained(folders[1], variant="fp16")
    shutil.copy(folders[1] / "model.fp16.safetensors", folders[1] / "consolidated.safetensors")
    torch.save(other.state_dict(), folders[1] / "pytorch_model.bin")
    vectors = []
    for number in order:
        with model_of(folders[number]) as model:
            vectors.append(encode(model, TEXTS, [3], "mean"))
    assert (vectors[0] == vectors[1]).all()
    config = folders[1] / "config.json"
    named = {**json.loads(config.read_text()), "transformers_weights": "consolidated.safetensors"}
    config.write_text(json.dumps(named))
    with pytest.raises(DataError):
        model_of(folders[1])


def test_a_tensor_below_the_prefix_of_the_network_is_no_head(tmp_path):
    written("llama", tmp_path, "ForCausalLM")
    change(tmp_path, {"model.embed_norm.weight": torch.ones(32)})
    refusal(tmp_path, "embed_norm.weight")


def test_a_class_of_another_type_is_refused(tmp_path):
    written("bert", tmp_path)
    config = tmp_path / "config.json"
    content = json.loads(config.read_text())
    assert content["architectures"] == ["BertModel"]
    config.write_text(json.dumps({**content, "model_type": "roberta"}))
    with pytest.raises(DataError, match="model_type 'roberta', and the class BertModel"):
        loaded(tmp_path)

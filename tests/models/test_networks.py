"""Weights that are swapped in are, bit for bit, what transformers would have loaded."""

from __future__ import annotations

import json

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModel

from daskmetrics.core.errors import DataError
from daskmetrics.models import _networks as networks
from daskmetrics.models._networks import open_weights

from .architectures import at, build

CPU = torch.device("cpu")


def borrowed(pool, folder, dtype=torch.float32):
    return pool.borrow(at(folder), dtype, CPU)


def assert_equal_to_transformers(network, folder, dtype=torch.float32):
    expected = AutoModel.from_pretrained(folder, dtype=dtype).eval()
    own = {**dict(network.module.named_parameters()), **dict(network.module.named_buffers())}
    # also those that are not saved
    wanted = {
        **dict(expected.named_parameters()),
        **dict(expected.named_buffers()),
    }
    assert own.keys() == wanted.keys()
    assert all(
        torch.equal(own[name], wanted[name]) and own[name].dtype == wanted[name].dtype
        for name in own
    )
    assert not network.module.training
    ids = torch.arange(20).reshape(2, 10) + 100
    with torch.inference_mode():
        assert torch.equal(network.module(ids)[0], expected(ids)[0])


@pytest.mark.parametrize(
    ("kind", "head", "dtype"),
    [
        ("gpt_neox", False, torch.float32),
        ("gpt_neox", True, torch.bfloat16),
        ("gpt2", True, torch.float32),
        ("llama", True, torch.float32),
        ("bert", False, torch.float32),  # with a head its files have no pooler; see below
        ("mamba", True, torch.float32),
    ],
)
def test_swapped_weights_equal_loaded_ones(tmp_path, minilm, kind, head, dtype):
    folders = [build(kind, tmp_path / str(seed), minilm, seed, head) for seed in (0, 1)]
    pool = networks.NetworkPool()
    first = borrowed(pool, folders[0], dtype)
    pool.give_back(first)
    second = borrowed(pool, folders[1], dtype)
    assert second is first
    assert_equal_to_transformers(second, folders[1], dtype)


def test_prefetched_weights_are_the_same(tmp_path, minilm):
    folders = [build("gpt_neox", tmp_path / str(seed), minilm, seed) for seed in (0, 1)]
    pool = networks.NetworkPool()
    first = borrowed(pool, folders[0])
    pool.give_back(first)
    pool.prefetch.begin(at(folders[1]))
    assert borrowed(pool, folders[1]) is first
    assert_equal_to_transformers(first, folders[1])


def test_a_checkpoint_that_a_network_holds_is_not_read_again(tmp_path, minilm, monkeypatch):
    folders = [build("gpt_neox", tmp_path / str(seed), minilm, seed) for seed in (0, 1)]
    pool, read = networks.NetworkPool(), []
    monkeypatch.setattr(
        networks,
        "open_weights",
        lambda location: read.append(location.path) or open_weights(location),
    )
    for folder in (*folders, folders[1], folders[0]):
        network = borrowed(pool, folder)
        assert_equal_to_transformers(network, folder)
        pool.give_back(network)
    assert read == [str(folders[i]) for i in (0, 1, 0)]


def test_sharded_files(tmp_path, minilm):
    folders = [build("llama", tmp_path / str(seed), minilm, seed) for seed in (0, 1)]
    for folder in folders:
        network = AutoModel.from_pretrained(folder)
        (folder / "model.safetensors").unlink()
        network.save_pretrained(folder, max_shard_size="1MB")
        assert (folder / "model.safetensors.index.json").is_file()
    pool = networks.NetworkPool()
    first = borrowed(pool, folders[0])
    pool.give_back(first)
    assert borrowed(pool, folders[1]) is first
    assert_equal_to_transformers(first, folders[1])


@pytest.mark.parametrize("change", ["a further key", "another dtype", "another config"])
def test_weights_of_another_layout_are_loaded_by_transformers(tmp_path, minilm, change):
    folders = [build("gpt_neox", tmp_path / str(seed), minilm, seed) for seed in (0, 1)]
    path = folders[1] / "model.safetensors"
    weights = load_file(path)
    if change == "a further key":
        save_file({**weights, "extra": torch.ones(1)}, path, metadata={"format": "pt"})
    if change == "another dtype":
        save_file({k: v.bfloat16() for k, v in weights.items()}, path, metadata={"format": "pt"})
    if change == "another config":
        config = json.loads((folders[1] / "config.json").read_text())
        (folders[1] / "config.json").write_text(json.dumps({**config, "layer_norm_eps": 1e-3}))
    pool = networks.NetworkPool()
    first = borrowed(pool, folders[0])
    pool.give_back(first)
    second = borrowed(pool, folders[1])
    assert second is not first
    assert_equal_to_transformers(second, folders[1])


def test_weights_that_are_not_all_in_the_files_are_never_swapped(tmp_path, minilm):
    """A masked language model is saved without BERT's pooler, which transformers then makes up."""
    network = borrowed(networks.NetworkPool(), build("bert", tmp_path / "0", minilm, head=True))
    assert network.names is None


def test_a_network_that_changes_itself_is_loaded_again_for_each_checkpoint(
    tmp_path, minilm, monkeypatch
):
    """As RWKV does, this one divides weights at its first pass, and then expects them divided."""
    folders = [build("gpt_neox", tmp_path / str(seed), minilm, seed) for seed in (0, 1)]
    load = networks.load_module

    def load_changing(location, dtype):
        module, hooks = load(location, dtype), []

        def divide(*_):
            hooks.pop().remove()
            module.layers[1].mlp.dense_h_to_4h.weight.div_(2)

        hooks.append(module.register_forward_pre_hook(divide))
        return module

    monkeypatch.setattr(networks, "load_module", load_changing)
    pool, ids = networks.NetworkPool(), torch.arange(20).reshape(2, 10) + 100
    states = []
    for order in ([1], [0, 1]):
        for number in order:
            network = borrowed(pool, folders[number])
            with torch.inference_mode():
                last = network.module(ids)[0]
            pool.give_back(network)
        states.append(last)
    assert torch.equal(*states) and not network.is_stable


def test_a_network_that_leaves_its_mode_after_a_short_text_is_not_kept(tmp_path, minilm):
    pool = networks.NetworkPool()
    network = borrowed(pool, build("big_bird", tmp_path / "0", minilm))
    pool.give_back(network)
    assert not network.is_stable and not pool._idle


def test_transposed_weights_are_not_matched(tmp_path, minilm):
    folder = build("gpt_neox", tmp_path / "0", minilm)
    weights = dict(open_weights(at(folder)))
    module = AutoModel.from_pretrained(folder)
    assert networks.match(module, weights) is not None
    name = next(name for name in weights if name.endswith("dense.weight"))
    assert networks.match(module, {**weights, name: weights[name].T.contiguous()}) is None


def test_few_idle_networks_are_kept(tmp_path, minilm):
    pool = networks.NetworkPool()
    for kind in ("gpt_neox", "gpt2", "llama"):
        pool.give_back(borrowed(pool, build(kind, tmp_path / kind, minilm)))
    assert len(pool._idle) == 2


def test_a_network_in_use_is_not_given_to_another(tmp_path, minilm):
    folder = build("gpt_neox", tmp_path / "0", minilm)
    pool = networks.NetworkPool()
    assert borrowed(pool, folder) is not borrowed(pool, folder)


def test_broken_weights_after_good_ones_are_named(tmp_path, minilm):
    good, broken = (build("gpt_neox", tmp_path / str(seed), minilm, seed) for seed in (0, 1))
    pool = networks.NetworkPool()
    pool.give_back(borrowed(pool, good))
    (broken / "model.safetensors").write_bytes(b"nonsense")
    with pytest.raises(DataError, match=str(broken)):
        borrowed(pool, broken)

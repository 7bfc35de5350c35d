"""Weights that are swapped in are, bit for bit, what transformers would have loaded."""

from __future__ import annotations

import json
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModel

from daskmetrics.checkpoints.locations import locate
from daskmetrics.config import Model, Protocol
from daskmetrics.core.errors import DataError
from daskmetrics.models import LoadedModel
from daskmetrics.models import _networks as networks
from daskmetrics.models._networks import NetworkPool, Prefetch, open_weights

from .architectures import at, build, encode

CPU = torch.device("cpu")


def borrowed(pool, folder, dtype=torch.float32):
    return pool.borrow(at(folder), dtype, CPU)


def borrowed_in_turn(pool, folders, dtype=torch.float32):
    """The networks of these checkpoints, each given back before the next is borrowed."""
    found = []
    for folder in folders:
        found.append(borrowed(pool, folder, dtype))
        pool.give_back(found[-1])
    return found


def assert_equal_to_transformers(network, folder, dtype=torch.float32):
    expected = AutoModel.from_pretrained(folder, dtype=dtype).eval()
    # also buffers that are not saved
    found, wanted = (
        {**dict(module.named_parameters()), **dict(module.named_buffers())}
        for module in (network.module, expected)
    )
    assert found.keys() == wanted.keys()
    for name, tensor in found.items():
        assert torch.equal(tensor, wanted[name]) and tensor.dtype == wanted[name].dtype
    assert not network.module.training
    ids = torch.arange(20).reshape(2, 10) + 100
    with torch.inference_mode():
        assert torch.equal(network.module(ids)[0], expected(ids)[0])


@pytest.fixture
def pair(tmp_path, neox_pair):
    """Two checkpoints that a test may change."""
    return [
        shutil.copytree(folder, tmp_path / str(number)) for number, folder in enumerate(neox_pair)
    ]


@pytest.mark.parametrize(
    ("kind", "head", "dtype"),
    [
        ("gpt_neox", True, torch.bfloat16),
        ("gpt2", True, torch.float32),
        ("llama", True, torch.float32),
        ("bert", False, torch.float32),  # with a head its files have no pooler; see below
        ("mamba", True, torch.float32),
    ],
)
def test_swapped_weights_equal_loaded_ones(tmp_path, minilm, kind, head, dtype):
    folders = [build(kind, tmp_path / str(seed), minilm, seed, head) for seed in (0, 1)]
    first, second = borrowed_in_turn(NetworkPool(), folders, dtype)
    assert second is first
    assert_equal_to_transformers(second, folders[1], dtype)


def test_sharded_and_prefetched_weights_are_the_same(pair):
    for folder in pair:
        network = AutoModel.from_pretrained(folder)
        (folder / "model.safetensors").unlink()
        network.save_pretrained(folder, max_shard_size="1MB")
        assert (folder / "model.safetensors.index.json").is_file()
    pool = NetworkPool()
    (first,) = borrowed_in_turn(pool, pair[:1])
    pool.prefetch.begin(at(pair[1]))
    assert borrowed(pool, pair[1]) is first
    assert_equal_to_transformers(first, pair[1])


def test_a_checkpoint_that_a_network_holds_is_not_read_again(neox_pair, monkeypatch):
    read = []
    monkeypatch.setattr(
        networks, "open_weights", lambda at: read.append(at.path) or open_weights(at)
    )
    first, second = neox_pair
    pool = NetworkPool()
    for folder in (first, second, second, first):
        (network,) = borrowed_in_turn(pool, [folder])
        assert_equal_to_transformers(network, folder)
    assert read == [str(first), str(second), str(first)]


def test_weights_that_were_replaced_meanwhile_are_an_error(pair, fresh_pool):
    folder, other = pair
    weights = folder / "model.safetensors"
    (location,) = locate(Model(name="neox", source=str(folder))).locations
    with LoadedModel(location, Protocol(), "cpu"):
        weights.touch()  # the same weights
    with (
        pytest.raises(DataError, match=r"has other weights, .* than when the run began"),
        LoadedModel(location, Protocol(), "cpu"),
    ):
        shutil.copyfile(other / weights.name, weights)
    assert not fresh_pool._idle  # its network may have weights of both
    (location,) = locate(Model(name="neox", source=str(folder))).locations
    with LoadedModel(location, Protocol(), "cpu"):
        weights.unlink()  # as trainers do with earlier checkpoints


@pytest.mark.parametrize("change", ["a further key", "another dtype", "another config"])
def test_weights_of_another_layout_are_loaded_by_transformers(pair, change):
    path = pair[1] / "model.safetensors"
    weights = load_file(path)
    if change == "a further key":
        save_file({**weights, "extra": torch.ones(1)}, path, metadata={"format": "pt"})
    if change == "another dtype":
        save_file({k: v.bfloat16() for k, v in weights.items()}, path, metadata={"format": "pt"})
    if change == "another config":
        config = json.loads((pair[1] / "config.json").read_text())
        (pair[1] / "config.json").write_text(json.dumps({**config, "layer_norm_eps": 1e-3}))
    first, second = borrowed_in_turn(NetworkPool(), pair)
    assert second is not first
    assert_equal_to_transformers(second, pair[1])


def test_weights_that_are_not_all_in_the_files_are_never_swapped(tmp_path, minilm):
    """A masked language model is saved without BERT's pooler, which transformers then makes up."""
    network = borrowed(NetworkPool(), build("bert", tmp_path / "0", minilm, head=True))
    assert network.names is None


def test_a_network_that_changes_itself_is_loaded_each_time(neox_pair, monkeypatch):
    """As RWKV does, this one divides weights at its first pass, and then expects them divided."""
    load = networks.load_module

    def load_changing(location, dtype, weights):
        module, hooks = load(location, dtype, weights), []

        def divide(*_):
            hooks.pop().remove()
            module.layers[1].mlp.dense_h_to_4h.weight.div_(2)

        hooks.append(module.register_forward_pre_hook(divide))
        return module

    monkeypatch.setattr(networks, "load_module", load_changing)
    pool, ids = NetworkPool(), torch.arange(20).reshape(2, 10) + 100
    states = []
    for order in ([1], [0, 1]):
        for number in order:
            (network,) = borrowed_in_turn(pool, [neox_pair[number]])
            with torch.inference_mode():
                last = network.module(ids)[0]
        states.append(last)
    assert torch.equal(*states) and not network.is_stable


def test_few_idle_networks_are_kept_and_none_is_given_to_two(tmp_path, minilm, neox):
    pool = NetworkPool()
    assert borrowed(pool, neox) is not borrowed(pool, neox)
    folders = [build(kind, tmp_path / kind, minilm) for kind in ("gpt2", "llama")]
    borrowed_in_turn(pool, [*folders, neox])
    assert len(pool._idle) == 2


def test_broken_weights_after_good_ones_are_named(pair):
    (pair[1] / "model.safetensors").write_bytes(b"nonsense")
    with pytest.raises(DataError, match=str(pair[1])):
        borrowed_in_turn(NetworkPool(), pair)


def test_at_most_one_readable_checkpoint_is_read_ahead(neox_pair, tmp_path):
    first, second = map(at, neox_pair)
    prefetch = Prefetch()
    prefetch.begin(first)
    prefetch._thread.join()
    prefetch.begin(second)
    assert not prefetch.take(first)  # and what was being read is dropped
    assert not prefetch.take(second)
    prefetch._thread.join()
    assert not prefetch._weights
    prefetch.begin(second)
    assert prefetch.take(second).keys() == open_weights(second).keys()
    assert not prefetch._weights
    prefetch.begin(at(tmp_path / "not trained yet"))
    assert not prefetch.take(at(tmp_path / "not trained yet"))
    (tmp_path / "model.safetensors").write_bytes(b"nonsense")
    with pytest.raises(DataError, match="has no complete header"):
        open_weights(at(tmp_path))


def test_weights_that_cannot_be_pinned_are_read_and_logged(neox, monkeypatch, caplog):
    def refused(_):
        raise RuntimeError("CUDA error: out of page-locked memory")

    monkeypatch.setattr(torch.Tensor, "pin_memory", refused)
    prefetch = Prefetch()
    prefetch.begin(at(neox), pin=True)
    assert prefetch.take(at(neox)).keys() == open_weights(at(neox)).keys()
    assert caplog.text.count("out of page-locked memory") == 1


def test_tensors_that_no_parameter_needs_are_not_read_ahead(neox_pair, fresh_pool, monkeypatch):
    first, second = map(at, neox_pair)
    protocol, texts, copied = Protocol(), ["one text", "another one"], []
    monkeypatch.setattr(
        networks, "pinned", lambda tensor: copied.append(tensor.shape) or tensor.clone()
    )
    monkeypatch.setattr(LoadedModel, "_on_gpu", True)
    with LoadedModel(first, protocol, "cpu", second) as model:
        fresh_pool.prefetch._thread.join()
        assert len(copied) == len(model.network.names) == len(open_weights(second)) - 1
    vectors = []
    for _ in range(2):
        with LoadedModel(second, protocol, "cpu") as model:
            vectors.append(encode(model, texts, [3], "mean"))
        fresh_pool._idle.clear()
    assert (vectors[0] == vectors[1]).all()

from __future__ import annotations

import torch

from daskmetrics.config import Protocol
from daskmetrics.models import LoadedModel
from daskmetrics.models._networks import Prefetch, open_weights

from .architectures import at, build, encode


def test_no_more_than_one_checkpoint_is_held(tmp_path, minilm):
    folders = [build("gpt_neox", tmp_path / str(seed), minilm, seed) for seed in (0, 1)]
    prefetch = Prefetch()
    prefetch.begin(at(folders[0]))
    prefetch._thread.join()
    prefetch.begin(at(folders[1]))
    assert prefetch.take(at(folders[0])) is None  # and what was being read is dropped
    assert prefetch.take(at(folders[1])) is None
    prefetch._thread.join()
    assert prefetch._weights is None
    prefetch.begin(at(folders[1]))
    assert prefetch.take(at(folders[1])).keys() == open_weights(at(folders[1])).keys()
    assert prefetch._weights is None


def test_files_that_cannot_be_read_yet_are_not_an_error(tmp_path):
    prefetch = Prefetch()
    prefetch.begin(at(tmp_path / "not trained yet"))
    assert prefetch.take(at(tmp_path / "not trained yet")) is None
    (tmp_path / "model.safetensors").write_bytes(b"nonsense")
    assert open_weights(at(tmp_path)) is None


def test_weights_that_cannot_be_pinned_are_read_all_the_same_and_the_log_says_so(
    tmp_path, minilm, monkeypatch, caplog
):
    def refused(_):
        raise RuntimeError("CUDA error: out of page-locked memory")

    folder = build("gpt_neox", tmp_path, minilm)
    monkeypatch.setattr(torch.Tensor, "pin_memory", refused)
    prefetch = Prefetch()
    prefetch.begin(at(folder), pin=True)
    found = prefetch.take(at(folder))
    assert found and found.keys() == open_weights(at(folder)).keys()
    assert (
        caplog.text.count("no memory could be pinned (CUDA error: out of page-locked memory)") == 1
    )


def test_tensors_that_no_parameter_needs_are_not_read_ahead(
    tmp_path, minilm, fresh_pool, monkeypatch
):
    folders = [build("gpt_neox", tmp_path / str(seed), minilm, seed, head=True) for seed in (0, 1)]
    protocol, texts, copied = Protocol(), ["one text", "another one"], []
    monkeypatch.setattr(
        "daskmetrics.models._networks.pinned",
        lambda each: copied.append(each.shape) or each.clone(),
    )
    monkeypatch.setattr(LoadedModel, "_on_gpu", True)
    with LoadedModel(at(folders[0]), protocol, "cpu", at(folders[1])) as model:
        fresh_pool.prefetch._thread.join()
        assert len(copied) == len(model.network.names) == len(open_weights(at(folders[1]))) - 1
    with LoadedModel(at(folders[1]), protocol, "cpu") as model:
        vectors = encode(model, texts, [3], "mean")
    fresh_pool._idle.clear()
    with LoadedModel(at(folders[1]), protocol, "cpu") as model:
        assert (vectors == encode(model, texts, [3], "mean")).all()

"""What a program waits for while a GPU computes, counted on tensors without numbers."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from daskmetrics.metrics import _eigenvalues, resolve
from daskmetrics.metrics.engine import Reducer
from daskmetrics.models import pool

LAYERS, BATCHES = range(5), 2
ASKS = ("aten::is_nonzero", "aten::item", "aten::_local_scalar_dense")
SOLVES = ("aten::linalg_eigvalsh", "aten::_linalg_eigh")


class Waits(TorchDispatchMode):
    """Counts what a program asks a device for: single numbers, places, copies and solutions."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()

    def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
        kwargs, name = kwargs or {}, operator.name()
        source = next((each for each in args if isinstance(each, torch.Tensor)), None)
        if source is not None and source.is_meta:
            devices = [kwargs.get("device"), *args[1:]]
            if any(isinstance(each, torch.device) and each.type == "cpu" for each in devices):
                self.counts["copies"] += 1
                return torch.zeros(source.shape, dtype=source.dtype)
            if name in ASKS:
                self.counts["numbers"] += 1
                return False
            if "nonzero" in name:
                self.counts["places"] += 1
                return [source.new_zeros(1, dtype=torch.long)] * source.dim()
            if name in SOLVES:
                self.counts["solutions"] += 1
        return operator(*args, **kwargs)


@pytest.mark.parametrize(
    ("metrics", "per_batch"),
    [
        (["prompt_entropy", "curvature", "effective_rank"], {"copies": 1, "solutions": 1}),
        (["prompt_entropy(alpha=2)", "curvature", "effective_rank"], {"copies": 1}),
    ],
    ids=str,
)
def test_a_batch_waits_once_for_all_its_layers(metrics, per_batch):
    """Before, the program waited five times and solved once for each layer."""
    reducer = Reducer(resolve(metrics), LAYERS, prompts=40)
    with Waits() as waits:
        for _batch in range(BATCHES):
            rows = torch.empty(20, dtype=torch.long, device="meta")
            mask = torch.ones(20, 16, dtype=torch.bool, device="meta")
            for layer in LAYERS:
                states = torch.empty(20, 16, 32, dtype=torch.float16, device="meta")
                reducer.add(layer, rows, states, mask, pool(states, mask, "mean"))
    assert dict(waits.counts) == {kind: BATCHES * count for kind, count in per_batch.items()}


def reduced(shuffled: bool = False):
    """All metrics of random states; a repeated token and one far from zero need care."""
    reducer = Reducer(
        resolve(["all", "prompt_entropy(first=false)", "prompt_entropy(variant=paper)"]), (0, 1), 12
    )
    mask = torch.arange(9) < torch.arange(12)[:, None] + 2
    for rows in torch.arange(12).chunk(3):
        for view in range(reducer.views):
            layers = (1, 0) if shuffled else (0, 1)
            for layer in layers:
                generator = torch.Generator().manual_seed(100 * layer + 10 * view + int(rows[0]))
                states = torch.randn(len(rows), 9, 16, generator=generator)
                states[0, 1] = states[0, 0]
                states[1] += 1e5
                reducer.add(layer, rows, states, mask[rows], states[:, 1], view)
    return reducer.finish()


@pytest.mark.parametrize("residual", [False, True])
def test_layers_solved_together_have_the_numbers_of_each_alone(monkeypatch, residual):
    """Also in another order, and where a library leaves a residual."""
    expected = reduced()
    for module in ("_eigenvalues", "_spectra", "engine"):
        monkeypatch.setattr(f"daskmetrics.metrics.{module}.is_queued", lambda tensor: True)
    if residual:
        monkeypatch.setattr(_eigenvalues, "solver", lambda *_: lambda matrix: matrix.sum(-1))
    for shuffled in (False, True):
        found = reduced(shuffled)
        np.testing.assert_array_equal(found.status, expected.status)
        np.testing.assert_allclose(found.values, expected.values, rtol=1e-5, atol=1e-5)

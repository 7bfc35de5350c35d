"""On a GPU: the numbers of a CPU, whichever solver computes the spectra."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from daskmetrics.metrics import resolve
from daskmetrics.metrics._eigenvalues import by_lapack, by_torch, checked, eigenvalues
from daskmetrics.metrics._spectra import gram, unit_rows
from daskmetrics.metrics.engine import Reduced, Reducer
from daskmetrics.models import pool

pytestmark = pytest.mark.cuda
PROMPTS, TOKENS, WIDTH = 40, 48, 96


def reduced(device: str, dtype: torch.dtype) -> Reduced:
    """All metrics of random states, of which four views of a prompt are alike."""
    reducer = Reducer(resolve(["all"]), (0, 1), PROMPTS)
    mask = torch.arange(TOKENS) < torch.randint(
        2, TOKENS + 1, (PROMPTS, 1), generator=torch.manual_seed(0)
    )
    rows, mask = torch.arange(PROMPTS, device=device), mask.to(device)
    for layer in (0, 1):
        generator = torch.Generator().manual_seed(layer)
        states = torch.randn(PROMPTS, TOKENS, WIDTH, generator=generator)
        for view in range(reducer.views):
            seen = (states + 0.3 * torch.randn(states.shape, generator=generator)).to(device, dtype)
            reducer.add(layer, rows, seen, mask, pool(seen, mask, "mean"), view)
    return reducer.finish()


@pytest.mark.parametrize(
    ("dtype", "tolerance"), [("float32", 1e-4), ("float16", 1e-2), ("bfloat16", 5e-2)]
)
def test_all_metrics_are_those_of_a_cpu(dtype, tolerance):
    on_gpu, on_cpu = (reduced(device, getattr(torch, dtype)) for device in ("cuda", "cpu"))
    np.testing.assert_array_equal(on_gpu.status, on_cpu.status)
    np.testing.assert_allclose(on_gpu.values, on_cpu.values, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("size", [8, 33, 48, 128, 256])
@pytest.mark.parametrize("solve", [by_lapack, by_torch])
def test_every_solver_leaves_no_residual(solve, size):
    generator = torch.Generator().manual_seed(size)
    rows = torch.randn(40, size, 300, generator=generator)
    rows[:20, size // 2 :] = rows[:20, : size - size // 2]  # of half the rank
    matrices = gram(unit_rows(rows))
    expected = torch.linalg.eigvalsh(matrices.double())
    found = solve(matrices.cuda())
    assert found.is_cuda
    torch.testing.assert_close(
        checked(matrices.cuda(), found).double().cpu(), expected, rtol=0, atol=1e-4
    )


def test_a_matrix_that_is_not_finite_does_not_affect_its_batch():
    matrices = torch.eye(40, device="cuda").repeat(2, 1, 1)
    matrices[0, 1, 1] = torch.nan
    assert eigenvalues(matrices).sum(-1).tolist() == pytest.approx([0, 40])

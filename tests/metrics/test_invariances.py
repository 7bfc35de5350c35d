"""What holds for every metric of the catalogue, whoever adds the next one."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from daskmetrics.metrics.catalogue import CATALOGUE, Metric

METRICS = pytest.mark.parametrize("metric", CATALOGUE.values(), ids=CATALOGUE)
TOKEN_METRICS = pytest.mark.parametrize(
    "metric", [metric for metric in CATALOGUE.values() if metric.takes == "tokens"], ids=lambda metric: metric.name
)
SEEDS = st.integers(0, 9999)


def draw(
    metric: Metric, seed: int, rows: int = 7, width: int = 5, dtype: torch.dtype = torch.float64
) -> list[torch.Tensor]:
    """Random input of a metric: one prompt of some tokens, some vectors, or two views of them."""
    arrays = 2 if metric.takes == "views" else 1
    states = np.random.default_rng(seed).normal(0.5, 1, size=(arrays, rows, width))
    return list(torch.from_numpy(states).to(dtype))


def value(metric: Metric, arrays: list[torch.Tensor]) -> float:
    if metric.takes == "tokens":
        (states,) = arrays
        return metric.load()(states[None], torch.ones(1, len(states), dtype=torch.bool)).item()
    return metric.load()(*arrays).item()


@METRICS
@given(seed=SEEDS)
def test_order_of_rows_does_not_matter(metric, seed):
    arrays = draw(metric, seed)
    # a path may only be walked backwards
    order = (
        torch.arange(6, -1, -1)
        if metric.name == "curvature"
        else torch.from_numpy(np.random.default_rng(seed).permutation(7))
    )
    assert value(metric, [rows[order] for rows in arrays]) == pytest.approx(value(metric, arrays))


@METRICS
@given(seed=SEEDS)
def test_rotation_does_not_matter(metric, seed):
    arrays = draw(metric, seed)
    turn = torch.from_numpy(np.linalg.qr(np.random.default_rng(seed).normal(size=(5, 5)))[0])
    assert value(metric, [rows @ turn for rows in arrays]) == pytest.approx(value(metric, arrays))


@METRICS
@given(seed=SEEDS, scale=st.sampled_from([1e-30, 1e-6, 3.0, 1e6, 1e30]))
def test_scale_does_not_matter(metric, seed, scale):
    arrays = draw(metric, seed, dtype=torch.float32)
    assert value(metric, [rows * scale for rows in arrays]) == pytest.approx(value(metric, arrays), rel=1e-4, abs=1e-5)


@METRICS
@given(seed=SEEDS, rows=st.integers(1, 4), width=st.integers(1, 3), zero=st.booleans())
def test_any_shape_gives_a_number_or_nan(metric, seed, rows, width, zero):
    arrays = [rows * (not zero) for rows in draw(metric, seed, rows, width)]
    assert not np.isinf(value(metric, arrays))


@METRICS
@pytest.mark.parametrize("poison", [torch.nan, torch.inf, -torch.inf])
def test_what_is_not_finite_gives_nan(metric, poison):
    arrays = draw(metric, 0)
    arrays[0][3, 2] = poison
    assert np.isnan(value(metric, arrays))


@METRICS
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_computed_in_full(metric, dtype):
    arrays = draw(metric, 0, dtype=dtype)
    assert value(metric, arrays) == pytest.approx(value(metric, [rows.double() for rows in arrays]), abs=1e-5)


@TOKEN_METRICS
@given(seed=SEEDS, left=st.integers(0, 4), right=st.integers(0, 9), filler=st.sampled_from([0.0, 1e4, torch.nan]))
def test_padding_does_not_matter(metric, seed, left, right, filler):
    (states,) = draw(metric, seed)
    padded = torch.full((1, left + 7 + right, 5), filler, dtype=torch.float64)
    mask = torch.zeros(padded.shape[:2], dtype=torch.bool)
    padded[0, left : left + 7], mask[0, left : left + 7] = states, True
    assert metric.load()(padded, mask).item() == pytest.approx(value(metric, [states]))


@TOKEN_METRICS
def test_company_in_the_batch_does_not_matter(metric):
    prompts = torch.stack([draw(metric, seed)[0] for seed in range(5)])
    together = metric.load()(prompts, torch.ones(5, 7, dtype=torch.bool))
    np.testing.assert_allclose(together, [value(metric, [prompt]) for prompt in prompts])

"""Properties of every metric of the catalogue and of its variants."""

from __future__ import annotations

import os
from collections.abc import Iterable
from itertools import product

import numpy as np
import pytest
import torch

from daskmetrics.metrics import Metric
from tests.metrics.variants import VARIANTS, draw, value

SEEDS = range(25 if "DASKMETRICS_CASES" in os.environ else 3)

# what grows with the scale of the states, as its definition says
SCALED = {"logdet_covariance", "spectral_norm", "lidar(unit=false, log=true)"}
# whose entries, and not eigenvalues, are cut or multiplied: NxN and DxD have other ones
OF_ENTRIES = {
    "prompt_entropy(alpha=2, variant=paper)",
    "prompt_entropy(variant=paper)",
    "dataset_entropy(variant=paper)",
    "dataset_entropy(alpha=2, variant=paper)",
    "dime(variant=paper)",
}
SCALED |= {"infonce(variant=paper)", "dataset_entropy(alpha=2, variant=paper)"}
# what counts each prompt as another one, or the prompts themselves
COUNTED = {"infonce", "anisotropy", "uniformity", "dime", "cka_next(debiased=true)", "rankme"}


def parametrized(metrics: Iterable[Metric]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("metric", metrics, ids=lambda metric: metric.name)


def all_but(names: set[str]) -> pytest.MarkDecorator:
    return parametrized([metric for metric in VARIANTS if metric.name not in names])


METRICS = parametrized(VARIANTS)


def same(number: float, **tolerance: float) -> object:
    return pytest.approx(number, nan_ok=True, **tolerance)


# DiME as published permutes dimensions, or prompts as they come; the first token is one of its own
@all_but({"dime(variant=paper)", "prompt_entropy(first=false)"})
def test_the_order_of_rows_does_not_matter(metric):
    for seed in SEEDS:
        arrays, order = draw(metric, seed), np.random.default_rng(seed).permutation(7)
        if metric.name.startswith("curvature"):
            order = np.arange(7)[::-1].copy()  # a path may only be walked backwards
        assert value(metric, [rows[order] for rows in arrays]) == same(value(metric, arrays))


@all_but(OF_ENTRIES)
def test_rotation_does_not_matter(metric):
    for seed in SEEDS:
        arrays = draw(metric, seed)
        turn = torch.from_numpy(np.linalg.qr(np.random.default_rng(seed).normal(size=(5, 5)))[0])
        assert value(metric, [rows @ turn for rows in arrays]) == same(value(metric, arrays))


@all_but(SCALED)
def test_scale_does_not_matter(metric):
    arrays = draw(metric, 0, dtype=torch.float32)
    for scale in (1e-30, 1e-6, 3.0, 1e6, 1e30):
        scaled = value(metric, [rows * scale for rows in arrays])
        assert scaled == pytest.approx(value(metric, arrays), rel=1e-4, abs=1e-5)


@METRICS
def test_values_that_are_not_finite_give_nan(metric):
    arrays = draw(metric, 0)
    for poison in (torch.nan, torch.inf, -torch.inf):
        arrays[0][3, 2] = poison
        assert np.isnan(value(metric, arrays))


@METRICS
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_half_precision_is_computed_in_full(metric, dtype):
    arrays = draw(metric, 0, dtype=dtype)
    wide = [rows.double() for rows in arrays]
    assert value(metric, arrays) == pytest.approx(value(metric, wide), abs=1e-5)


def counts_rows(metric: Metric) -> bool:
    """Whether it is of a path, of pairs of different prompts, or counts prompts."""
    family = metric.name.partition("(")[0]
    is_counted = bool({metric.name, family} & COUNTED) or family == "curvature"
    return is_counted or any(word in metric.name for word in ("norm", "paper", "first"))


@parametrized([metric for metric in VARIANTS if not counts_rows(metric)])
def test_duplicated_rows_change_nothing(metric):
    for seed, times in product(SEEDS, (2, 3)):
        arrays = draw(metric, seed)
        repeated = value(metric, [rows.repeat(times, 1) for rows in arrays])
        assert repeated == same(value(metric, arrays), rel=1e-5, abs=1e-9)


@METRICS
def test_degenerate_rows_give_a_number_or_nan(metric):
    """Few, zero or equal ones, of one dimension, of low rank, or of a huge norm."""
    for rows, width, zero in product((1, 2, 3, 4), (1, 2, 3), (0.0, 1.0)):
        arrays = [zero * states for states in draw(metric, rows, rows, width)]
        assert not np.isinf(value(metric, arrays))
    for seed, huge, dtype in product(SEEDS, (1.0, 1e30), (torch.float64, torch.float32)):
        rng = np.random.default_rng(seed)
        rank = 1 + seed % 2
        thin = torch.from_numpy(rng.normal(size=(5, rank)) @ rng.normal(size=(rank, 5))).to(dtype)
        arrays = draw(metric, seed, dtype=dtype)
        assert not np.isinf(value(metric, [huge * (rows @ thin) for rows in arrays]))
        assert not np.isinf(value(metric, [huge * rows[:1].expand(7, 5) for rows in arrays]))
    zeros = value(metric, [torch.zeros(7, 5) for _ in draw(metric, 0)])
    assert np.isnan(zeros) or (metric.name.startswith("infonce") and zeros > 0)  # at chance then


def subtracts_the_mean(metric: Metric) -> bool:
    """Whether the mean is that of all prompts, which differs by order 1 / P without one."""
    return bool(dict(metric.settings).get("centred"))


@parametrized([each for each in VARIANTS if each.jackknife and not subtracts_the_mean(each)])
@pytest.mark.parametrize("zero", [False, True])
def test_leave_one_out_equals_the_metric_without_each_prompt(metric, zero):
    for rows in range(3, 10):
        arrays = draw(metric, rows, rows)
        if zero:
            arrays[0][1] = 0
        without = metric.load()(*arrays, leave_one_out=True)
        for left_out in range(rows):
            kept = [i for i in range(rows) if i != left_out]
            expected = value(metric, [array[kept] for array in arrays])
            assert without[left_out].item() == same(expected, rel=1e-7, abs=1e-12)

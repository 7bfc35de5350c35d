"""Properties of every metric of the catalogue and of its variants."""

from collections.abc import Iterable

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from daskmetrics.metrics import Metric, resolve

OF_ENTROPIES = """
alpha=2|alpha=0.5|centred=false|norm=logN|norm=logNlogD|norm=maxEntropy|variant=paper
"""
OTHERS = """
dataset_entropy(variant=paper, alpha=2)|curvature(k=2)|curvature(variant=paper)
effective_rank(squared=true)|effective_rank(centred=false)|rankme(eps=0)
infonce(temperature=0.5)|infonce(centred=true)|infonce(variant=paper)
intrinsic_dimension(fit=likelihood)
lidar(views=2)|lidar(unit=false, log=true)|lidar(relative=true)
dime(alpha=2)|dime(variant=paper)|cka_next(debiased=true)|stable_rank(centred=true)
"""


def words(text: str) -> list[str]:
    return text.strip().replace("\n", "|").split("|")


VARIANTS = resolve(
    [
        "all",
        *(f"prompt_entropy({settings})" for settings in words(OF_ENTROPIES)),
        *(f"dataset_entropy({settings})" for settings in words(OF_ENTROPIES)),
        *words(OTHERS),
    ]
)
# what grows with the scale of the states, as its definition says
SCALED = {"logdet_covariance", "spectral_norm", "lidar(unit=false, log=true)"}
SCALED |= {"infonce(variant=paper)", "dataset_entropy(alpha=2, variant=paper)"}
# NxN and DxD are not of one rotation or order once their entries, not their eigenvalues, are cut or
# multiplied
TURNED = {"prompt_entropy(variant=paper)", "dataset_entropy(variant=paper)", "dime(variant=paper)"}
TURNED |= {"dataset_entropy(alpha=2, variant=paper)"}
# what counts each prompt as another one, or the prompts themselves
COUNTED = {"infonce", "anisotropy", "uniformity", "dime", "cka_next(debiased=true)", "rankme"}


def parametrized(metrics: Iterable[Metric]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("metric", metrics, ids=lambda metric: metric.name)


def all_but(names: set[str]) -> pytest.MarkDecorator:
    return parametrized([metric for metric in VARIANTS if metric.name not in names])


METRICS = parametrized(VARIANTS)
TOKEN_METRICS = parametrized([metric for metric in VARIANTS if metric.takes == "tokens"])
FEW = settings(max_examples=settings.default.max_examples // 4)  # of very many variants
SEEDS = st.integers(0, 9999)


def draw(
    metric: Metric, seed: int, rows: int = 7, width: int = 5, dtype: torch.dtype = torch.float64
) -> list[torch.Tensor]:
    """Random input of a metric: one prompt of some tokens, some vectors, views of them, or two
    layers.
    """
    arrays = 2 if metric.takes == "layers" else metric.views
    states = np.random.default_rng(seed).normal(0.5, 1, size=(arrays, rows, width))
    return list(torch.from_numpy(states).to(dtype))


def value(metric: Metric, arrays: list[torch.Tensor]) -> float:
    if metric.takes == "tokens":
        (states,) = arrays
        return metric.load()(states[None], torch.ones(1, len(states), dtype=torch.bool)).item()
    return metric.load()(*arrays).item()


def same(number: float, **tolerance: float) -> object:
    return pytest.approx(number, nan_ok=True, **tolerance)


@all_but({"dime(variant=paper)"})  # which permutes dimensions, or prompts as they come
@FEW
@given(seed=SEEDS)
def test_order_of_rows_does_not_matter(metric, seed):
    arrays = draw(metric, seed)
    # a path may only be walked backwards
    order = (
        torch.arange(6, -1, -1)
        if metric.name.startswith("curvature")
        else torch.from_numpy(np.random.default_rng(seed).permutation(7))
    )
    assert value(metric, [rows[order] for rows in arrays]) == same(value(metric, arrays))


@all_but(TURNED)
@FEW
@given(seed=SEEDS)
def test_rotation_does_not_matter(metric, seed):
    arrays = draw(metric, seed)
    turn = torch.from_numpy(np.linalg.qr(np.random.default_rng(seed).normal(size=(5, 5)))[0])
    assert value(metric, [rows @ turn for rows in arrays]) == same(value(metric, arrays))


@all_but(SCALED)
@FEW
@given(seed=SEEDS, scale=st.sampled_from([1e-30, 1e-6, 3.0, 1e6, 1e30]))
def test_scale_does_not_matter(metric, seed, scale):
    arrays = draw(metric, seed, dtype=torch.float32)
    assert value(metric, [rows * scale for rows in arrays]) == pytest.approx(
        value(metric, arrays), rel=1e-4, abs=1e-5
    )


@METRICS
@FEW
@given(seed=SEEDS, rows=st.integers(1, 4), width=st.integers(1, 3), zero=st.booleans())
def test_any_shape_gives_a_number_or_nan(metric, seed, rows, width, zero):
    arrays = [rows * (not zero) for rows in draw(metric, seed, rows, width)]
    assert not np.isinf(value(metric, arrays))


@METRICS
def test_values_that_are_not_finite_give_nan(metric):
    arrays = draw(metric, 0)
    for poison in (torch.nan, torch.inf, -torch.inf):
        arrays[0][3, 2] = poison
        assert np.isnan(value(metric, arrays))


@METRICS
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_computed_in_full(metric, dtype):
    arrays = draw(metric, 0, dtype=dtype)
    assert value(metric, arrays) == pytest.approx(
        value(metric, [rows.double() for rows in arrays]), abs=1e-5
    )


def counts_rows(metric: Metric) -> bool:
    """Whether it is of a path, of pairs of different prompts, or counts prompts."""
    family = metric.name.partition("(")[0]
    is_counted = bool({metric.name, family} & COUNTED) or family == "curvature"
    return is_counted or "norm" in metric.name or "paper" in metric.name


@parametrized([metric for metric in VARIANTS if not counts_rows(metric)])
@FEW
@given(seed=SEEDS, times=st.integers(2, 3))
def test_duplicated_rows_change_nothing(metric, seed, times):
    arrays = draw(metric, seed)
    assert value(metric, [rows.repeat(times, 1) for rows in arrays]) == same(
        value(metric, arrays), rel=1e-5, abs=1e-9
    )


@METRICS
@FEW
@given(seed=SEEDS, rank=st.integers(1, 2), huge=st.sampled_from([1.0, 1e30]))
def test_rank_deficiency_equal_rows_and_huge_norms_give_a_number_or_nan(metric, seed, rank, huge):
    rng = np.random.default_rng(seed)
    for arrays in (draw(metric, seed), draw(metric, seed, dtype=torch.float32)):
        thin = torch.from_numpy(rng.normal(size=(5, rank)) @ rng.normal(size=(rank, 5))).to(
            arrays[0].dtype
        )
        assert not np.isinf(value(metric, [huge * (rows @ thin) for rows in arrays]))
        assert not np.isinf(value(metric, [huge * rows[:1].expand(7, 5) for rows in arrays]))


@METRICS
def test_zero_vectors_are_never_a_silent_zero(metric):
    number = value(metric, [torch.zeros(7, 5) for _ in draw(metric, 0)])
    assert np.isnan(number) or metric.name.startswith("infonce")  # which is at chance then
    assert number != 0


@TOKEN_METRICS
@FEW
@given(
    seed=SEEDS,
    left=st.integers(0, 4),
    right=st.integers(0, 9),
    filler=st.sampled_from([0.0, 1e4, torch.nan]),
)
def test_padding_does_not_matter(metric, seed, left, right, filler):
    (states,) = draw(metric, seed)
    padded = torch.full((1, left + 7 + right, 5), filler, dtype=torch.float64)
    mask = torch.zeros(padded.shape[:2], dtype=torch.bool)
    padded[0, left : left + 7], mask[0, left : left + 7] = states, True
    assert metric.load()(padded, mask).item() == same(value(metric, [states]))


def subtracts_the_mean(metric: Metric) -> bool:
    """Whether the mean is that of all prompts, which differs by order 1 / P without one."""
    return bool(metric.settings and dict(metric.settings).get("centred"))


@parametrized([each for each in VARIANTS if each.jackknife and not subtracts_the_mean(each)])
@FEW
@given(seed=SEEDS, rows=st.integers(3, 9), zero=st.booleans())
def test_leave_one_out_equals_the_metric_without_each_prompt(metric, seed, rows, zero):
    arrays = draw(metric, seed, rows)
    if zero:
        arrays[0][1] = 0
    without = metric.load()(*arrays, leave_one_out=True)
    others = [[i for i in range(rows) if i != left_out] for left_out in range(rows)]
    expected = [metric.load()(*(array[kept] for array in arrays)).item() for kept in others]
    np.testing.assert_allclose(without, expected, rtol=1e-7, atol=1e-12)

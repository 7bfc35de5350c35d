"""The metrics that are functions of a spectrum, each against a loop written from its paper, and the
test vectors.
"""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from daskmetrics.checkpoints.locations import Location
from daskmetrics.config import Protocol
from daskmetrics.core import corpus as corpus
from daskmetrics.metrics import resolve
from daskmetrics.metrics._spectra import of_pooled
from daskmetrics.metrics.registry import CATALOGUE
from daskmetrics.models import LoadedModel, pool

SHAPE = {"prompts": st.integers(2, 20), "width": st.integers(1, 20), "seed": st.integers(0, 999)}


def singular(vectors: np.ndarray, centred: bool) -> list[float]:
    sigma = np.linalg.svd(vectors - vectors.mean(0) * centred, compute_uv=False)
    return [float(value) for value in sigma if value > 1e-9 * sigma[0]]


def covariance(vectors: np.ndarray) -> np.ndarray:
    rest = vectors - vectors.mean(0)
    return sum(np.outer(row, row) for row in rest) / len(rest)


def entropy(shares: list[float]) -> float:
    return -sum(share * math.log(share) for share in shares)


def effective_rank(vectors: np.ndarray) -> float:
    sigma = singular(vectors, centred=True)
    return math.exp(entropy([value / sum(sigma) for value in sigma]))


def rankme(vectors: np.ndarray) -> float:
    sigma = np.linalg.svd(vectors, compute_uv=False)
    return math.exp(entropy([value / sigma.sum() + 1e-7 for value in sigma]))


def participation_ratio(vectors: np.ndarray) -> float:
    matrix = covariance(vectors)
    return np.trace(matrix) ** 2 / np.trace(matrix @ matrix)


def stable_rank(vectors: np.ndarray) -> float:
    return sum(entry**2 for entry in vectors.flat) / np.linalg.norm(vectors, 2) ** 2


def nesum(vectors: np.ndarray) -> float:
    values = np.linalg.eigvalsh(covariance(vectors))
    return sum(value / values[-1] for value in values)


def alpha_req(vectors: np.ndarray) -> float:
    sigma = singular(vectors, centred=True)
    if len(sigma) < 2:
        return math.nan
    return -np.polyfit(np.log(np.arange(1, len(sigma) + 1)), 2 * np.log(sigma), 1)[0]


def logdet_covariance(vectors: np.ndarray) -> float:
    return np.linalg.slogdet(covariance(vectors) + 1e-6 * np.eye(vectors.shape[1]))[1]


def spectral_norm(vectors: np.ndarray) -> float:
    return np.linalg.norm(covariance(vectors), 2)


LOOPS = [
    effective_rank,
    rankme,
    participation_ratio,
    stable_rank,
    nesum,
    alpha_req,
    logdet_covariance,
    spectral_norm,
]


def value(name: str, vectors: torch.Tensor) -> float:
    return resolve([name])[0].load()(vectors).item()


def rows_with(*sigma: float) -> torch.Tensor:
    """Rows that are centred already and have these singular values, times the root of two."""
    half = torch.diag(torch.tensor(sigma, dtype=torch.float64))
    return torch.cat([half, -half])


@pytest.mark.parametrize("naive", LOOPS, ids=lambda naive: naive.__name__)
@given(**SHAPE)
def test_agrees_with_the_loop(naive, prompts, width, seed):
    vectors = np.random.default_rng(seed).normal(1, 1, size=(prompts, width))
    expected = naive(vectors)
    assert value(naive.__name__, torch.from_numpy(vectors)) == pytest.approx(
        expected, rel=1e-6, abs=1e-8, nan_ok=True
    )


@given(**SHAPE)
def test_variants_agree_with_the_loop(prompts, width, seed):
    vectors = np.random.default_rng(seed).normal(1, 1, size=(prompts, width))
    rows, sigma, own = torch.from_numpy(vectors), singular(vectors, True), singular(vectors, False)
    shares = [each**2 / sum(s**2 for s in sigma) for each in sigma]
    assert value("effective_rank(squared=true)", rows) == pytest.approx(math.exp(entropy(shares)))
    assert value("effective_rank(centred=false)", rows) == pytest.approx(
        math.exp(entropy([each / sum(own) for each in own]))
    )
    assert value("stable_rank(centred=true)", rows) == pytest.approx(nesum(vectors))
    assert value("participation_ratio(centred=false)", rows) == pytest.approx(
        sum(s**2 for s in own) ** 2 / sum(s**4 for s in own)
    )
    assert value("rankme(eps=0)", rows) == pytest.approx(
        value("effective_rank(centred=false)", rows)
    )


def test_diag_3_1():
    rows = rows_with(3, 1)
    assert value("effective_rank", rows) == pytest.approx(1.754765, abs=1e-6)
    assert value("effective_rank(squared=true)", rows) == pytest.approx(1.384145, abs=1e-6)
    assert value("participation_ratio", rows) == pytest.approx(1.219512, abs=1e-6)
    assert value("stable_rank", rows) == value("nesum", rows) == pytest.approx(10 / 9)
    assert value("rankme", torch.diag(torch.tensor([3.0, 1.0]))) == pytest.approx(
        1.754765, abs=1e-5
    )


def test_power_law_of_one_and_a_half():
    rank = torch.arange(1, 31, dtype=torch.float64)
    assert value("alpha_req", rows_with(*rank.pow(-0.75).tolist())) == pytest.approx(1.5)


@pytest.mark.parametrize("naive", LOOPS, ids=lambda naive: naive.__name__)
def test_one_prompt_and_equal_prompts_have_no_covariance(naive):
    for rows in (torch.ones(1, 4), torch.full((5, 3), 0.1), torch.zeros(3, 3)):
        got = value(naive.__name__, rows)
        defined = naive in (rankme, stable_rank) and rows.any()
        assert got == pytest.approx(1, abs=1e-4) if defined else math.isnan(got)


DTYPES = (torch.float16, torch.bfloat16)
HALVES = pytest.mark.parametrize("dtype", DTYPES, ids=str)


def power_law(prompts: int, width: int, alpha: float) -> torch.Tensor:
    """Rows in random directions, with a mean, whose covariance has the eigenvalues i^-alpha."""
    rng, count = np.random.default_rng(0), min(prompts, width)
    left, right = (np.linalg.qr(rng.normal(size=(n, count)))[0] for n in (prompts, width))
    rows = left * np.arange(1, count + 1) ** (-alpha / 2) @ right.T + rng.normal(size=width) / 100
    return torch.from_numpy(rows).float()


@HALVES
@given(
    shape=st.sampled_from([(100, 384), (300, 100), (128, 512), (600, 128)]),
    alpha=st.floats(0.5, 4),
)
def test_half_precision_keeps_the_exponent_of_a_power_law(dtype, shape, alpha):
    rows = power_law(*shape, alpha)
    rounded = rows.to(dtype)
    assert value("alpha_req", rounded) == pytest.approx(value("alpha_req", rows), rel=0.02)


def test_half_precision_keeps_the_exponent_of_a_real_encoder(minilm):
    wide, halves = torch.empty(7, 512, 384), {dtype: torch.empty(7, 512, 384) for dtype in DTYPES}

    def take(layer: int, rows: torch.Tensor, states: torch.Tensor, mask: torch.Tensor) -> None:
        wide[layer, rows] = pool(states, mask, "mean")
        for dtype, vectors in halves.items():
            vectors[layer, rows] = pool(states.to(dtype), mask, "mean")

    with LoadedModel(
        Location(str(minilm), None, "minilm"), Protocol(max_length=16), "cpu"
    ) as model:
        model.read(corpus.prompts("stdlib", 512, 0), range(7), take)
    alpha_req = CATALOGUE["alpha_req"].load()
    for dtype, vectors in halves.items():
        for layer in range(7):
            for prompts in (100, 512):  # fewer and more than dimensions
                exact = alpha_req(wide[layer, :prompts]).item()
                rounded = alpha_req(
                    of_pooled(vectors[layer, :prompts], torch.finfo(dtype).eps)
                ).item()
                assert rounded == pytest.approx(exact, rel=0.01), (dtype, layer, prompts)


@HALVES
@pytest.mark.parametrize("shape", [(100, 384), (600, 384)], ids=str)
def test_half_precision_changes_no_other_metric_of_a_usual_spectrum(dtype, shape):
    rows = power_law(*shape, 1.5)
    for name in (
        "effective_rank",
        "rankme",
        "participation_ratio",
        "stable_rank",
        "nesum",
        "spectral_norm",
    ):
        assert value(name, rows.to(dtype)) == pytest.approx(value(name, rows), rel=0.01), name


@HALVES
def test_vectors_closer_than_their_rounding_count_once(dtype):
    rows = torch.randn(200, 5, generator=torch.Generator().manual_seed(0)) @ torch.randn(5, 20)
    rows = rows.to(dtype)
    wide = torch.cat([rows.double(), rows.double() * (1 + torch.finfo(dtype).eps / 4)])
    apart = CATALOGUE["intrinsic_dimension"].load()(of_pooled(wide, torch.finfo(dtype).eps))
    assert apart.item() == pytest.approx(value("intrinsic_dimension", rows), rel=0.02)


@pytest.mark.parametrize("naive", LOOPS, ids=lambda naive: naive.__name__)
def test_float32_has_no_floor_but_that_of_the_decomposition(naive):
    rows = power_law(60, 40, 3)
    exact = CATALOGUE[naive.__name__].load()(of_pooled(rows, 0.0))
    assert value(naive.__name__, rows) == exact.item()

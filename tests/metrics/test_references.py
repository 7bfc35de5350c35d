"""Every metric, and what its parameters change, against a loop in float64 written from its paper;
and the numbers that are known without one.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from daskmetrics.metrics import resolve
from daskmetrics.metrics.prompt_entropy import prompt_entropy as prompt_entropy_of
from daskmetrics.metrics.registry import CATALOGUE
from tests.metrics.variants import VARIANTS, value

NAN = math.nan


def unit(rows: np.ndarray) -> np.ndarray:
    return np.array([row / np.linalg.norm(row) for row in rows])


def covariance(vectors: np.ndarray) -> np.ndarray:
    rest = vectors - vectors.mean(0)
    return sum(np.outer(row, row) for row in rest) / len(rest)


def singular(vectors: np.ndarray, centred: bool) -> np.ndarray:
    sigma = np.linalg.svd(vectors - vectors.mean(0) * centred, compute_uv=False)
    return sigma[sigma > 1e-9 * sigma[0]]


def renyi(weights: np.ndarray, alpha: float = 1.0) -> float:
    """Rényi's entropy (1961) of weights that need not sum to one; of order 1 it is Shannon's."""
    if weights.sum() < 1e-12:
        return NAN
    shares = [weight / weights.sum() for weight in weights if weight > 1e-12 * weights.sum()]
    if alpha == 1:
        return -sum(share * math.log(share) for share in shares)
    return math.log(sum(share**alpha for share in shares)) / (1 - alpha)


def of_matrix(
    rows: np.ndarray, alpha: float = 1, norm: str = "none", variant: str = "corrected"
) -> float:
    """Entropy of Giraldo et al. (2015), or as the code published with Layer by Layer has it."""
    matrix = rows @ rows.T
    if variant == "paper":
        if len(rows) > rows.shape[1]:
            matrix = rows.T @ rows
        matrix = np.maximum(matrix, 0)
    entropy = renyi(np.maximum(np.linalg.eigvalsh(matrix), 0), alpha)
    if variant == "paper" and alpha == 2:
        entropy = math.log(len(matrix) ** 2 / sum(entry**2 for entry in matrix.flat))
    log_n, log_d = np.log(rows.shape)
    divisors = {"logN": log_n, "logD": log_d, "logNlogD": log_n * log_d}
    divisor = {"none": 1.0, "maxEntropy": min(log_n, log_d), **divisors}[norm]
    return entropy / divisor if divisor else NAN


def prompt_entropy(
    tokens: np.ndarray, centred: bool = True, first: bool = True, **settings: object
) -> float:
    """Wei et al. (2024)."""
    rows = tokens if first else tokens[1:]
    return of_matrix(unit(rows - rows.mean(0) * centred), **settings)


def dataset_entropy(vectors: np.ndarray, centred: bool = True, **settings: object) -> float:
    """Skean et al. (2025), of directions; the published code takes the vectors as they are."""
    if settings.get("variant") == "paper":
        return of_matrix(vectors, **settings)
    rows = unit(vectors)
    return of_matrix(rows - rows.mean(0) * centred, **settings)


def curvature(tokens: np.ndarray, k: int = 1, variant: str = "corrected") -> float:
    """Hosseini and Fedorenko (2023); the code published with Layer by Layer takes states."""
    pairs = itertools.pairwise(tokens)
    rows = [after - before for before, after in pairs if (after != before).any()]
    if variant == "paper":
        rows = tokens - tokens.mean(0)
    units = unit(rows)
    angles = [math.acos(np.clip(u @ v, -1, 1)) for u, v in zip(units, units[k:], strict=False)]
    return sum(angles) / len(angles)


def effective_rank(vectors: np.ndarray, centred: bool = True, squared: bool = False) -> float:
    """Roy and Vetterli (2007)."""
    return math.exp(renyi(singular(vectors, centred) ** (1 + squared)))


def rankme(vectors: np.ndarray, eps: float = 1e-7) -> float:
    """Garrido et al. (2023), equation 1."""
    shares = [sigma / singular(vectors, False).sum() + eps for sigma in singular(vectors, False)]
    return math.exp(-sum(share * math.log(share) for share in shares))


def participation_ratio(vectors: np.ndarray, centred: bool = True) -> float:
    values = singular(vectors, centred) ** 2
    return sum(values) ** 2 / sum(values**2)


def stable_rank(vectors: np.ndarray, centred: bool = False) -> float:
    rest = vectors - vectors.mean(0) * centred
    return sum(entry**2 for entry in rest.flat) / np.linalg.norm(rest, 2) ** 2


def nesum(vectors: np.ndarray) -> float:
    """He and Ozay (2022)."""
    values = np.linalg.eigvalsh(covariance(vectors))
    return sum(value / values[-1] for value in values)


def alpha_req(vectors: np.ndarray) -> float:
    """Agrawal et al. (2022)."""
    sigma = singular(vectors, True)
    if len(sigma) < 2:
        return NAN
    return -np.polyfit(np.log(np.arange(1, len(sigma) + 1)), 2 * np.log(sigma), 1)[0]


def logdet_covariance(vectors: np.ndarray) -> float:
    return np.linalg.slogdet(covariance(vectors) + 1e-6 * np.eye(vectors.shape[1]))[1]


def spectral_norm(vectors: np.ndarray) -> float:
    return np.linalg.norm(covariance(vectors), 2)


def anisotropy(vectors: np.ndarray) -> float:
    """Ethayarajh (2019), over all pairs."""
    cosines = [u @ v for u, v in itertools.combinations(unit(vectors), 2)]
    return sum(cosines) / len(cosines)


def uniformity(vectors: np.ndarray, t: float = 2.0) -> float:
    """Wang and Isola (2020), over all pairs."""
    pairs = list(itertools.combinations(unit(vectors), 2))
    return math.log(sum(math.exp(-t * np.sum((x - y) ** 2)) for x, y in pairs) / len(pairs))


def alignment(first: np.ndarray, second: np.ndarray, power: float = 2.0) -> float:
    """Wang and Isola (2020)."""
    pairs = zip(unit(first), unit(second), strict=True)
    return sum(np.linalg.norm(x - y) ** power for x, y in pairs) / len(first)


def infonce(
    *views: np.ndarray, temperature: float = 0.1, centred: bool = False, variant: str = ""
) -> float:
    """Chen et al. (2020), equation 1; the published code does not scale the vectors."""
    z = np.concatenate(views)
    z = z - z.mean(0) * centred
    if variant != "paper":
        z = unit(z)
    count, total = len(z), 0.0
    for i in range(count):
        others = [z[i] @ z[k] / temperature for k in range(count) if k != i]
        total += np.logaddexp.reduce(others) - z[i] @ z[(i + count // 2) % count] / temperature
    return total / count


def intrinsic_dimension(points: np.ndarray, fit: str = "line", discarded: float = 0.1) -> float:
    """Facco et al. (2017)."""
    logarithms = []
    for point in points:
        near = sorted(float(np.linalg.norm(point - other)) for other in points)[1:3]
        logarithms.append(math.log(near[1] / near[0]))
    logarithms.sort()
    count = len(points)
    if fit == "likelihood":
        return (count - 1) / sum(logarithms)
    kept = min(int(count * (1 - discarded)), count - 1)
    pairs = [(logarithms[i], -math.log(1 - (i + 1) / count)) for i in range(kept)]
    return sum(x * y for x, y in pairs) / sum(x * x for x, _ in pairs)


def lidar(*arrays: np.ndarray, views: int = 4, **settings: bool) -> float:
    """Thilak et al. (2024), equations 1 to 3."""
    stacked = np.stack(arrays)
    if settings.get("unit", True):
        stacked = stacked / np.linalg.norm(stacked, axis=-1, keepdims=True)
    q, prompts, width = stacked.shape
    mean, means = stacked.mean((0, 1)), stacked.mean(0)
    between, within = np.zeros((2, width, width))
    for i in range(prompts):
        between += np.outer(means[i] - mean, means[i] - mean) / prompts
        for j in range(q):
            rest = stacked[j, i] - means[i]
            within += np.outer(rest, rest) / (prompts * q)
    ridge = 1e-4 * (np.trace(within) / width if settings.get("relative") else 1)
    values, vectors = np.linalg.eigh(within + ridge * np.eye(width))
    if not values.all():
        return NAN
    root = vectors @ np.diag(values**-0.5) @ vectors.T
    entropy = renyi(np.linalg.eigvalsh(root @ between @ root))
    return entropy if settings.get("log") else math.exp(entropy)


def dime(
    first: np.ndarray, second: np.ndarray, alpha: float = 1.0, variant: str = "corrected"
) -> float:
    """Skean et al. (2023), over the permutations of seed 0."""
    matrices = [unit(rows) @ unit(rows).T for rows in (first, second)]
    if variant == "paper":
        wide = len(first) <= first.shape[1]
        matrices = [rows @ rows.T if wide else rows.T @ rows for rows in (first, second)]
    else:  # the value does not depend on the order of the prompts
        likeness = sum((matrix**2).sum(1) for matrix in matrices)
        order = torch.from_numpy(likeness).argsort().numpy()
        matrices = [matrix[order][:, order] for matrix in matrices]
    a, b = matrices
    generator, apart = torch.Generator().manual_seed(0), 0.0
    for _ in range(10):
        turn = np.eye(len(a))[torch.randperm(len(a), generator=generator).numpy()]
        apart += renyi(np.linalg.eigvalsh(a * (turn @ b @ turn.T)), alpha) / 10
    return apart - renyi(np.linalg.eigvalsh(a * b), alpha)


def cka_next(here: np.ndarray, following: np.ndarray, debiased: bool = False) -> float:
    """Kornblith et al. (2019), equation 3; unbiased as in Song et al. (2012), equation 5."""
    n = len(here)
    h = np.eye(n) - np.ones((n, n)) / n

    def product(k: np.ndarray, other: np.ndarray) -> float:
        if not debiased:
            return np.trace(k @ h @ other @ h)
        k, other = k - np.diag(np.diag(k)), other - np.diag(np.diag(other))
        mixed = k.sum() * other.sum() / ((n - 1) * (n - 2))
        return np.trace(k @ other) + mixed - 2 / (n - 2) * (k @ other).sum()

    k, other = here @ here.T, following @ following.T
    norms = product(k, k) * product(other, other)
    return product(k, other) / math.sqrt(norms) if norms > 0 else NAN


LOOPS = {name: globals()[name] for name in CATALOGUE}  # without a loop, this is an error


@pytest.mark.parametrize("metric", VARIANTS, ids=lambda metric: metric.name)
@given(rows=st.integers(5, 14), width=st.integers(1, 14), seed=st.integers(0, 999))
def test_a_metric_agrees_with_its_loop(metric, rows, width, seed):
    count = 2 if metric.takes == "layers" else metric.views
    arrays = np.random.default_rng(seed).normal(1, 1, size=(count, rows, width))
    expected = LOOPS[metric.name.partition("(")[0]](*arrays, **dict(metric.settings))
    got = value(metric, list(torch.from_numpy(arrays)))
    assert got == pytest.approx(expected, rel=1e-6, abs=1e-7, nan_ok=True)


EQUICORRELATED = torch.linalg.cholesky(0.5 + 0.5 * torch.eye(4, dtype=torch.float64))
CROSS = torch.tensor([[1.0, 0.0], [0.0, 10.0], [-1.0, 0.0], [0.0, -10.0]])
ZERO_BETWEEN = torch.tensor([[1.0, 0], [0, 0], [1, 1]])


@pytest.mark.parametrize(
    ("call", "arrays", "expected"),
    [
        ("prompt_entropy(centred=false)", [EQUICORRELATED], 1.073543),  # published
        ("prompt_entropy(centred=false, alpha=2)", [EQUICORRELATED], 0.826679),
        ("dataset_entropy", [CROSS], math.log(2)),  # directions are taken before the mean
        ("rankme", [torch.ones(1, 4)], 1),
        ("stable_rank", [torch.full((5, 3), 0.1)], 1),
        ("anisotropy", [ZERO_BETWEEN], math.sqrt(0.5)),  # zero has no direction
        ("dime", [torch.ones(5, 3)] * 2, 0),
    ],
)
def test_known_values_beside_those_of_the_docstrings(call, arrays, expected):
    assert value(call, arrays) == pytest.approx(expected, abs=1e-5)


ONE, EQUAL, UNDIRECTED = torch.ones(1, 4), torch.full((7, 4), 0.1), torch.zeros(4, 4)
UNDEFINED_FOR_ALL_THREE = (
    "prompt_entropy",
    "dataset_entropy",
    "curvature",
    "effective_rank",
    "participation_ratio",
    "nesum",
    "alpha_req",
    "logdet_covariance",
    "spectral_norm",
    "intrinsic_dimension",
    "lidar",
)


@pytest.mark.parametrize("rows", [ONE, EQUAL, UNDIRECTED], ids=["one", "equal", "zero"])
@pytest.mark.parametrize("name", UNDEFINED_FOR_ALL_THREE)
def test_one_row_and_equal_rows_have_no_value(name, rows):
    assert math.isnan(value(name, [rows] * CATALOGUE[name].views))


@pytest.mark.parametrize(
    ("call", "arrays"),
    [
        ("dataset_entropy", [torch.tensor([[1.0, 3.0], [2.0, 6.0], [0.5, 1.5]])]),
        ("curvature", [torch.eye(3)[[0, 0, 1, 1]]]),  # one step
        ("anisotropy", [ONE]),
        ("anisotropy", [torch.diag(torch.eye(2)[0])]),  # one direction
        ("uniformity", [UNDIRECTED]),
        ("intrinsic_dimension", [torch.eye(2)]),  # too few points
        ("intrinsic_dimension", [torch.eye(5)]),  # equal distances
        ("infonce", [ONE, ONE]),
        ("lidar", [torch.eye(5)]),  # a single view
        ("lidar(delta=0)", [torch.eye(5)] * 4),  # without an inverse
        ("lidar(relative=true)", [torch.eye(5)] * 4),
        ("dime", [ONE, ONE]),
        ("dime", [UNDIRECTED, UNDIRECTED]),
        ("cka_next", [torch.eye(4), torch.full((4, 3), 0.1)]),
        ("cka_next", [ONE, ONE]),
        ("cka_next(debiased=true)", [torch.eye(3), torch.eye(3)]),
    ],
)
def test_where_a_metric_is_undefined_it_is_nan(call, arrays):
    assert math.isnan(value(call, arrays))


@pytest.mark.parametrize("name", [m.name for m in VARIANTS if m.takes == "tokens"])
def test_a_batch_mixes_lengths_sides_and_gaps_of_padding(name):
    path = torch.randn(5, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    states = torch.full((4, 7, 3), torch.nan, dtype=torch.float64)
    mask = torch.zeros(4, 7, dtype=torch.bool)
    for row, places in enumerate([slice(0, 5), slice(2, 7), [0, 2, 3, 5, 6]]):
        states[row, places], mask[row, places] = path, True
    found = resolve([name])[0].load()(states, mask)
    np.testing.assert_allclose(found[:3], [value(name, [path])] * 3)
    assert math.isnan(found[3])  # no token counts


@given(seed=st.integers(0, 99), times=st.lists(st.integers(1, 3), min_size=6, max_size=6))
def test_repeated_tokens_do_not_bend_a_path(seed, times):
    tokens = torch.from_numpy(np.random.default_rng(seed).normal(size=(6, 3)))
    repeated = tokens.repeat_interleave(torch.tensor(times), 0)
    assert value("curvature", [repeated]) == pytest.approx(value("curvature", [tokens]))


@given(direction=st.lists(st.floats(1 / 64, 10, width=32), min_size=1, max_size=8))
def test_collinear_points_are_straight_and_never_nan(direction):
    line = torch.arange(1, 9)[:, None] * torch.tensor(direction)
    assert 0 <= value("curvature", [line]) < 1e-4


@given(
    tokens=st.integers(3, 40),
    width=st.integers(8, 40),  # fewer entries may all be within the rounding of their mean
    offset=st.floats(0, 3e5),
    dimensions=st.integers(1, 2),
    seed=st.integers(0, 999),
)
def test_float32_tokens_far_from_zero_agree_with_the_loop(tokens, width, offset, dimensions, seed):
    """All dimensions, or a few, are this many spreads from zero."""
    states = np.random.default_rng(seed).normal(size=(tokens, width))
    states[:, : dimensions if seed % 2 else width] += offset
    states = torch.from_numpy(states).float()
    expected = prompt_entropy(states.double().numpy())
    assert value("prompt_entropy", [states]) == pytest.approx(expected, abs=2e-4)


def test_a_huge_first_token_hides_the_others_unless_left_out():
    rest = torch.randn(47, 64, generator=torch.manual_seed(0))
    states = torch.cat([1e4 + rest[:1], rest])  # as in many language models
    expected = value("prompt_entropy", [rest])
    assert value("prompt_entropy", [states]) < 0.2 * expected
    assert value("prompt_entropy(first=false)", [states]) == pytest.approx(expected, rel=1e-5)
    padded = torch.cat([torch.full((3, 64), torch.nan), states])[None]
    mask = torch.arange(51)[None] > 2
    found = prompt_entropy_of(padded, mask, first=False, norm="logN")
    assert found.item() == pytest.approx(expected / math.log(47), rel=1e-5)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("intrinsic_dimension", {}),
        ("uniformity", {}),
        ("uniformity", {"leave_one_out": True}),
        ("infonce", {}),
        ("infonce", {"leave_one_out": True}),
    ],
)
def test_block_by_block_a_metric_is_the_same(monkeypatch, name, options):
    metric = CATALOGUE[name]
    views = torch.from_numpy(np.random.default_rng(0).normal(size=(metric.views, 40, 4)))
    whole = metric.load()(*views, **options)
    monkeypatch.setattr("daskmetrics.metrics._spectra.NUMBERS", 300)
    torch.testing.assert_close(metric.load()(*views, **options), whole, rtol=1e-12, atol=1e-12)


def test_pairing_counts_and_the_seed_of_permutations_decides():
    first, other = torch.from_numpy(np.random.default_rng(0).normal(size=(2, 30, 3)))
    alike = value("dime", [first, first])
    assert alike > 5 * abs(value("dime", [first, other]))
    assert alike != value("dime(seed=1)", [first, first])
    assert value("dime(most=10)", [first, first]) == value("dime", [first[:10], first[:10]])
    clusters = torch.eye(2)[[0, 0, 1, 1]]
    over_all = value("dime(permutations=4000)", [clusters, clusters])
    assert over_all == pytest.approx(2 / 3 * math.log(2), abs=0.02)

"""What the metrics share: rows, spectra, their solvers, and the rounding of half precision."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from daskmetrics.metrics._eigenvalues import by_lapack, by_torch, checked, eigenvalues, solver
from daskmetrics.metrics._spectra import gram, of_pooled, unit_rows
from daskmetrics.metrics.registry import CATALOGUE
from tests.metrics.variants import value

HALVES = (torch.float16, torch.bfloat16)
SPECTRAL = (
    "effective_rank",
    "rankme",
    "participation_ratio",
    "stable_rank",
    "nesum",
    "spectral_norm",
)


def random_rows(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(("size", "rank"), [(2, 1), (48, 5), (128, 48)])
def test_a_good_spectrum_passes_its_check_bit_for_bit(size, rank):
    matrices = gram(unit_rows(random_rows(20, size, rank) @ random_rows(20, rank, 2 * size)))
    values = torch.linalg.eigvalsh(matrices)
    assert torch.equal(checked(matrices, values.clone()), values)


@pytest.mark.parametrize("spoil", ["unfinished", "shifted", "swapped for equal sums", "not finite"])
def test_a_wrong_spectrum_is_computed_again(spoil):
    matrices = gram(unit_rows(random_rows(6, 16, 32)))
    good = torch.linalg.eigvalsh(matrices)
    bad = good.clone()
    match spoil:
        case "unfinished":
            bad[2] = matrices[2].diagonal()
        case "shifted":
            bad[2] += 1e-3
        case "swapped for equal sums":
            bad[2, [0, -1]] += torch.tensor([0.01, -0.01])
        case "not finite":
            bad[2, 0] = torch.nan
    mended = checked(matrices, bad)
    torch.testing.assert_close(mended[2], good[2])
    assert torch.equal(mended[[0, 1, 3, 4, 5]], good[[0, 1, 3, 4, 5]])


@pytest.mark.parametrize(
    ("size", "version", "expected"),
    [
        (32, "2.6.0+cu124", by_torch),
        (33, "2.11.0+cu130", by_lapack),
        (33, "2.12.0+cu130", by_torch),
        (400, "3.0.0.dev20270101", by_torch),
    ],
)
def test_a_solver_is_chosen_that_solves_a_batch_at_once(size, version, expected):
    assert solver(size, version) is expected


def test_a_matrix_that_float32_cannot_solve_is_solved_in_float64():
    """As it happens where most rows are zero; before, one such prompt ended a run."""
    for seed in range(5):
        rows = torch.randn(256, 384, generator=torch.manual_seed(seed))
        rows[torch.randperm(256, generator=torch.manual_seed(seed))[10:]] = 0
        matrix = gram(unit_rows(rows))
        found, expected = eigenvalues(matrix), torch.linalg.eigvalsh(matrix.double())
        torch.testing.assert_close(found.double(), expected.clamp(min=0), rtol=0, atol=1e-5)


def power_law(prompts: int, width: int, alpha: float) -> torch.Tensor:
    """Rows in random directions, with a mean, whose covariance has the eigenvalues i^-alpha."""
    rng, count = np.random.default_rng(0), min(prompts, width)
    left, right = (np.linalg.qr(rng.normal(size=(n, count)))[0] for n in (prompts, width))
    rows = left * np.arange(1, count + 1) ** (-alpha / 2) @ right.T + rng.normal(size=width) / 100
    return torch.from_numpy(rows).float()


@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("shape", [(100, 384), (600, 128)], ids=str)
def test_half_precision_keeps_exponents_and_ranks(dtype, shape):
    for alpha in (0.5, 1.5, 4.0):
        rows = power_law(*shape, alpha)
        exact = value("alpha_req", [rows])
        assert value("alpha_req", [rows.to(dtype)]) == pytest.approx(exact, rel=0.02)
    usual = power_law(*shape, 1.5)
    for name in SPECTRAL:
        exact = value(name, [usual])
        assert value(name, [usual.to(dtype)]) == pytest.approx(exact, rel=0.01), name


@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_vectors_closer_than_their_rounding_count_once(dtype):
    rows = (random_rows(200, 5) @ random_rows(5, 20)).to(dtype)
    wide = torch.cat([rows.double(), rows.double() * (1 + torch.finfo(dtype).eps / 4)])
    apart = CATALOGUE["intrinsic_dimension"].load()(of_pooled(wide, torch.finfo(dtype).eps))
    assert apart.item() == pytest.approx(value("intrinsic_dimension", [rows]), rel=0.02)


@pytest.mark.parametrize("name", [*SPECTRAL, "alpha_req", "logdet_covariance"])
def test_float32_has_no_floor_but_that_of_the_decomposition(name):
    rows = power_law(60, 40, 3)
    assert value(name, [rows]) == CATALOGUE[name].load()(of_pooled(rows, 0.0)).item()

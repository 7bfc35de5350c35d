"""What the metrics share, and the published test vectors of spectra."""

import math

import numpy as np
import pytest
import torch

from daskmetrics.metrics._eigenvalues import by_lapack, by_torch, checked, eigenvalues, solver
from daskmetrics.metrics._spectra import (
    centred,
    entropy,
    gram,
    spectrum,
    unit_rows,
)


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        (torch.eye(4), math.log(4)),
        (centred(torch.eye(4)), math.log(3)),
        (torch.ones(5, 3), 0.0),
        (torch.eye(2)[[0, 0, 0, 1]], 0.562335),
        (torch.linalg.cholesky(0.5 + 0.5 * torch.eye(4)), 1.073543),
    ],
    ids=["orthonormal", "centred", "rank one", "clusters of three and one", "equicorrelated"],
)
def test_the_entropy_of_known_rows(rows, expected):
    value = entropy(spectrum(unit_rows(rows.double()))).item()
    assert value == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("shape", [(7, 3), (3, 7), (2, 4, 5)])
def test_spectrum_is_the_squared_singular_values(shape):
    rows = np.random.default_rng(0).normal(size=shape)
    expected = np.linalg.svd(rows, compute_uv=False)[..., ::-1] ** 2
    np.testing.assert_allclose(spectrum(torch.from_numpy(rows)).numpy(), expected)


def test_a_matrix_that_is_not_finite_does_not_affect_its_batch():
    rows = torch.eye(3).repeat(2, 1, 1)
    rows[0, 1, 1] = torch.nan
    assert entropy(spectrum(rows)).isnan().tolist() == [True, False]


@pytest.mark.parametrize("rank", [1, 5, 48])
@pytest.mark.parametrize("size", [2, 48, 128])
def test_a_good_spectrum_passes_its_check_bit_for_bit(size, rank):
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(20, size, rank, generator=generator) @ torch.randn(
        20, rank, 2 * size, generator=generator
    )
    matrices = gram(unit_rows(rows))
    values = torch.linalg.eigvalsh(matrices)
    assert torch.equal(checked(matrices, values.clone()), values)


@pytest.mark.parametrize("spoil", ["unfinished", "shifted", "swapped for equal sums", "not finite"])
def test_a_wrong_spectrum_is_computed_again(spoil):
    rows = torch.randn(6, 16, 32, generator=torch.Generator().manual_seed(1))
    matrices = gram(unit_rows(rows))
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


def test_parts_of_a_batch_on_all_processors_give_the_same_bits(monkeypatch):
    monkeypatch.setattr("daskmetrics.metrics._eigenvalues.processors", lambda: 3)
    rows = torch.randn(2, 5, 40, 64, generator=torch.Generator().manual_seed(0))
    matrices = gram(unit_rows(rows))
    assert torch.equal(by_lapack(matrices), torch.linalg.eigvalsh(matrices))
    assert torch.equal(by_lapack(matrices[0, 0]), torch.linalg.eigvalsh(matrices[0, 0]))


def test_unit_rows_survive_extreme_norms():
    rows = torch.tensor([[3.0, 4.0]]) * torch.tensor([[1e38 / 4], [1e-38], [1e-44], [0.0]])
    expected = torch.tensor([[0.6, 0.8]]).repeat(4, 1)
    expected[3] = 0
    # 1e-44 has four bits left
    torch.testing.assert_close(unit_rows(rows), expected, rtol=0, atol=0.1)
    torch.testing.assert_close(unit_rows(rows)[[0, 1, 3]], expected[[0, 1, 3]])


def test_equal_rows_centre_to_exact_zeros():
    # 0.1 is no binary number: the mean of its copies is off by rounding
    rows = torch.full((7, 3), 0.1, dtype=torch.float64)
    assert not centred(rows).any()


def test_centring_keeps_what_is_not_finite_visible():
    assert centred(torch.tensor([[torch.nan, 1.0], [0.0, 2.0]])).isnan().any()


def test_a_matrix_for_which_lapack_does_not_converge_in_float32_is_solved_in_float64():
    """As it happens where most rows are zero; before, one such prompt ended a run."""
    for seed in range(10):
        rows = torch.randn(256, 384, generator=torch.manual_seed(seed))
        rows[torch.randperm(256, generator=torch.manual_seed(seed))[10:]] = 0
        matrix = gram(unit_rows(rows))
        found, expected = eigenvalues(matrix), torch.linalg.eigvalsh(matrix.double())
        torch.testing.assert_close(found.double(), expected.clamp(min=0), rtol=0, atol=1e-5)

"""Rows, Gram matrices and their spectra: what the metrics share."""

from __future__ import annotations

import torch
from torch import Tensor


def at_least_float32(rows: Tensor) -> Tensor:
    """Half precision widened: a Gram matrix in bfloat16 would be off by up to 0.01 nats."""
    return rows.to(torch.promote_types(rows.dtype, torch.float32))


def unit_rows(rows: Tensor) -> Tensor:
    """Rows (..., N, D) scaled to length one; zero rows stay zero.

    Examples
    --------
    >>> unit_rows(torch.tensor([[3e30, 4e30], [0.0, 0.0]]))
    tensor([[0.6000, 0.8000],
            [0.0000, 0.0000]])
    """
    # the largest entry first, so that no square overflows
    largest = rows.abs().amax(-1, keepdim=True)
    scaled = rows / largest.where(largest > 0, 1)
    length = torch.linalg.vector_norm(scaled, dim=-1, keepdim=True)
    units: Tensor = scaled / length.where(largest > 0, 1)
    return units


def centred(rows: Tensor, keep: Tensor | None = None) -> Tensor:
    """Rows (..., N, D) less the mean of those that ``keep`` (..., N) marks; the others become zero.

    A row that differs from the mean by rounding only becomes zero too: scaled to length one it would be pure noise.

    Examples
    --------
    >>> centred(torch.tensor([[1.0, 5.0], [3.0, 5.0]]))
    tensor([[-1.,  0.],
            [ 1.,  0.]])
    """
    kept = rows.new_ones(rows.shape[:-1], dtype=torch.bool) if keep is None else keep
    rows = rows.where(kept[..., None], 0)
    mean = rows.sum(-2, keepdim=True) / kept.sum(-1).clamp(min=1)[..., None, None]
    rest = rows - mean
    rounding = 32 * torch.finfo(rows.dtype).eps * rows.abs().amax((-2, -1), keepdim=True)
    differs = kept[..., None] & (rest.abs().amax(-1, keepdim=True) > rounding)
    return rest * differs  # a product, unlike a choice, keeps NaN


def gram(rows: Tensor) -> Tensor:
    """The smaller of rows (..., N, D) times their transpose and the other way round, (..., m, m), m = min(N, D)."""
    return rows @ rows.mT if rows.shape[-2] <= rows.shape[-1] else rows.mT @ rows


def unit_gram(rows: Tensor, keep: Tensor, centre: bool) -> Tensor:
    """`gram` of the unit rows (B, N, D) that ``keep`` (B, N) marks, less their mean first if wanted, (B, m, m).

    Lengths are read off the diagonal, so that the rows are gone over once and not six times. Where that could cost
    digits (rows that are rounding only, not finite, or whose squares leave the range), the long way is taken.

    Examples
    --------
    >>> unit_gram(torch.tensor([[[3.0, 0.0, 0.0], [0.0, 2.0, 0.0]]]), torch.tensor([[True, True]]), centre=False)
    tensor([[[1.0000, 0.0000],
             [0.0000, 1.0000]]])
    """
    matrix, careful = _quick_unit_gram(rows, keep, centre)
    if careful.any():
        chosen, kept = rows[careful], keep[careful]
        chosen = centred(chosen, kept) if centre else chosen.where(kept[..., None], 0)
        matrix[careful] = gram(unit_rows(chosen))
    return matrix


def _quick_unit_gram(rows: Tensor, keep: Tensor, centre: bool) -> tuple[Tensor, Tensor]:
    """The matrices, and which of them (B,) are not to be trusted."""
    rest, mean = rows.masked_fill(~keep[..., None], 0), torch.zeros_like(rows[:, :1])
    if centre:
        mean = keep[:, None].to(rows.dtype) @ rest / keep.sum(-1).clamp(min=1)[:, None, None]
        rest -= mean
    wide = rows.shape[-2] <= rows.shape[-1]
    matrix = gram(rest) if wide else rest
    squared = matrix.diagonal(dim1=-2, dim2=-1) if wide else torch.linalg.vector_norm(rest, dim=-1).square()
    scale = squared.where(keep, 0).amax(-1, keepdim=True) + mean.square().sum(-1)
    eps, tiny = torch.finfo(rows.dtype).eps, torch.finfo(rows.dtype).tiny
    sound = (squared > (32 * eps) ** 2 * scale) & (squared > tiny / eps) & (squared < eps / tiny)
    inverse = squared.rsqrt().where(keep, 0)
    if wide:
        matrix *= inverse[..., None] * inverse[..., None, :]
    else:
        matrix = gram(rest * inverse[..., None])
    return matrix, (keep & ~sound).any(-1)


def eigenvalues(matrix: Tensor) -> Tensor:
    """Eigenvalues (..., m) of positive semi-definite matrices, ascending; all zero where one is not finite."""
    # one bad prompt must not stop a batch: eigvalsh raises on NaN
    finite = matrix.abs().amax((-2, -1), keepdim=True).isfinite()
    matrix = matrix if finite.all() else matrix.where(finite, 0)
    values: Tensor = torch.linalg.eigvalsh(matrix)
    if matrix.is_cuda:  # its batched solver stops after a number of sweeps; LAPACK says when it fails
        values = checked(matrix, values)
    return values.clamp(min=0)


def checked(matrix: Tensor, values: Tensor) -> Tensor:
    r"""Eigenvalues (..., m) of matrices (..., m, m), solved again by LAPACK in float64 where they leave a residual.

    What rotations leave beside the diagonal is missing in :math:`\sum_i \lambda_i^2 = \|A\|_F^2`, and
    :math:`\sum_i \lambda_i = \operatorname{tr} A` (Golub & Van Loan, *Matrix Computations*, 8.5).

    Examples
    --------
    >>> checked(torch.tensor([[[2.0, 1.0], [1.0, 2.0]]]), torch.tensor([[2.0, 2.0]]))  # no rotation was made
    tensor([[1., 3.]])
    """
    trace, squares = matrix.diagonal(dim1=-2, dim2=-1).sum(-1), matrix.square().sum((-2, -1))
    allowed = 32 * matrix.shape[-1] ** 0.5 * torch.finfo(matrix.dtype).eps
    off = (values.sum(-1) - trace).abs() > allowed * trace.abs()
    off |= (values.square().sum(-1) - squares).abs() > allowed * squares
    off |= ~values.isfinite().all(-1)
    if off.any():
        values[off] = torch.linalg.eigvalsh(matrix[off].double().cpu()).to(values)
    return values


def spectrum(rows: Tensor) -> Tensor:
    """Squared singular values of rows (..., N, D), ascending, (..., min(N, D)); all zero where rows are not finite.

    Examples
    --------
    >>> spectrum(torch.tensor([[3.0, 0.0], [0.0, 1.0], [0.0, 0.0]]))
    tensor([1., 9.])
    """
    return eigenvalues(gram(rows))


def entropy(weights: Tensor, alpha: float = 1.0) -> Tensor:
    r"""Rényi entropy in nats of non-negative weights (..., K), scaled to sum to one; NaN where all are zero.

    .. math:: S_\alpha = \frac{1}{1 - \alpha} \ln \sum_i p_i^\alpha, \quad S_1 = -\sum_i p_i \ln p_i

    Examples
    --------
    >>> entropy(torch.tensor([[1.0, 1.0, 0.0], [0.0, 0.0, 0.0]]))
    tensor([0.6931,    nan])
    """
    shares = weights / weights.sum(-1, keepdim=True)
    if alpha == 1:
        terms: Tensor = torch.special.entr(shares)
        return terms.sum(-1)
    # an order below one would give the zeros of rounding weight
    powers = shares.where(above_rounding(weights) > 0, 0).pow(alpha).sum(-1)
    return powers.log() / (1 - alpha) + 0 * shares.sum(-1)


def above_rounding(squared: Tensor) -> Tensor:
    """Eigenvalues (..., m) with those that rounding alone would give set to zero."""
    floor = squared.shape[-1] * torch.finfo(squared.dtype).eps * squared.amax(-1, keepdim=True)
    return squared.where(squared > floor, 0)

"""Eigenvalues of many matrices at once: what computes them, and a check of what it returns."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import torch
from torch import Tensor

_AT_ONCE = 32  # rows up to which torch before 2.12 solves a batch on a GPU in one call


def is_queued(tensor: Tensor) -> bool:
    """Whether asking for a number waits for the tensor's device."""
    return tensor.device.type != "cpu"


def eigenvalues(matrix: Tensor) -> Tensor:
    """Eigenvalues (..., m) of positive semi-definite matrices, ascending.

    All are zero where one is not finite.
    """
    matrix, values = unchecked(matrix)
    if is_queued(matrix):
        values = checked(matrix, values)
    return values.clamp(min=0)


def unchecked(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """The matrices, zero where not finite, and their eigenvalues."""
    # one bad prompt must not fail a batch: eigvalsh raises on NaN
    finite = matrix.abs().amax((-2, -1), keepdim=True).isfinite()
    if is_queued(matrix):
        matrix = matrix.where(finite, 0)
        return matrix, solver(matrix.shape[-1], torch.__version__)(matrix)
    if not finite.all():
        matrix = matrix.where(finite, 0)
    return matrix, by_torch(matrix)


def by_torch(matrix: Tensor) -> Tensor:
    """By the solver of torch.

    Of some matrices in which most rows are zero, LAPACK in float32 does not converge or returns
    NaN: these are solved in float64.
    """
    try:
        values: Tensor = torch.linalg.eigvalsh(matrix)
        if is_queued(matrix) or values.isfinite().all():  # a GPU is not asked; see `has_residual`
            return values
    except torch.linalg.LinAlgError:  # type: ignore[attr-defined]  # not in its __all__
        pass
    values = torch.linalg.eigvalsh(matrix.double())
    return values.to(matrix.dtype)


Solve = Callable[[Tensor], Tensor]


def solver(size: int, version: str) -> Solve:
    """The fastest solver of matrices of this size on a GPU.

    Before 2.12 torch solves matrices of more than 32 rows one after the other, in about 2 ms each:
    this machine's processors are faster.

    >>> solver(256, "2.11.0+cu130") is by_lapack, solver(256, "2.12.0") is by_torch
    (True, True)
    """
    release = tuple(map(int, version.split(".")[:2]))
    if size <= _AT_ONCE or release >= (2, 12):
        return by_torch
    return by_lapack


def processors() -> int:
    """Number of processors that this process may use."""
    return len(os.sched_getaffinity(0))


def by_lapack(matrix: Tensor) -> Tensor:
    """By LAPACK on all processors; on the device of the matrices."""
    flat = matrix.reshape(-1, *matrix.shape[-2:]).cpu()
    count = processors()
    with ThreadPoolExecutor(count) as pool:
        solved = list(pool.map(by_torch, flat.chunk(count)))
    values = torch.cat(solved)
    return values.reshape(matrix.shape[:-1]).to(matrix.device)


def checked(matrix: Tensor, values: Tensor) -> Tensor:
    """Eigenvalues (..., m), computed again where they leave a residual.

    That is by LAPACK in float64.

    >>> checked(torch.tensor([[[2.0, 1.0], [1.0, 2.0]]]), torch.tensor([[2.0, 2.0]]))  # unrotated
    tensor([[1., 3.]])
    """
    off = has_residual(matrix, values)
    if off.any():
        values[off] = by_lapack(matrix[off].double()).to(values)
    return values


def has_residual(matrix: Tensor, values: Tensor) -> Tensor:
    r"""Whether eigenvalues (..., m) are off by more than rounding, (...).

    A GPU's rotations stop after some sweeps without an error. What they leave beside the diagonal
    is missing in :math:`\sum_i \lambda_i^2 = \|A\|_F^2`, and :math:`\sum_i \lambda_i =
    \operatorname{tr} A` (Golub & Van Loan, *Matrix Computations*, 8.5).
    """
    trace = matrix.diagonal(dim1=-2, dim2=-1).sum(-1)
    squares = matrix.square().sum((-2, -1))
    spacing = torch.finfo(matrix.dtype).eps
    allowed = 32 * matrix.shape[-1] ** 0.5 * spacing
    off: Tensor = (values.sum(-1) - trace).abs() > allowed * trace.abs()
    off |= (values.square().sum(-1) - squares).abs() > allowed * squares
    off |= ~values.isfinite().all(-1)
    return off

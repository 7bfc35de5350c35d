"""Entropies of Gram matrices: what prompt and dataset entropy share."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from daskmetrics.metrics._spectra import entropy, gram
from daskmetrics.metrics.spectra import Spectra, Step

NORMS: Mapping[str, Callable[[Tensor, Tensor], Tensor]] = {
    "logN": lambda log_n, log_d: log_n,
    "logD": lambda log_n, log_d: log_d,
    "logNlogD": lambda log_n, log_d: log_n * log_d,
    "maxEntropy": torch.minimum,
}


def matrix_entropy(spectra: Spectra, steps: tuple[Step, ...], alpha: float) -> Tensor:
    """Entropy (...) of rows after their preparation; of order 2 without an eigenvalue, ten times faster."""
    if alpha != 2:
        return entropy(spectra.values(*steps), alpha)
    matrix = spectra.gram(*steps)
    trace = matrix.diagonal(dim1=-2, dim2=-1).sum(-1)
    purity = (matrix / trace[..., None, None]).square().sum((-2, -1))
    return torch.where(trace > 0, -purity.log(), torch.nan)


def published_entropy(rows: Tensor, alpha: float) -> Tensor:
    r"""Entropy of rows (N, D) as the code published with *Layer by Layer* computes it.

    The smaller of Gram matrix and covariance, negative *entries* set to zero; then the positive eigenvalues, scaled to
    sum to one; of order 2 :math:`\ln(m^2 / \sum_{ij} K_{ij}^2)` for a matrix of m rows, right only if its trace is m.
    """
    matrix = gram(rows).clamp(min=0)
    if not len(rows) or not (matrix.isfinite().all() and (matrix > 0).any()):
        return rows.new_full((), torch.nan)
    if alpha == 2:
        return (len(matrix) ** 2 / matrix.square().sum()).log()
    return entropy(torch.linalg.eigvalsh(matrix).clamp(min=0), alpha)


def normalised(value: Tensor, norm: str, count: Tensor, width: int) -> Tensor:
    """An entropy (...) of ``count`` (...) rows of ``width`` entries, divided by what the norm says; NaN by zero."""
    if norm == "none":
        return value
    log_n = count.to(value.dtype).log()
    most = NORMS[norm](log_n, log_n.new_full((), float(width)).log())
    return torch.where(most > 0, value / most, torch.nan)

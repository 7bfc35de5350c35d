"""LiDAR: number of dimensions in which prompts differ more than their views do."""

from __future__ import annotations

import torch
from torch import Tensor

from daskmetrics.metrics._eigenvalues import eigenvalues
from daskmetrics.metrics._spectra import entropy, gram, unit_rows


def lidar(
    *views: Tensor,
    delta: float = 1e-4,
    relative: bool = False,
    unit: bool = True,
    log: bool = False,
) -> Tensor:
    r"""Effective rank of the between-prompt scatter, whitened by the within-prompt scatter.

    .. math:: \exp H\bigl(\operatorname{eig}(S_w^{-1/2} S_b S_w^{-1/2})\bigr), \quad
              S_w = \frac{1}{Pq} \sum_{ij} (z_{ij} - \mu_i)(z_{ij} - \mu_i)^\top + \delta I, \quad
              S_b = \frac1P \sum_i (\mu_i - \mu)(\mu_i - \mu)^\top

    Parameters
    ----------
    *views : q Tensors (P, D)
        Views of the same prompts, row by row; computed in float64.
    delta : float
        Ridge of the within-prompt scatter, at least 0.
    relative : bool
        Whether ``delta`` counts in units of the mean eigenvalue of that scatter.
    unit : bool
        Whether vectors are scaled to length one first, which makes ``delta`` mean the same at every
        layer.
    log : bool
        Whether the entropy itself is given, in nats.

    Returns
    -------
    Tensor, scalar float64
        Between 1 and min(P - 1, D). NaN for fewer than two prompts or two views, equal prompts, a
        within-prompt scatter without inverse, or values not finite.

    Notes
    -----
    Only eigenvalues are needed, and those of :math:`L^{-1} S_b L^{-\top}` with :math:`S_w = L
    L^\top` are the same: one Cholesky factor and the smaller Gram matrix of the whitened means in
    place of two eigendecompositions. The code published with *Layer by Layer* is ``unit=false,
    log=true`` on means of tokens that were centred before.

    References
    ----------
    Thilak et al. (2024), *LiDAR: sensing linear probing performance in joint embedding SSL
    architectures*, equations 1 to 3.

    Examples
    --------
    Equal views of six prompts: five dimensions are left after centring:

    >>> round(lidar(torch.eye(5), torch.eye(5)).item(), 6)
    4.0
    """
    stacked = torch.stack(views).double()
    if len(stacked) < 2 or not stacked.isfinite().all():
        return stacked.new_full((), torch.nan)
    if unit:
        stacked = unit_rows(stacked)
    means = stacked.mean(0)
    between = means - means.mean(0)
    rounding = 32 * torch.finfo(between.dtype).eps * means.abs().max()
    between = between * (between.abs() > rounding)
    deviations = (stacked - means).flatten(0, 1)
    scatter = deviations.mT @ deviations / len(deviations)
    ridge: float | Tensor = delta
    if relative:
        ridge = delta * scatter.diagonal().mean()
    within = scatter + ridge * torch.eye(len(scatter), dtype=scatter.dtype, device=scatter.device)
    factor, failed = torch.linalg.cholesky_ex(within)
    if failed:
        return stacked.new_full((), torch.nan)
    whitened = torch.linalg.solve_triangular(factor, between.mT, upper=False)
    value = entropy(eigenvalues(gram(whitened)))
    return value if log else value.exp()

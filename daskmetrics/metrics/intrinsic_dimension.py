"""Intrinsic dimension: dimension of the manifold that the prompts lie on."""

from __future__ import annotations

import torch
from torch import Tensor

from daskmetrics.metrics._spectra import Spectra, blocks, of_pooled


def intrinsic_dimension(
    vectors: Tensor | Spectra, *, fit: str = "line", discarded: float = 0.1
) -> Tensor:
    r"""TwoNN estimate from the distances to the two nearest prompts.

    .. math:: \mu = r_2 / r_1, \quad -\ln(1 - F(\mu)) = d \ln \mu

    with F the empirical distribution, :math:`F(\mu_{(i)}) = i / N`; d is the slope of a line
    through the origin.

    Parameters
    ----------
    vectors : Tensor (P, D) or Spectra
        One vector per prompt; computed in float64. Equal vectors count once: their distance says
        nothing. So do vectors closer than their rounding (`Spectra.rounding`) apart.
    fit : {"line", "likelihood"}
        Least squares as in the paper, or :math:`(N - 1) / \sum_i \ln \mu_i`.
    discarded : float
        Share of the largest ratios that the line leaves out, at least 0 and below 1; the largest
        one always is.

    Returns
    -------
    Tensor, scalar float64
        NaN for fewer than three different vectors, where no ratio differs from 1, or values not
        finite.

    References
    ----------
    Facco et al. (2017), *Estimating the intrinsic dimension of datasets by a minimal neighborhood
    information*, equation 5 and the algorithm below it.

    Examples
    --------
    Points on a line in three dimensions:

    >>> place = torch.rand(500, generator=torch.Generator().manual_seed(0))
    >>> round(intrinsic_dimension(place[:, None] * torch.ones(3)).item())
    1
    """
    spectra = of_pooled(vectors)
    if not spectra.rows.isfinite().all():
        return spectra.rows.new_full((), torch.nan)
    rows: Tensor = torch.unique(spectra.rows, dim=0)
    points = rows - rows.mean(0)
    scale = points.abs().max()
    points = points / scale  # no square may overflow or vanish
    if spectra.eps > torch.finfo(points.dtype).eps:
        lengths = torch.linalg.vector_norm(rows / scale, dim=1)
        points = _apart(points, 2**0.5 * spectra.rounding * lengths)
    if len(points) < 3 or not scale > 0:
        return points.new_full((), torch.nan)
    ratios = points.new_empty(len(points))
    for block in blocks(len(points), len(points)):
        ratios[block] = _log_ratios(points, block)
    ratios = ratios[~ratios.isnan()].sort().values
    count = len(ratios)
    if fit == "likelihood":
        dimension = (count - 1) / ratios.sum()
    else:
        kept = max(0, min(int(count * (1 - discarded)), count - 1))
        ranks = torch.arange(1, kept + 1, dtype=ratios.dtype, device=ratios.device)
        along = ratios[:kept]
        height = -torch.log1p(-ranks / count)
        dimension = (along * height).sum() / along.square().sum()
    return torch.where(dimension.isfinite(), dimension, torch.nan)


def _apart(points: Tensor, limits: Tensor) -> Tensor:
    """The points (N, D) that are not within a limit of earlier ones."""
    is_close = points.new_zeros(len(points), dtype=torch.bool)
    for block in blocks(len(points), len(points)):
        close = _squared_distances(points, block) < limits[block, None].square()
        is_close[block] = close.tril(block.start - 1).any(1)
    return points[~is_close]


def _squared_distances(points: Tensor, block: slice) -> Tensor:
    """Of the points in one block from all, up to float64's rounding."""
    rows = points[block]
    return rows.square().sum(1)[:, None] + points.square().sum(1) - 2 * rows @ points.mT


def _log_ratios(points: Tensor, block: slice) -> Tensor:
    """ln(r2 / r1) of the points in one block; NaN where r1 = 0."""
    rows = points[block]
    squared = _squared_distances(points, block)
    positions = torch.arange(len(rows), device=points.device)
    squared[positions, positions + block.start] = torch.inf
    # squares that cancel find the neighbours; the differences themselves give the distances
    count = min(4, len(points) - 1)
    neighbours = squared.topk(count, largest=False).indices
    distances = torch.linalg.vector_norm(rows[:, None] - points[neighbours], dim=-1)
    to_nearest, to_next, *_ = distances.sort(1).values.unbind(1)
    ratios = (to_next / to_nearest).log()
    ratios = torch.where(ratios > 1e-12, ratios, 0)  # equal distances, up to rounding
    return torch.where(to_nearest > 0, ratios, torch.nan)

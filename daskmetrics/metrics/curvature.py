"""Curvature: mean turn of the path that a prompt's tokens draw."""

from __future__ import annotations

import torch
from torch import Tensor

from daskmetrics.metrics._spectra import at_least_float32, unit_rows


def curvature(states: Tensor, mask: Tensor) -> Tensor:
    r"""Mean angle between consecutive steps from token to token, in radians.

    .. math:: c = \frac{1}{n} \sum_k \angle(v_k, v_{k+1}), \quad v_k = x_{k+1} - x_k

    Steps of length zero are left out before neighbours are paired, so a repeated token changes nothing.

    Parameters
    ----------
    states : Tensor (B, T, D)
        Hidden states; half precision is computed in float32.
    mask : Tensor (B, T) of bool
        True where a token counts; tokens on both sides of a gap become neighbours.

    Returns
    -------
    Tensor (B,)
        Between 0 (straight) and pi (back and forth). NaN for fewer than two steps, or values not finite.

    Notes
    -----
    The angle is :math:`2 \operatorname{atan2}(|u - v|, |u + v|)` of unit steps: the arccos of a cosine loses half of
    the digits near a straight line, and is NaN where rounding takes the cosine past 1.

    References
    ----------
    Hosseini and Fedorenko (2023), *Large language models implicitly learn to straighten neural sentence
    trajectories*, after Hénaff et al. (2019). Kahan (2006), section 12, for the form of the angle.

    Examples
    --------
    Along a straight line, then around three sides of a square:

    >>> line = torch.tensor([[0.0, 0.0], [1.0, 1.0], [2.0, 2.0], [3.0, 3.0]])
    >>> square = torch.tensor([[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 1.0]])
    >>> curvature(torch.stack([line, square]), torch.ones(2, 4, dtype=torch.bool))
    tensor([0.0000, 1.5708])
    """
    path, real = _packed(at_least_float32(states), mask)
    steps = path.diff(dim=1)
    moved = real[:, 1:] & (steps != 0).any(-1)
    units, counted = _packed(unit_rows(steps), moved)
    angles = _angles(units[:, :-1], units[:, 1:])
    counted = counted[:, 1:]
    # without any angle this is 0 / 0: NaN
    return angles.where(counted, 0).sum(1) / counted.sum(1)


def _packed(rows: Tensor, keep: Tensor) -> tuple[Tensor, Tensor]:
    """Rows (B, N, D) with those to keep (B, N) in front, order unchanged."""
    order = (~keep).byte().argsort(dim=1, stable=True)
    return rows.gather(1, order[..., None].expand_as(rows)), keep.gather(1, order)


def _angles(before: Tensor, after: Tensor) -> Tensor:
    apart = torch.linalg.vector_norm(after - before, dim=-1)
    along = torch.linalg.vector_norm(after + before, dim=-1)
    return 2 * torch.atan2(apart, along)

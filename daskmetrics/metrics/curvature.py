"""Curvature: mean turn of the path that a prompt's tokens draw."""

from __future__ import annotations

import torch
from torch import Tensor

from daskmetrics.metrics._spectra import at_least_float32, centred, unit_rows


def curvature(states: Tensor, mask: Tensor, *, k: int = 1, variant: str = "corrected") -> Tensor:
    r"""Mean angle between consecutive steps from token to token, in radians.

    .. math:: c = \frac{1}{n} \sum_i \angle(v_i, v_{i+k}), \quad v_i = x_{i+1} - x_i

    Steps of length zero are left out before neighbours are paired, so a repeated token changes nothing.

    Parameters
    ----------
    states : Tensor (B, T, D)
        Hidden states; half precision is computed in float32.
    mask : Tensor (B, T) of bool
        True where a token counts; tokens on both sides of a gap become neighbours.
    k : int
        How many steps apart the two steps of an angle are, at least 1.
    variant : {"corrected", "paper"}
        ``paper`` gives the angle between *states* k apart, centred over the prompt, as the published code does.

    Returns
    -------
    Tensor (B,)
        Between 0 (straight) and pi (back and forth). NaN for fewer than k + 1 steps, or values not finite.

    Notes
    -----
    The angle is :math:`2 \operatorname{atan2}(|u - v|, |u + v|)` of unit steps: the arccos of a cosine loses half of
    the digits near a straight line, and is NaN where rounding takes the cosine past 1, as it does in every published
    file. The code published with *Layer by Layer* takes that arccos of states; here ``paper`` is the same angle without
    the NaN. A later version of that code takes differences, but folds every angle to at most pi / 2 by an absolute
    value.

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
    if variant == "paper":
        units = unit_rows(centred(path, real))
        units, counted = _packed(units, (units != 0).any(-1))
    else:
        steps = path.diff(dim=1)
        units, counted = _packed(unit_rows(steps), real[:, 1:] & (steps != 0).any(-1))
    return _mean_angle(units, counted, k)


def _mean_angle(units: Tensor, counted: Tensor, k: int) -> Tensor:
    """Of unit rows (B, N, D) with those that count (B, N) in front, k apart."""
    angles, counted = _angles(units[:, :-k], units[:, k:]), counted[:, k:]
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

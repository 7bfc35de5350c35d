"""Curvature: mean turn of the path that a prompt's tokens draw."""

from __future__ import annotations

import torch
from torch import Tensor

from daskmetrics.metrics._spectra import at_least_float32, centred, unit_rows, with_care


def curvature(states: Tensor, mask: Tensor, *, k: int = 1, variant: str = "corrected") -> Tensor:
    r"""Mean angle between consecutive steps from token to token, in radians.

    .. math:: c = \frac{1}{n} \sum_i \angle(v_i, v_{i+k}), \quad v_i = x_{i+1} - x_i

    Steps of length zero are left out before neighbours are paired, so a repeated token changes
    nothing.

    Parameters
    ----------
    states : Tensor (B, T, D)
        Hidden states; half precision is computed in float32.
    mask : Tensor (B, T) of bool
        True where a token counts; tokens on both sides of a gap become neighbours.
    k : int
        How many steps apart the two steps of an angle are, at least 1.
    variant : {"corrected", "paper"}
        ``paper`` gives the angle between *states* k apart, centred over the prompt, as the
        published code does.

    Returns
    -------
    Tensor (B,)
        Between 0 (straight) and pi (back and forth). NaN for fewer than k + 1 steps, or values not
        finite.

    Notes
    -----
    The angle is :math:`2 \operatorname{atan2}(|u - v|, |u + v|)` of unit steps: the arccos of a
    cosine loses half of the digits near a straight line, and is NaN where rounding takes the cosine
    past 1, as it does in every published file. The code published with *Layer by Layer* takes that
    arccos of states; here ``paper`` is the same angle without the NaN. A later version of that code
    takes differences, but folds every angle to at most pi / 2 by an absolute value.

    References
    ----------
    Hosseini and Fedorenko (2023), *Large language models implicitly learn to straighten neural
    sentence trajectories*, after Hénaff et al. (2019). Kahan (2006), section 12, for the form of
    the angle.

    Examples
    --------
    Along a straight line, then around three sides of a square:

    >>> line = torch.tensor([[0.0, 0.0], [1.0, 1.0], [2.0, 2.0], [3.0, 3.0]])
    >>> square = torch.tensor([[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 1.0]])
    >>> curvature(torch.stack([line, square]), torch.ones(2, 4, dtype=torch.bool))
    tensor([0.0000, 1.5708])
    """
    rows = at_least_float32(states)
    if variant == "paper":
        path, real = _packed(rows, mask)
        units = unit_rows(centred(path, real))
        has_direction = (units != 0).any(-1)
        return _mean_angle(*_packed(units, has_direction), k)
    return with_care(_quick, _careful, rows, mask, k)


def _careful(rows: Tensor, mask: Tensor, k: int) -> Tensor:
    """The values (B,), without steps of length zero and other tokens."""
    path, real = _packed(rows, mask)
    steps = path.diff(dim=1)
    is_move = real[:, 1:] & (steps != 0).any(-1)
    return _mean_angle(*_packed(unit_rows(steps), is_move), k)


def _quick(rows: Tensor, mask: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The values (B,) from cosines, and where gaps or zero steps forbid that."""
    steps = rows.diff(dim=1)
    real = mask[:, 1:] & mask[:, :-1]
    lengths = torch.linalg.vector_norm(steps, dim=-1)
    before = steps[:, :-k]
    after = steps[:, k:]
    scale = lengths[:, :-k] * lengths[:, k:]
    cosines = torch.linalg.vecdot(before, after) / scale
    counted = real[:, :-k] & real[:, k:]
    angles = cosines.clamp(-1, 1).acos()
    is_steep = (cosines.abs() > 0.9) & counted  # there an arccos loses digits
    steep = is_steep.nonzero(as_tuple=True)
    if len(steep[0]):
        angles[steep] = _angles(unit_rows(before[steep]), unit_rows(after[steep]))
    tiny = torch.finfo(rows.dtype).tiny ** 0.25
    sound = (lengths > tiny) & (lengths < 1 / tiny)
    has_gaps = real.sum(1) + 1 < mask.sum(1)
    is_doubtful = (real & ~sound).any(1) | has_gaps
    return _mean(angles, counted), is_doubtful


def _mean_angle(units: Tensor, counted: Tensor, k: int) -> Tensor:
    """Of unit rows (B, N, D), k apart, with those that count in front."""
    angles = _angles(units[:, :-k], units[:, k:])
    return _mean(angles, counted[:, k:])


def _mean(angles: Tensor, counted: Tensor) -> Tensor:
    """Of the angles that count; without any this is 0 / 0: NaN."""
    return angles.where(counted, 0).sum(1) / counted.sum(1)


def _packed(rows: Tensor, keep: Tensor) -> tuple[Tensor, Tensor]:
    """Rows (B, N, D) with those to keep (B, N) in front."""
    order = (~keep).byte().argsort(dim=1, stable=True)
    packed = rows.gather(1, order[..., None].expand_as(rows))
    return packed, keep.gather(1, order)


def _angles(before: Tensor, after: Tensor) -> Tensor:
    across = torch.linalg.vector_norm(after - before, dim=-1)
    along = torch.linalg.vector_norm(after + before, dim=-1)
    return 2 * torch.atan2(across, along)

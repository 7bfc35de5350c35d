"""Alignment: distance between the two views of a prompt."""

from __future__ import annotations

import torch
from torch import Tensor

from daskmetrics.metrics._spectra import unit_rows


def alignment(
    first: Tensor, second: Tensor, *, power: float = 2.0, leave_one_out: bool = False
) -> Tensor:
    r"""Mean distance between the directions of two views, to a power.

    .. math:: \frac1P \sum_i \lVert \hat z_i - \hat z_i^+ \rVert^\alpha

    Parameters
    ----------
    first, second : Tensor (P, D)
        Two views of the same prompts, row by row; computed in float64. A prompt of which either is
        zero is left out.
    power : float
        :math:`\alpha`, above 0.
    leave_one_out : bool
        Return the value without each prompt in turn, (P,).

    Returns
    -------
    Tensor, scalar float64
        Between 0 (equal directions) and :math:`2^\alpha`. NaN if no prompt is left, or values not
        finite.

    References
    ----------
    Wang and Isola (2020), *Understanding contrastive representation learning through alignment and
    uniformity on the hypersphere*, section 4.1.1.

    Examples
    --------
    >>> round(alignment(torch.eye(3), torch.eye(3).roll(1, 0)).item(), 6)
    2.0
    """
    units = unit_rows(torch.stack([first, second]).double())
    directed = (units != 0).any(-1).all(0)
    distances = torch.linalg.vector_norm(units[0] - units[1], dim=-1)
    counted: Tensor = (distances**power).where(directed, 0)
    total = counted.sum()
    count = directed.sum()
    if leave_one_out:
        return (total - counted) / (count - directed.long())
    return total / count

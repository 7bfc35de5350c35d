"""Uniformity: how evenly the prompts' directions cover the sphere."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from daskmetrics.metrics._spectra import blocks, unit_rows


def uniformity(vectors: Tensor, *, t: float = 2.0, leave_one_out: bool = False) -> Tensor:
    r"""Logarithm of the mean Gaussian potential over all pairs of different prompts.

    .. math:: \ln \frac{1}{P (P - 1)} \sum_{i \ne j} e^{-t \lVert \hat z_i - \hat z_j \rVert^2}

    Parameters
    ----------
    vectors : Tensor (P, D)
        One vector per prompt; computed in float64. Zero vectors have no direction and are left out.
    t : float
        Sharpness of the potential, above 0.
    leave_one_out : bool
        Return the value without each prompt in turn, (P,).

    Returns
    -------
    Tensor, scalar float64
        0 where all prompts point the same way, lower the more evenly they spread, never below -4 t.
        NaN for fewer than two vectors that are not zero, or values not finite.

    References
    ----------
    Wang and Isola (2020), *Understanding contrastive representation learning through alignment and
    uniformity on the hypersphere*, section 4.1.2. Their code takes each pair once, which is the
    same mean.

    Examples
    --------
    >>> round(uniformity(torch.eye(3)).item(), 6)
    -4.0
    """
    units = unit_rows(vectors.double())
    directed = (units != 0).any(-1)
    units = units[directed]
    count = len(units)
    if count < 2:
        return units.new_full((len(vectors),) if leave_one_out else (), torch.nan)
    potentials = units.new_empty(count)
    for block in blocks(count, count):
        rows = torch.arange(block.start, block.stop, device=units.device)
        anchors = torch.arange(len(rows), device=units.device)
        exponents = -2 * t * (1 - units[rows] @ units.mT)  # of unit vectors, |x - y|² = 2 - 2 x·y
        exponents[anchors, rows] = -torch.inf
        potentials[block] = exponents.logsumexp(1)  # over the pairs of each first prompt
    total = potentials.logsumexp(0)
    value = total - math.log(count * (count - 1))
    if not leave_one_out:
        return value
    without = value.repeat(len(vectors))
    # a prompt is in as many pairs as the first one as it is as the second
    shares = (potentials - total).exp()
    remaining = total + torch.log1p(-2 * shares)
    if count > 2:
        without[directed] = remaining - math.log((count - 1) * (count - 2))
    else:
        without[directed] = torch.nan
    return without

"""Anisotropy: mean cosine between two different prompts."""

from __future__ import annotations

import torch
from torch import Tensor

from daskmetrics.metrics._spectra import unit_rows


def anisotropy(vectors: Tensor, *, leave_one_out: bool = False) -> Tensor:
    r"""Mean cosine over all pairs of different prompts, in closed form.

    .. math:: \frac{\lVert \sum_i \hat z_i \rVert^2 - P}{P (P - 1)}

    Parameters
    ----------
    vectors : Tensor (P, D)
        One vector per prompt; computed in float64. Zero vectors have no direction and are left out.
    leave_one_out : bool
        Return the value without each prompt in turn, (P,).

    Returns
    -------
    Tensor, scalar float64
        1 where all prompts point the same way, about 0 where they point anywhere, never below -1 /
        (P - 1). NaN for fewer than two vectors that are not zero, or values not finite.

    References
    ----------
    Ethayarajh (2019), *How contextual are contextualized word representations?*, section 3, which
    averages over a sample of pairs; here all pairs count.

    Examples
    --------
    >>> anisotropy(torch.eye(3)).item(), anisotropy(torch.ones(3, 1)).item()
    (0.0, 1.0)
    """
    units = unit_rows(vectors.double())
    directed = (units != 0).any(-1)
    count = directed.sum()
    total = units.sum(0)
    squared = total.square().sum()
    if leave_one_out:
        count = count - directed.long()
        squared = squared - 2 * units @ total + directed
    pairs = count * (count - 1)
    return torch.where(pairs > 0, (squared - count) / pairs, torch.nan)

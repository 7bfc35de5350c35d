"""Effective rank: number of dimensions the prompts effectively use."""

from __future__ import annotations

import torch
from torch import Tensor

from daskmetrics.metrics._spectra import centred, entropy, spectrum


def effective_rank(vectors: Tensor) -> Tensor:
    r"""Exponential of the entropy of the singular values of centred prompts.

    .. math:: \operatorname{erank} = \exp \bigl(-\sum_i p_i \ln p_i\bigr), \; p_i = \sigma_i / \textstyle\sum_j \sigma_j

    The singular values are not squared: exp of the spectral entropy :math:`S_1` is another, smaller number.

    Parameters
    ----------
    vectors : Tensor (P, D)
        One vector per prompt; computed in float64.

    Returns
    -------
    Tensor, scalar float64
        Between 1 and min(P - 1, D). NaN for fewer than two prompts, equal prompts, or values not finite.

    References
    ----------
    Roy and Vetterli (2007), *The effective rank: a measure of effective dimensionality*, definition 1.

    Examples
    --------
    Singular values 3 and 1, as a set that is centred already:

    >>> half = torch.tensor([[3.0, 0.0], [0.0, 1.0]])
    >>> round(effective_rank(torch.cat([half, -half])).item(), 6)
    1.754765
    """
    return entropy(_above_rounding(spectrum(centred(vectors.double()))).sqrt()).exp()


def _above_rounding(squared: Tensor) -> Tensor:
    # the root would turn rounding of 1e-16 into singular values of 1e-8
    floor = squared.numel() * torch.finfo(squared.dtype).eps * squared.amax()
    return squared.where(squared > floor, 0)

"""Uniformity: how evenly the prompts' directions cover the sphere."""

from __future__ import annotations

import torch
from torch import Tensor

from daskmetrics.metrics._spectra import unit_rows

BLOCK = 1024  # rows of the P x P distances in memory at a time


def uniformity(vectors: Tensor, *, t: float = 2.0) -> Tensor:
    r"""Logarithm of the mean Gaussian potential over all pairs of different prompts.

    .. math:: \ln \frac{1}{P (P - 1)} \sum_{i \ne j} e^{-t \lVert \hat z_i - \hat z_j \rVert^2}

    Parameters
    ----------
    vectors : Tensor (P, D)
        One vector per prompt; computed in float64. Zero vectors have no direction and are left out.
    t : float
        Sharpness of the potential, above 0.

    Returns
    -------
    Tensor, scalar float64
        0 where all prompts point the same way, lower the more evenly they spread, never below -4 t.
        NaN for fewer than two vectors that are not zero, or values not finite.

    References
    ----------
    Wang and Isola (2020), *Understanding contrastive representation learning through alignment and uniformity on the
    hypersphere*, section 4.1.2. Their code takes each pair once, which is the same mean.

    Examples
    --------
    >>> round(uniformity(torch.eye(3)).item(), 6)
    -4.0
    """
    units = unit_rows(vectors.double())
    units = units[(units != 0).any(-1)]
    prompts = len(units)
    if prompts < 2:
        return vectors.new_full((), torch.nan, dtype=torch.float64)
    total = torch.stack([_potential(units, start, t) for start in range(0, prompts, BLOCK)]).logsumexp(0)
    return total - torch.tensor(prompts * (prompts - 1.0), dtype=torch.float64).log()


def _potential(units: Tensor, start: int, t: float) -> Tensor:
    """Logarithm of the sum over the pairs whose first prompt is in one block."""
    own = torch.arange(start, min(start + BLOCK, len(units)), device=units.device)
    exponents = -2 * t * (1 - units[own] @ units.mT)  # of unit vectors, |x - y|² = 2 - 2 x·y
    exponents[torch.arange(len(own), device=units.device), own] = -torch.inf
    return exponents.logsumexp((0, 1))

"""InfoNCE: how hard it is to find a prompt's other view among all prompts."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from daskmetrics.metrics._spectra import centred as less_mean
from daskmetrics.metrics._spectra import unit_rows


def infonce(
    first: Tensor, second: Tensor, *, temperature: float = 0.1, centred: bool = False, variant: str = "corrected"
) -> Tensor:
    r"""Normalised temperature-scaled cross entropy (NT-Xent) of two views, in nats.

    .. math:: \frac{1}{2P} \sum_i -\ln \frac{\exp(\hat z_i \cdot \hat z_{i'} / \tau)}
              {\sum_{k \ne i} \exp(\hat z_i \cdot \hat z_k / \tau)}

    over all 2P vectors :math:`z_i`, with :math:`i'` the other view of the same prompt. Lower means that the layer
    keeps what the two views share.

    Parameters
    ----------
    first, second : Tensor (P, D)
        Two views of the same prompts, row by row; computed in float64, with (2P)² numbers in memory.
    temperature : float
        :math:`\tau`, above 0, in units of cosine.
    centred : bool
        Whether the mean of all 2P vectors is taken off first; without it a direction common to all prompts hides what
        tells them apart.
    variant : {"corrected", "paper"}
        ``paper`` leaves vectors as long as they are, as the code published with *Layer by Layer* does.

    Returns
    -------
    Tensor, scalar float64
        ln(2P - 1) at chance. NaN for fewer than two prompts (nothing to confuse them with), or values not finite.

    References
    ----------
    Chen et al. (2020), *A simple framework for contrastive learning of visual representations*, equation 1;
    van den Oord et al. (2018), equation 4.

    Examples
    --------
    Vectors without a direction are told apart by chance only:

    >>> round(infonce(torch.zeros(3, 8), torch.zeros(3, 8)).exp().item(), 6)
    5.0
    """
    prompts = len(first)
    if prompts < 2:
        return first.new_full((), torch.nan, dtype=torch.float64)
    units = torch.cat([first, second]).double()
    if not units.isfinite().all():
        return units.new_full((), torch.nan)
    units = less_mean(units) if centred else units
    units = units if variant == "paper" else unit_rows(units)
    likeness = (units @ units.mT / temperature).fill_diagonal_(-torch.inf)
    partner = torch.arange(2 * prompts, device=units.device).roll(prompts)
    return cross_entropy(likeness, partner)

"""InfoNCE: how hard it is to find a prompt's other view among all prompts."""

from __future__ import annotations

import torch
from torch import Tensor

from daskmetrics.metrics._spectra import blocks, unit_rows
from daskmetrics.metrics._spectra import centred as less_mean


def infonce(
    first: Tensor,
    second: Tensor,
    *,
    temperature: float = 0.1,
    centred: bool = False,
    variant: str = "corrected",
    leave_one_out: bool = False,
) -> Tensor:
    r"""Normalised temperature-scaled cross entropy (NT-Xent) of two views, in nats.

    .. math:: \frac{1}{2P} \sum_i -\ln \frac{\exp(\hat z_i \cdot \hat z_{i'} / \tau)}
              {\sum_{k \ne i} \exp(\hat z_i \cdot \hat z_k / \tau)}

    over all 2P vectors :math:`z_i`, with :math:`i'` the other view of the same prompt. Lower means
    that the layer keeps the information that the two views share.

    Parameters
    ----------
    first, second : Tensor (P, D)
        Two views of the same prompts, row by row; computed in float64.
    temperature : float
        :math:`\tau`, above 0, in units of cosine.
    centred : bool
        Subtract the mean of all 2P vectors first; otherwise a direction common to all prompts hides
        the differences between them.
    variant : {"corrected", "paper"}
        ``paper`` leaves vectors as long as they are, as the code published with *Layer by Layer*
        does.
    leave_one_out : bool
        Return the value without each prompt in turn, (P,).

    Returns
    -------
    Tensor, scalar float64
        ln(2P - 1) at chance. NaN for fewer than two prompts (nothing to confuse them with), or
        values not finite.

    References
    ----------
    Chen et al. (2020), *A simple framework for contrastive learning of visual representations*,
    equation 1; van den Oord et al. (2018), equation 4.

    Examples
    --------
    Vectors without a direction can only be guessed:

    >>> round(infonce(torch.zeros(3, 8), torch.zeros(3, 8)).exp().item(), 6)
    5.0
    """
    prompts = len(first)
    shape = (prompts,) if leave_one_out else ()
    units = torch.cat([first, second]).double()
    if prompts < 2 + leave_one_out or not units.isfinite().all():
        return units.new_full(shape, torch.nan)
    if centred:
        units = less_mean(units)
    if variant != "paper":
        units = unit_rows(units)
    total = units.new_zeros(shape)
    for block in blocks(2 * prompts, 2 * prompts):
        total += _losses(units, block, temperature, leave_one_out)
    return total / (2 * (prompts - leave_one_out))


def _losses(units: Tensor, block: slice, temperature: float, leave_one_out: bool) -> Tensor:
    """Sum of the losses of one block; or without each prompt, (P,)."""
    prompts = len(units) // 2
    rows = torch.arange(block.start, block.stop, device=units.device)
    anchors = torch.arange(len(rows), device=units.device)
    similarity = units[rows] @ units.mT / temperature
    similarity[anchors, rows] = -torch.inf
    all_others = similarity.logsumexp(1)
    other_views = (rows + prompts) % len(units)
    partner = similarity[anchors, other_views]
    losses = all_others - partner
    if not leave_one_out:
        return losses.sum()
    shares = (similarity - all_others[:, None]).exp().view(-1, 2, prompts).sum(1)
    without = losses[:, None] + torch.log1p(-shares)
    largest = shares.argmax(1)  # the one prompt whose absence could cancel nearly everything
    similarity.view(-1, 2, prompts)[anchors, :, largest] = -torch.inf
    without[anchors, largest] = similarity.logsumexp(1) - partner
    without[anchors, rows % prompts] = 0  # its two vectors are not anchors either
    return without.sum(0)

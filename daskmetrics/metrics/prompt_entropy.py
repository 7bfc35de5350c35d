"""Prompt entropy: how many directions the tokens of a prompt spread over."""

from __future__ import annotations

import torch
from torch import Tensor

from daskmetrics.metrics._spectra import (
    Spectra,
    Step,
    at_least_float32,
    later,
    matrix_entropy,
    normalised,
    published_entropy,
    unit_rows,
)
from daskmetrics.metrics._spectra import centred as less_mean


def prompt_entropy(
    states: Tensor | Spectra,
    mask: Tensor | None = None,
    *,
    alpha: float = 1.0,
    centred: bool = True,
    norm: str = "none",
    variant: str = "corrected",
    first: bool = True,
) -> Tensor:
    r"""Von Neumann entropy of the token covariance of each prompt, in nats.

    .. math:: S_1 = -\sum_i p_i \ln p_i, \quad p_i = \lambda_i / \textstyle\sum_j \lambda_j, \quad
              S_\alpha = \frac{1}{1 - \alpha} \ln \sum_i p_i^\alpha

    with :math:`\lambda` the eigenvalues of :math:`Z Z^\top`, where the rows of :math:`Z` are the
    prompt's tokens, first centred, then scaled to length one.

    Parameters
    ----------
    states : Tensor (B, T, D) or Spectra
        Hidden states; half precision is computed in float32.
    mask : Tensor (B, T) of bool
        True where a token counts; all do by default.
    alpha : float
        Order of Rényi's entropy, above 0; 1 is the limit :math:`S_1`, 2 needs no eigenvalues.
    centred : bool
        Subtract the mean of the tokens first.
    norm : {"none", "logN", "logD", "logNlogD", "maxEntropy"}
        Divides by ln T, ln D, ln T ln D or ln min(T, D), T being the tokens that count.
    variant : {"corrected", "paper"}
        ``paper`` computes what the published code does (see Notes).
    first : bool
        Count the first token. Many language models give it a huge norm, which hides the others
        (see Notes).

    Returns
    -------
    Tensor (B,)
        Between 0 and ln min(T - 1, D). NaN for a prompt of one token, of equal tokens, or that is
        not finite.

    Notes
    -----
    A token that equals the mean has no direction and adds nothing. If the first token is longer
    than the others by more than their number, the mean points at it, all others differ from the
    mean in nearly that one direction, and the entropy is near zero, whatever they say.

    The published code of *Layer by
    Layer* sets negative entries of the Gram matrix to zero, which adds about 0.3 nats, and takes
    order 2 by a shortcut that is wrong where T > D: published numbers reach 21 where ln 1000 = 6.9.
    It divides by zero where a token is the mean.

    References
    ----------
    Wei et al. (2024), *Large Language Model Evaluation via Matrix Entropy* (centred, unit rows);
    Skean et al. (2025), *Layer by Layer* (the same at every layer, orders and norms); Giraldo et
    al. (2015).

    Examples
    --------
    Four orthogonal tokens, centred, span three equal directions:

    >>> value = prompt_entropy(torch.eye(4)[None], torch.ones(1, 4, dtype=torch.bool))
    >>> round(value.exp().item(), 4)
    3.0
    """
    if isinstance(states, Spectra):
        spectra = states
    else:
        spectra = Spectra(at_least_float32(states), mask, torch.finfo(states.dtype).eps)
    steps: list[Step] = ["unit"]
    if centred:
        steps.insert(0, "centred")
    keep = spectra.keep
    if not first:
        steps.insert(0, "later")
        keep = later(keep)
    if variant == "corrected":
        value = matrix_entropy(spectra, tuple(steps), alpha)
        return normalised(value, norm, keep, spectra.width)
    # prompt by prompt: which matrix is the smaller one depends on the tokens that count
    values = []
    for rows, counted in zip(spectra.rows, keep, strict=True):
        tokens = rows[counted]
        if centred and len(tokens):
            tokens = less_mean(tokens)
        values.append(published_entropy(unit_rows(tokens), alpha))
    return normalised(torch.stack(values), norm, keep, spectra.width)

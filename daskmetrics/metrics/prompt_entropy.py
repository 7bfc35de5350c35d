"""Prompt entropy: how many directions the tokens of a prompt spread over."""

from __future__ import annotations

from torch import Tensor

from daskmetrics.metrics._spectra import at_least_float32, centred, entropy, spectrum, unit_rows


def prompt_entropy(states: Tensor, mask: Tensor) -> Tensor:
    r"""Von Neumann entropy of the token covariance of each prompt, in nats.

    .. math:: S_1 = -\sum_i p_i \ln p_i, \quad p_i = \lambda_i / \textstyle\sum_j \lambda_j

    with :math:`\lambda` the eigenvalues of :math:`Z Z^\top`, where the rows of :math:`Z` are the prompt's tokens,
    first centred, then scaled to length one.

    Parameters
    ----------
    states : Tensor (B, T, D)
        Hidden states; half precision is computed in float32.
    mask : Tensor (B, T) of bool
        True where a token counts.

    Returns
    -------
    Tensor (B,)
        Between 0 and ln min(T - 1, D). NaN for a prompt of one token, of equal tokens, or that is not finite.

    Notes
    -----
    A token that equals the mean has no direction and adds nothing. Published numbers of order 2 come from a shortcut
    that is right only for a Gram matrix of trace T, reach 21 where ln 1000 = 6.9, and cannot be compared with these.

    References
    ----------
    Wei et al. (2024), *Large Language Model Evaluation via Matrix Entropy* (centred, unit rows);
    Skean et al. (2025), *Layer by Layer* (the same at every layer).

    Examples
    --------
    Four orthogonal tokens, centred, span three equal directions:

    >>> import torch
    >>> value = prompt_entropy(torch.eye(4)[None], torch.ones(1, 4, dtype=torch.bool))
    >>> round(value.exp().item(), 4)
    3.0
    """
    tokens = unit_rows(centred(at_least_float32(states), mask))
    return entropy(spectrum(tokens))

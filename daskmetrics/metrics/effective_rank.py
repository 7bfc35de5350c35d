"""Effective rank: number of dimensions the prompts effectively use."""

from __future__ import annotations

from torch import Tensor

from daskmetrics.metrics._spectra import Spectra, entropy, of_covariance


def effective_rank(
    vectors: Tensor | Spectra, *, centred: bool = True, squared: bool = False
) -> Tensor:
    r"""Exponential of the entropy of the singular values of centred prompts.

    .. math:: \operatorname{erank} = \exp \bigl(-\sum_i p_i \ln p_i\bigr), \; p_i = \sigma_i /
    \textstyle\sum_j \sigma_j

    The singular values are not squared: exp of the spectral entropy :math:`S_1` is another, smaller
    number.

    Parameters
    ----------
    vectors : Tensor (P, D) or Spectra
        One vector per prompt; computed in float64.
    centred : bool
        Subtract the mean prompt first.
    squared : bool
        Whether the shares are of :math:`\sigma_i^2`, which gives :math:`\exp S_1`.

    Returns
    -------
    Tensor, scalar float64
        Between 1 and min(P - 1, D). NaN for fewer than two prompts, equal prompts, or values not
        finite.

    References
    ----------
    Roy and Vetterli (2007), *The effective rank: a measure of effective dimensionality*, definition
    1.

    Examples
    --------
    Singular values 3 and 1, as a set that is centred already:

    >>> import torch
    >>> half = torch.tensor([[3.0, 0.0], [0.0, 1.0]])
    >>> round(effective_rank(torch.cat([half, -half])).item(), 6)
    1.754765
    """
    return of_covariance(
        vectors, lambda values: entropy(values if squared else values.sqrt()).exp(), centred
    )

"""Participation ratio: number of dimensions that share the variance of the prompts."""

from __future__ import annotations

from torch import Tensor

from daskmetrics.metrics._spectra import Spectra, of_covariance


def participation_ratio(vectors: Tensor | Spectra, *, centred: bool = True) -> Tensor:
    r"""Squared sum over sum of squares of the covariance's eigenvalues.

    .. math:: \frac{(\sum_i \lambda_i)^2}{\sum_i \lambda_i^2}

    Parameters
    ----------
    vectors : Tensor (P, D) or Spectra
        One vector per prompt; computed in float64.
    centred : bool
        Subtract the mean prompt first.

    Returns
    -------
    Tensor, scalar float64
        Between 1 and min(P - 1, D). NaN for fewer than two prompts, equal prompts, or values not
        finite.

    References
    ----------
    Gao et al. (2017), *A theory of multineuronal dimensionality, dynamics and measurement*; it is
    the exponential of Rényi's entropy of order 2.

    Examples
    --------
    >>> import torch
    >>> half = torch.tensor([[3.0, 0.0], [0.0, 1.0]])
    >>> round(participation_ratio(torch.cat([half, -half])).item(), 6)
    1.219512
    """
    return of_covariance(
        vectors, lambda values: 1 / (values / values.sum()).square().sum(), centred
    )

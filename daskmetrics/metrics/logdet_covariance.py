"""Log-det covariance: volume that the prompts fill."""

from __future__ import annotations

import math

from torch import Tensor

from daskmetrics.metrics._spectra import Spectra, of_covariance, of_pooled


def logdet_covariance(vectors: Tensor | Spectra, *, ridge: float = 1e-6) -> Tensor:
    r"""Logarithm of the determinant of the covariance plus a ridge, in nats.

    .. math:: \ln \det (C + \epsilon I) = \sum_{i=1}^{D} \ln(\lambda_i + \epsilon), \quad
              C = \tfrac1P \sum_i (z_i - \bar z)(z_i - \bar z)^\top

    Parameters
    ----------
    vectors : Tensor (P, D) or Spectra
        One vector per prompt; computed in float64.
    ridge : float
        :math:`\epsilon`, above 0, in squared units of the states. Each direction without variance
        adds :math:`\ln \epsilon`, so values are compared at equal D and P only.

    Returns
    -------
    Tensor, scalar float64
        It grows with the scale of the states. NaN for fewer than two prompts, equal prompts, or
        values not finite.

    References
    ----------
    Zhouyin and Liu (2021), *Understanding neural networks with logarithm determinant entropy
    estimator* (the ridge).

    Examples
    --------
    >>> import torch
    >>> half = torch.diag(torch.tensor([2.0, 1.0]))
    >>> round(logdet_covariance(torch.cat([half, -half])).exp().item(), 4)
    1.0
    """
    prompts, width = of_pooled(vectors).rows.shape

    def volume(values: Tensor) -> Tensor:
        empty = (width - len(values)) * math.log(ridge)
        return (values / prompts + ridge).log().sum() + empty

    return of_covariance(vectors, volume)

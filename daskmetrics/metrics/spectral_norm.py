"""Spectral norm: variance of the prompts along their first principal direction."""

from __future__ import annotations

from torch import Tensor

from daskmetrics.metrics._spectra import Spectra, of_covariance, of_pooled


def spectral_norm(vectors: Tensor | Spectra) -> Tensor:
    r"""Largest eigenvalue of the covariance, in squared units of the states.

    .. math:: \lambda_1(C), \quad C = \tfrac1P \sum_i (z_i - \bar z)(z_i - \bar z)^\top

    Parameters
    ----------
    vectors : Tensor (P, D) or Spectra
        One vector per prompt; computed in float64.

    Returns
    -------
    Tensor, scalar float64
        NaN for fewer than two prompts, equal prompts, or values not finite.

    References
    ----------
    The squared spectral norm of the centred matrix of prompts, over P.

    Examples
    --------
    >>> import torch
    >>> round(spectral_norm(torch.tensor([[-3.0, 0.0], [3.0, 0.0]])).item(), 6)
    9.0
    """
    prompts = len(of_pooled(vectors).rows)
    return of_covariance(vectors, lambda values: values[-1] / prompts)

"""RankMe: number of dimensions the prompts effectively use, their mean included."""

from __future__ import annotations

import torch
from torch import Tensor

from daskmetrics.metrics._spectra import Spectra, of_covariance


def rankme(vectors: Tensor | Spectra, *, eps: float = 1e-7) -> Tensor:
    r"""Exponential entropy of the singular values of prompts, not centred.

    .. math:: \exp \bigl(-\sum_k p_k \ln p_k\bigr), \quad p_k = \sigma_k / \textstyle\sum_j \sigma_j
    + \epsilon

    Parameters
    ----------
    vectors : Tensor (P, D) or Spectra
        One vector per prompt; computed in float64.
    eps : float
        :math:`\epsilon`, at least 0; with 0 it is `effective_rank` without centring.

    Returns
    -------
    Tensor, scalar float64
        Between 1 and min(P, D), up to ``eps``. NaN if all vectors are zero, or values not finite.

    References
    ----------
    Garrido et al. (2023), *RankMe: assessing the downstream performance of pretrained
    self-supervised representations by their rank*, equation 1.

    Examples
    --------
    >>> round(rankme(torch.diag(torch.tensor([3.0, 1.0]))).item(), 4)
    1.7548
    """

    def rank(values: Tensor) -> Tensor:
        sigma = values.sqrt()
        terms: Tensor = torch.special.entr(sigma / sigma.sum() + eps)
        return terms.sum().exp()

    return of_covariance(vectors, rank, centre=False)

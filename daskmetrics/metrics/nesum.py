"""NESum: normalised sum of the eigenvalues of the covariance of prompts."""

from __future__ import annotations

from torch import Tensor

from daskmetrics.metrics._spectra import Spectra
from daskmetrics.metrics.stable_rank import stable_rank


def nesum(vectors: Tensor | Spectra) -> Tensor:
    r"""Sum of the eigenvalues of the covariance over the largest of them.

    .. math:: \sum_i \lambda_i / \lambda_1

    Parameters
    ----------
    vectors : Tensor (P, D) or Spectra
        One vector per prompt; computed in float64.

    Returns
    -------
    Tensor, scalar float64
        Between 1 (collapsed) and min(P - 1, D) (whitened). NaN for fewer than two prompts, equal
        prompts, or values not finite.

    References
    ----------
    He and Ozay (2022), *Exploring the gap between collapsed and whitened features in
    self-supervised learning*.

    Examples
    --------
    >>> import torch
    >>> round(nesum(torch.eye(5)).item(), 6)
    4.0
    """
    return stable_rank(vectors, centred=True)

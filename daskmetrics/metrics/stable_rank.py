"""Stable rank: sum of the squared singular values, relative to the largest one."""

from __future__ import annotations

from torch import Tensor

from daskmetrics.metrics._spectra import Spectra, of_covariance


def stable_rank(vectors: Tensor | Spectra, *, centred: bool = False) -> Tensor:
    r"""Squared Frobenius norm over squared spectral norm of the matrix of prompts.

    .. math:: \frac{\lVert Z \rVert_F^2}{\lVert Z \rVert_2^2} = \frac{\sum_i \sigma_i^2}{\sigma_1^2}

    Parameters
    ----------
    vectors : Tensor (P, D) or Spectra
        One vector per prompt; computed in float64.
    centred : bool
        Subtract the mean prompt first; the value is then that of `nesum`.

    Returns
    -------
    Tensor, scalar float64
        Between 1 and min(P, D). NaN if all vectors are zero, or values not finite.

    References
    ----------
    Rudelson and Vershynin (2007), *Sampling from large matrices* (there "numerical rank").

    Examples
    --------
    >>> import torch
    >>> round(stable_rank(torch.diag(torch.tensor([3.0, 1.0]))).item(), 6)
    1.111111
    """
    return of_covariance(vectors, lambda values: values.sum() / values[-1], centred)

"""Dataset entropy: how many directions the prompts spread over."""

from __future__ import annotations

from torch import Tensor

from daskmetrics.metrics._spectra import centred, entropy, spectrum, unit_rows


def dataset_entropy(vectors: Tensor) -> Tensor:
    r"""Von Neumann entropy of the covariance of prompts, in nats.

    .. math:: S_1 = -\sum_i p_i \ln p_i, \quad p_i = \lambda_i / \textstyle\sum_j \lambda_j

    with :math:`\lambda` the eigenvalues of the covariance of the prompts' directions: rows are first scaled to
    length one, then centred. (Tokens, in `prompt_entropy`, are centred first.)

    Parameters
    ----------
    vectors : Tensor (P, D)
        One vector per prompt; computed in float64.

    Returns
    -------
    Tensor, scalar float64
        Between 0 and ln min(P - 1, D). NaN for fewer than two prompts, equal directions, or values not finite.

    References
    ----------
    Skean et al. (2025), *Layer by Layer*, dataset entropy; centring as in Wei et al. (2024).

    Examples
    --------
    >>> import torch
    >>> round(dataset_entropy(torch.eye(4)).exp().item(), 6)
    3.0
    """
    return entropy(spectrum(centred(unit_rows(vectors.double()))))

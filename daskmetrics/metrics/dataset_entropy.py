"""Dataset entropy: how many directions the prompts spread over."""

from __future__ import annotations

from torch import Tensor

from daskmetrics.metrics._spectra import (
    Spectra,
    matrix_entropy,
    normalised,
    of_pooled,
    published_entropy,
)


def dataset_entropy(
    vectors: Tensor | Spectra,
    *,
    alpha: float = 1.0,
    centred: bool = True,
    norm: str = "none",
    variant: str = "corrected",
) -> Tensor:
    r"""Von Neumann entropy of the covariance of prompts, in nats.

    .. math:: S_1 = -\sum_i p_i \ln p_i, \quad p_i = \lambda_i / \textstyle\sum_j \lambda_j

    with :math:`\lambda` the eigenvalues of the covariance of the prompts' directions: rows are
    first scaled to length one, then centred. (Tokens, in `prompt_entropy`, are centred first.)

    Parameters
    ----------
    vectors : Tensor (P, D) or Spectra
        One vector per prompt; computed in float64.
    alpha : float
        Order of Rényi's entropy, above 0; 1 is the limit :math:`S_1`.
    centred : bool
        Subtract the mean of the directions.
    norm : {"none", "logN", "logD", "logNlogD", "maxEntropy"}
        Divides by ln P, ln D, ln P ln D or ln min(P, D).
    variant : {"corrected", "paper"}
        ``paper`` computes what the published code does with the vectors it is given (see Notes);
        ``centred`` has no part in it.

    Returns
    -------
    Tensor, scalar float64
        Between 0 and ln min(P - 1, D). NaN for fewer than two prompts, equal directions, or values
        not finite.

    Notes
    -----
    The published code neither scales nor centres the vectors, sets negative entries of their Gram
    matrix to zero, and takes order 2 by a shortcut that needs a trace of m. Its vectors are means
    of tokens that were centred before, which are zero up to the scaling of tokens; here every
    variant gets the vectors of the protocol.

    References
    ----------
    Skean et al. (2025), *Layer by Layer*, dataset entropy; centring as in Wei et al. (2024).

    Examples
    --------
    >>> import torch
    >>> round(dataset_entropy(torch.eye(4)).exp().item(), 6)
    3.0
    """
    spectra = of_pooled(vectors)
    if variant == "paper":
        value = published_entropy(spectra.rows, alpha)
    else:
        value = matrix_entropy(spectra, ("unit", "centred") if centred else ("unit",), alpha)
    return normalised(value, norm, spectra.keep, spectra.width)

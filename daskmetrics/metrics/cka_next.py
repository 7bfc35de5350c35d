"""Linear CKA of a layer with the next one: how little the next layer changes."""

from __future__ import annotations

import torch
from torch import Tensor


def cka_next(here: Tensor, following: Tensor, *, debiased: bool = False) -> Tensor:
    r"""Linear centred kernel alignment of two layers' prompts.

    .. math:: \frac{\lVert X^\top Y \rVert_F^2}{\lVert X^\top X \rVert_F \, \lVert Y^\top Y
    \rVert_F}

    with the columns of X and Y centred.

    Parameters
    ----------
    here, following : Tensor (P, D1) and (P, D2)
        Vectors of the same prompts in two layers, row by row; computed in float64.
    debiased : bool
        Whether each product is the unbiased estimate of HSIC, for fewer prompts than dimensions;
        needs four prompts.

    Returns
    -------
    Tensor, scalar float64
        1 for a rotated and scaled copy, between 0 and 1 (debiased: about 0 for unrelated layers).
        NaN for fewer than two prompts, a layer of equal prompts, or values not finite.

    References
    ----------
    Kornblith et al. (2019), *Similarity of neural network representations revisited*, section 3;
    debiased as in Nguyen et al. (2021), with the estimator of Song et al. (2012), *Feature
    selection via dependence maximization*.

    Examples
    --------
    >>> states = torch.eye(4)[:, :3]
    >>> round(cka_next(states, -2 * states.flip(1)).item(), 6)
    1.0
    """
    x = _scaled(here)
    y = _scaled(following)
    product = _biased
    fewest = 2
    if debiased:
        product = _unbiased
        fewest = 4
    if len(x) < fewest:
        return x.new_full((), torch.nan)
    norms = product(x, x) * product(y, y)
    similarity = product(x, y) / norms.sqrt()
    return torch.where(norms > 0, similarity, torch.nan)


def _scaled(vectors: Tensor) -> Tensor:
    """Centred, with a largest entry of 1, so that no power overflows."""
    rows = vectors.double()
    deviations = rows - rows.mean(0)
    rounding = 32 * torch.finfo(rows.dtype).eps * rows.abs().max()
    largest = deviations.abs().max()
    return torch.where(largest > rounding, deviations / largest, 0 * deviations)


def _biased(x: Tensor, y: Tensor) -> Tensor:
    # the sum of the squared entries of XᵀY is the product of the Gram matrices; the smaller one is
    # computed
    if len(x) < min(x.shape[1], y.shape[1]):
        return ((x @ x.mT) * (y @ y.mT)).sum()
    return (x.mT @ y).square().sum()


def _unbiased(x: Tensor, y: Tensor) -> Tensor:
    """n (n - 3) times the unbiased HSIC, from centred rows.

    The terms i = j of the Gram matrices are taken out.
    """
    n = len(x)
    x_lengths = x.square().sum(1)
    y_lengths = y.square().sum(1)
    diagonal = n / (n - 2) * (x_lengths * y_lengths).sum()
    traces = x_lengths.sum() * y_lengths.sum()
    return _biased(x, y) - diagonal + traces / ((n - 1) * (n - 2))

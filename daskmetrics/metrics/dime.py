"""DiME: the information that two views of the prompts share."""

from __future__ import annotations

import torch
from torch import Tensor

from daskmetrics.metrics._eigenvalues import eigenvalues
from daskmetrics.metrics._spectra import entropy, gram, unit_rows


def dime(
    first: Tensor,
    second: Tensor,
    *,
    permutations: int = 10,
    alpha: float = 1.0,
    most: int = 1024,
    seed: int = 0,
    variant: str = "corrected",
) -> Tensor:
    r"""Joint entropy of views paired at random, less that of true pairs.

    .. math:: \frac1m \sum_{\Pi} S(K_A \circ \Pi K_B \Pi^\top) - S(K_A \circ K_B)

    with K the P x P Gram matrix of the unit rows of a view, and m seeded random permutations.

    Parameters
    ----------
    first, second : Tensor (P, D)
        Two views of the same prompts, row by row; computed in float64.
    permutations : int
        m, at least 1.
    alpha : float
        Order of Rényi's entropy, above 0.
    most : int
        Number of prompts, from the first on, that are used: time grows with its cube.
    seed : int
        Of the permutations.
    variant : {"corrected", "paper"}
        ``paper`` computes what the published code does (see Notes).

    Returns
    -------
    Tensor, scalar float64
        About 0 where pairing does not matter; higher where the views share more. NaN for fewer than
        two prompts, without a direction in common to any pair of views, or values not finite.

    Notes
    -----
    Prompts are sorted by their similarity to all others before they are permuted, so that the value
    does not depend on their order. The code published with *Layer by Layer* does not scale vectors,
    draws the permutations without a seed, and multiplies D x D covariances where P > D: entries
    then belong to dimensions, not prompts, and nothing is paired.

    References
    ----------
    Skean et al. (2023), *DiME: maximizing mutual information by a difference of matrix-based
    entropies*.

    Examples
    --------
    >>> round(dime(torch.eye(3), torch.eye(3)).item(), 6)
    0.0
    """
    rows = torch.stack([first[:most], second[:most]]).double()
    if rows.shape[1] < 2:
        return rows.new_full((), torch.nan)
    if variant == "paper":
        first_gram, second_gram = gram(rows)
    else:
        units = unit_rows(rows)
        first_gram, second_gram = units @ units.mT
        order = (first_gram.square().sum(1) + second_gram.square().sum(1)).argsort()
        first_gram = first_gram[order][:, order]
        second_gram = second_gram[order][:, order]
    as_they_are = entropy(eigenvalues(first_gram * second_gram), alpha)
    generator = torch.Generator().manual_seed(seed)
    at_random = []
    for _ in range(permutations):
        order = torch.randperm(len(first_gram), generator=generator)
        product = first_gram * second_gram[order][:, order]
        at_random.append(entropy(eigenvalues(product), alpha))
    return torch.stack(at_random).mean() - as_they_are

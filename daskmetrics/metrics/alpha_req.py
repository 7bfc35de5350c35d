"""Alpha-ReQ: how fast the spectrum of the prompts decays."""

from __future__ import annotations

import torch
from torch import Tensor

from daskmetrics.metrics._spectra import Spectra, of_covariance, of_pooled

# near the noise an eigenvalue is larger by the noise, which bends a line through logarithms
NEAR = 8.0


def alpha_req(vectors: Tensor | Spectra, *, centred: bool = True) -> Tensor:
    r"""Exponent of the power law that the eigenvalues of the covariance follow.

    .. math:: \lambda_i \propto i^{-\alpha}

    fitted by least squares of :math:`\ln \lambda_i` against :math:`\ln i`, over all eigenvalues
    above rounding: above min(P, D) times the float64 spacing of the largest one (as
    `numpy.linalg.matrix_rank`), and above 8 times the noise that
    `daskmetrics.metrics._spectra.Spectra.noise` derives.

    Parameters
    ----------
    vectors : Tensor (P, D) or Spectra
        One vector per prompt; computed in float64. Vectors in half precision have a higher floor.
    centred : bool
        Subtract the mean prompt first.

    Returns
    -------
    Tensor, scalar float64
        At least 0 (white). NaN for fewer than two eigenvalues above rounding, as of prompts on a
        line, or values not finite.

    References
    ----------
    Agrawal et al. (2022), *alpha-ReQ: assessing representation quality in self-supervised learning
    by measuring eigenspectrum decay*; Stringer et al. (2019).

    Examples
    --------
    >>> rank = torch.arange(1.0, 9.0, dtype=torch.float64)
    >>> half = torch.diag(rank**-0.75)
    >>> round(alpha_req(torch.cat([half, -half])).item(), 6)
    1.5
    """

    spectra = of_pooled(vectors)
    # of the whole rows: a line may lie in the few dimensions that the median ignores
    of_a_line = NEAR * spectra.noise(torch.mean)

    def decay(values: Tensor) -> Tensor:
        kept = values[values > 0].flip(0)
        if len(kept) < 2 or kept[1] <= of_a_line:
            return values.new_full((), torch.nan)
        ranks = torch.arange(1, len(kept) + 1, dtype=kept.dtype, device=kept.device)
        height = kept.log()
        height -= height.mean()
        along = ranks.log()
        along -= along.mean()
        return -(height * along).sum() / along.square().sum()

    return of_covariance(spectra, decay, centred, above=NEAR)

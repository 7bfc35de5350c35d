"""The spectra of a layer, each computed once and shared by all metrics that are functions of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Literal, TypeAlias

import torch
from torch import Tensor

from daskmetrics.metrics._eigenvalues import (
    checked,
    eigenvalues,
    has_residual,
    is_queued,
    unchecked,
)

Step: TypeAlias = Literal["later", "centred", "unit"]


class Spectra:
    """Rows (..., N, D), with Gram matrices and spectra, each computed once.

    ``keep`` (..., N) says which rows count.

    ``eps`` is the spacing of the numbers in which the rows were computed (`torch.finfo`), by
    default that of their type: states in half precision keep its rounding when they are widened.

    >>> spectra = Spectra(torch.tensor([[3.0, 0.0], [0.0, 1.0]]))
    >>> spectra.values(), spectra.values("unit")
    (tensor([1., 9.]), tensor([1.0000, 1.0000]))
    """

    def __init__(
        self,
        rows: Tensor,
        keep: Tensor | None = None,
        eps: float | None = None,
        deferred: bool = False,  # whether `solve_together` computes the eigenvalues
    ) -> None:
        if keep is None:
            keep = rows.new_ones(rows.shape[:-1], dtype=torch.bool)
        if eps is None:
            eps = torch.finfo(rows.dtype).eps
        self.rows = rows
        self.eps = eps
        self.keep = keep
        self.width = rows.shape[-1]
        self._deferred = deferred
        self._grams: dict[tuple[Step, ...], Tensor] = {}
        self._values: dict[tuple[Step, ...], Tensor] = {}

    def gram(self, *steps: Step) -> Tensor:
        """The smaller of Gram matrix and covariance sum, (..., m, m).

        The preparation steps are done in order; ``later`` leaves out the first row that counts.
        """
        if steps in self._grams:
            return self._grams[steps]
        keep = self.keep
        if "later" in steps:
            keep = later(keep)
        if steps[-1:] == ("unit",):
            flat = self.rows.reshape(-1, *self.rows.shape[-2:])
            flat_keep = keep.reshape(len(flat), -1)
            matrices = with_care(_quick_unit_gram, _prepared_gram, flat, flat_keep, steps, self.eps)
            matrix = matrices.reshape(*self.rows.shape[:-2], *matrices.shape[-2:])
        else:
            matrix = _prepared_gram(self.rows, keep, steps, self.eps)
        self._grams[steps] = matrix
        return matrix

    def values(self, *steps: Step) -> Tensor:
        """Eigenvalues of `gram`, ascending, (..., m), not below zero.

        Deferred ones are `NotSolved` before `solve_together`.
        """
        if steps not in self._values:
            matrix = self.gram(*steps)
            if self._deferred:
                raise NotSolved
            self._values[steps] = eigenvalues(matrix)
        return self._values[steps]

    def release(self) -> None:
        """Keep only the matrices."""
        self.rows = self.rows.new_empty(0)

    @property
    def rounding(self) -> float:
        r"""Standard error of an entry, relative to it.

        Rounding to half precision adds independent errors of variance ulp(z)² / 12 (Widrow &
        Kollár, *Quantization Noise*, 2008), where ulp(z)² is :math:`\epsilon^2 z^2 / 2` on average.
        A forward pass in float32 adds several of its units.
        """
        if self.eps > HALF:
            return self.eps / 24**0.5
        return 4 * self.eps

    def noise(self, typical: Callable[[Tensor], Tensor] = torch.median) -> Tensor:
        r"""Eigenvalue (scalar) up to which a spectrum is `rounding`.

        It is that of rows (N, D).

        .. math:: r^2 \operatorname{median}_j \Bigl(\frac1N \sum_i z_{ij}^2\Bigr)
                  \bigl(\sqrt N + \sqrt D\bigr)^2

        The eigenvalues of independent errors end at the edge of Marchenko and Pastur (1967). The
        median ignores the few dimensions in which language models have huge values.
        """
        edge: float = sum(n**0.5 for n in self.rows.shape) ** 2
        return self.rounding**2 * edge * typical(self.rows.square().mean(0))


class NotSolved(Exception):
    """The eigenvalues are computed later, with those of other layers."""


def solve_together(spectra: Sequence[Spectra], again: bool = False) -> Tensor:
    """Compute the deferred eigenvalues of all layers, by size of matrix.

    Returns whether any are off by more than rounding, as a tensor, since asking would wait for a
    GPU; ``again`` computes them by LAPACK, in float64.
    """
    by_size: dict[int, list[tuple[Spectra, tuple[Step, ...]]]] = {}
    for of_layer in spectra:
        for steps, matrix in of_layer._grams.items():
            same_size = by_size.setdefault(matrix.shape[-1], [])
            same_size.append((of_layer, steps))
    off = []
    for same_size in by_size.values():
        matrices = torch.stack([of_layer._grams[steps] for of_layer, steps in same_size])
        matrices, values = unchecked(matrices)
        if again:
            values = checked(matrices, values)
        off.append(has_residual(matrices, values).any())
        for (of_layer, steps), solved in zip(same_size, values.clamp(min=0), strict=True):
            of_layer._values[steps] = solved
    return torch.stack(off).any()


HALF = 1e-4  # spacing that tells half precision (1e-3 and 8e-3) from float32 (1e-7)


def of_pooled(vectors: Tensor | Spectra, eps: float | None = None) -> Spectra:
    """Spectra of one vector per prompt, in float64; ``eps`` as in `Spectra`."""
    if isinstance(vectors, Spectra):
        return vectors
    if eps is None:
        eps = torch.finfo(vectors.dtype).eps
    return Spectra(vectors.double(), eps=eps)


def of_covariance(
    vectors: Tensor | Spectra,
    function: Callable[[Tensor], Tensor],
    centre: bool = True,
    above: float = 0.0,
) -> Tensor:
    """A function of the eigenvalues (m,) of prompts' vectors (P, D).

    They are ascending; it is NaN where all are zero.

    The eigenvalues are those of the smaller of Z Zᵀ and Zᵀ Z, centred first, with rounding set to
    zero: that of the decomposition, and the noise of vectors in half precision (`Spectra.noise`),
    or ``above`` times the noise of any vectors.
    """
    spectra = of_pooled(vectors)
    values = spectra.values("centred") if centre else spectra.values()
    # a root would turn rounding of 1e-16 into singular values of 1e-8
    values = above_rounding(values)
    if above or spectra.eps > HALF:
        values = values.where(values > max(1.0, above) * spectra.noise(), 0)
    return torch.where(values.sum() > 0, function(values), torch.nan)


NORMS: Mapping[str, Callable[[Tensor, Tensor], Tensor]] = {
    "logN": lambda log_n, log_d: log_n,
    "logD": lambda log_n, log_d: log_d,
    "logNlogD": lambda log_n, log_d: log_n * log_d,
    "maxEntropy": torch.minimum,
}


def matrix_entropy(spectra: Spectra, steps: tuple[Step, ...], alpha: float) -> Tensor:
    """Entropy (...) of prepared rows; order 2 needs no eigenvalue.

    That is ten times faster.
    """
    if alpha != 2:
        return entropy(spectra.values(*steps), alpha)
    matrix = spectra.gram(*steps)
    trace = matrix.diagonal(dim1=-2, dim2=-1).sum(-1)
    purity = (matrix / trace[..., None, None]).square().sum((-2, -1))
    return torch.where(trace > 0, -purity.log(), torch.nan)


def published_entropy(rows: Tensor, alpha: float) -> Tensor:
    r"""Entropy of rows (N, D) as the published code computes it.

    That is the code of *Layer by Layer*.

    The smaller of Gram matrix and covariance, negative *entries* set to zero; then the positive
    eigenvalues, scaled to sum to one; of order 2 :math:`\ln(m^2 / \sum_{ij} K_{ij}^2)` for a matrix
    of m rows, right only if its trace is m.
    """
    matrix = gram(rows).clamp(min=0)
    if not len(rows) or not (matrix.isfinite().all() and (matrix > 0).any()):
        return rows.new_full((), torch.nan)
    if alpha == 2:
        return (len(matrix) ** 2 / matrix.square().sum()).log()
    return entropy(torch.linalg.eigvalsh(matrix).clamp(min=0), alpha)


def normalised(value: Tensor, norm: str, keep: Tensor, width: int) -> Tensor:
    """An entropy (...) divided by what the norm says; NaN by zero.

    ``keep`` (..., N) marks the rows that count.
    """
    if norm == "none":
        return value
    log_n = keep.sum(-1).to(value.dtype).log()
    log_d = log_n.new_full((), float(width)).log()
    divisor = NORMS[norm](log_n, log_d)
    return torch.where(divisor > 0, value / divisor, torch.nan)


def later(keep: Tensor) -> Tensor:
    """The rows that count (..., N), without the first of them.

    >>> later(torch.tensor([False, True, True]))
    tensor([False, False,  True])
    """
    return keep & (keep.cumsum(-1) > 1)


NUMBERS = 2**20  # of a block: 8 MiB in float64, of which a few are held at a time


def blocks(rows: int, columns: int) -> Iterator[slice]:
    """Slices of the rows with at most `NUMBERS` entries each.

    Each has at least one row; together they are all rows.

    >>> list(blocks(3, 2**19))
    [slice(0, 2, None), slice(2, 3, None)]
    """
    size = max(1, NUMBERS // max(1, columns))
    return (slice(start, min(start + size, rows)) for start in range(0, rows, size))


def at_least_float32(rows: Tensor) -> Tensor:
    """Half precision widened: an entropy in bfloat16 is off by up to 0.01 nats."""
    return rows.to(torch.promote_types(rows.dtype, torch.float32))


def unit_rows(rows: Tensor) -> Tensor:
    """Rows (..., N, D) scaled to length one; zero rows stay zero.

    >>> unit_rows(torch.tensor([[3e30, 4e30], [0.0, 0.0]]))
    tensor([[0.6000, 0.8000],
            [0.0000, 0.0000]])
    """
    # the largest entry first, so that no square overflows
    largest = rows.abs().amax(-1, keepdim=True)
    scaled = rows / largest.where(largest > 0, 1)
    length = torch.linalg.vector_norm(scaled, dim=-1, keepdim=True)
    units: Tensor = scaled / length.where(largest > 0, 1)
    return units


def centred(rows: Tensor, keep: Tensor | None = None, eps: float = 0.0) -> Tensor:
    """Rows (..., N, D) less the mean of those that count.

    ``keep`` (..., N) marks these; the others become zero.

    A row that differs from the mean by rounding only becomes zero too: scaled to length one it
    would be pure noise. In half precision (``eps`` of `Spectra`) that is a row of which no entry
    differs by more than two units of its own.

    >>> centred(torch.tensor([[1.0, 5.0], [3.0, 5.0]]))
    tensor([[-1.,  0.],
            [ 1.,  0.]])
    """
    if keep is None:
        keep = rows.new_ones(rows.shape[:-1], dtype=torch.bool)
    rows = rows.where(keep[..., None], 0)
    # in float64: tokens may share an offset of many times what sets them apart
    count = keep.sum(-1).clamp(min=1)[..., None, None]
    mean = rows.sum(-2, keepdim=True, dtype=torch.float64) / count
    rounded = mean.to(rows.dtype)
    deviations = (rows - rounded) - (mean - rounded).to(rows.dtype)
    spacing = 4 * torch.finfo(rows.dtype).eps + 32 * torch.finfo(mean.dtype).eps
    rounding = spacing * rows.abs().amax(-2, keepdim=True)
    differs = (deviations.abs() > rounding).any(-1, keepdim=True)
    differs &= keep[..., None]
    if eps > HALF:
        is_large = (deviations.abs() > 2 * eps * rows.abs()).any(-1, keepdim=True)
        differs &= is_large
    differs |= ~deviations.isfinite().all(-1, keepdim=True)
    return deviations * differs  # a product, unlike a choice, keeps NaN


def gram(rows: Tensor) -> Tensor:
    """The smaller of rows (..., N, D) times their transpose, and the reverse.

    It is (..., m, m) with m = min(N, D).
    """
    if rows.shape[-2] <= rows.shape[-1]:
        return rows @ rows.mT
    return rows.mT @ rows


def with_care(
    quick: Callable[..., tuple[Tensor, Tensor]],
    careful: Callable[..., Tensor],
    rows: Tensor,
    keep: Tensor,
    *settings: object,
) -> Tensor:
    """What ``quick`` computes, and ``careful`` where it may have lost digits.

    Rows are (B, N, D), ``keep`` is (B, N), and ``quick`` also says where it is doubtful (B,).

    On a GPU ``careful`` computes all: asking where it is needed would wait for it.
    """
    if is_queued(rows):
        return careful(rows, keep, *settings)
    values, doubtful = quick(rows, keep, *settings)
    if doubtful.any():
        values[doubtful] = careful(rows[doubtful], keep[doubtful], *settings)
    return values


def _prepared_gram(rows: Tensor, keep: Tensor, steps: tuple[Step, ...], eps: float) -> Tensor:
    rows = rows.where(keep[..., None], 0)
    for step in steps:
        if step == "unit":
            rows = unit_rows(rows)
        elif step == "centred":
            rows = centred(rows, keep, eps)
    return gram(rows)


def _quick_unit_gram(
    rows: Tensor, keep: Tensor, steps: tuple[Step, ...], half: float
) -> tuple[Tensor, Tensor]:
    """`gram` of unit rows (B, N, D), and where digits may be lost (B,).

    Lengths are read from the diagonal, so that the rows are read once and not six times. Digits
    could be lost of rows that are only rounding, not finite, far from zero beside their spread, or
    whose squares overflow.
    """
    centre = "centred" in steps
    mean = rows.new_zeros(len(rows), 1, rows.shape[-1])
    deviations = rows
    if centre:
        weights = keep[:, None].to(rows.dtype)
        count = weights.sum(-1, keepdim=True).clamp(min=1)
        mean = weights @ rows / count
        deviations = rows - mean  # also of rows that do not count, which get the weight zero below
    wide = rows.shape[-2] <= rows.shape[-1]
    if wide:
        matrix = gram(deviations)
        squared = matrix.diagonal(dim1=-2, dim2=-1)
    else:
        squared = torch.linalg.vector_norm(deviations, dim=-1).square()
    offset = mean.square().sum(-1)
    scale = squared.where(keep, 0).amax(-1, keepdim=True) + offset
    eps = torch.finfo(rows.dtype).eps
    tiny = torch.finfo(rows.dtype).tiny
    sound = squared > (32 * eps) ** 2 * scale
    sound &= (squared > tiny / eps) & (squared < eps / tiny)
    # the rounding of a mean beyond 1,000 spreads from zero moves an entropy by more than 1e-6
    sound &= squared > 1e-6 * offset
    if half > HALF and centre:  # necessary for a row that is only rounding
        sound &= squared > (3 * half) ** 2 * (squared + offset)
    inverse = squared.rsqrt().where(keep, 0)
    if wide:
        matrix *= inverse[..., None] * inverse[..., None, :]
    else:
        matrix = gram(deviations * inverse[..., None])
    is_doubtful = keep & ~sound | ~squared.isfinite()
    return matrix, is_doubtful.any(-1)


def entropy(weights: Tensor, alpha: float = 1.0) -> Tensor:
    r"""Rényi entropy in nats of non-negative weights (..., K).

    They are scaled to sum to one; it is NaN where all are zero.

    .. math:: S_\alpha = \frac{1}{1 - \alpha} \ln \sum_i p_i^\alpha, \quad S_1 = -\sum_i p_i \ln p_i

    >>> entropy(torch.tensor([[1.0, 1.0, 0.0], [0.0, 0.0, 0.0]]))
    tensor([0.6931,    nan])
    """
    shares = weights / weights.sum(-1, keepdim=True)
    if alpha == 1:
        terms: Tensor = torch.special.entr(shares)
        return terms.sum(-1)
    # with an order below one, zeros that are only rounding would count
    powers = shares.where(above_rounding(weights) > 0, 0).pow(alpha).sum(-1)
    return powers.log() / (1 - alpha) + 0 * shares.sum(-1)


def above_rounding(squared: Tensor) -> Tensor:
    """Eigenvalues (..., m), those within rounding of zero set to zero."""
    spacing = torch.finfo(squared.dtype).eps
    rounding = squared.shape[-1] * spacing * squared.amax(-1, keepdim=True)
    return squared.where(squared > rounding, 0)

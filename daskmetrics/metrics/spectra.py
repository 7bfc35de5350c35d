"""The spectra of a layer, each computed once and shared by all metrics that are functions of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypeAlias

import torch
from torch import Tensor

from daskmetrics.metrics._spectra import (
    above_rounding,
    at_least_float32,
    centred,
    eigenvalues,
    gram,
    unit_gram,
    unit_rows,
)

Step: TypeAlias = Literal["centred", "unit"]


class Spectra:
    """Rows, and what is known of their Gram matrices; asked twice, computed once.

    Parameters
    ----------
    rows : Tensor (..., N, D)
        In the precision in which the spectra are wanted.
    keep : Tensor (..., N) of bool, optional
        The rows that count.

    Examples
    --------
    >>> spectra = Spectra(torch.tensor([[3.0, 0.0], [0.0, 1.0]]))
    >>> spectra.values(), spectra.values("unit")
    (tensor([1., 9.]), tensor([1.0000, 1.0000]))
    """

    def __init__(self, rows: Tensor, keep: Tensor | None = None) -> None:
        self.rows = rows
        self.keep = rows.new_ones(rows.shape[:-1], dtype=torch.bool) if keep is None else keep
        self._grams: dict[tuple[Step, ...], Tensor] = {}
        self._values: dict[tuple[Step, ...], Tensor] = {}

    @property
    def count(self) -> Tensor:
        """Number of rows (...) that count."""
        return self.keep.sum(-1)

    @property
    def width(self) -> int:
        """D."""
        return self.rows.shape[-1]

    def gram(self, *steps: Step) -> Tensor:
        """The smaller of Gram matrix and covariance sum, (..., m, m), after these steps of preparation in order."""
        if steps not in self._grams:
            self._grams[steps] = self._gram(steps)
        return self._grams[steps]

    def _gram(self, steps: tuple[Step, ...]) -> Tensor:
        if steps in (("unit",), ("centred", "unit")):
            flat = self.rows.reshape(-1, *self.rows.shape[-2:])
            matrices = unit_gram(flat, self.keep.reshape(len(flat), -1), centre="centred" in steps)
            return matrices.reshape(*self.rows.shape[:-2], *matrices.shape[-2:])
        prepared = self.rows.where(self.keep[..., None], 0)
        for step in steps:
            prepared = self._prepare(prepared, step)
        return gram(prepared)

    def values(self, *steps: Step) -> Tensor:
        """Eigenvalues of `gram`, ascending, (..., m), not below zero."""
        if steps not in self._values:
            self._values[steps] = eigenvalues(self.gram(*steps))
        return self._values[steps]

    def _prepare(self, rows: Tensor, step: Step) -> Tensor:
        return unit_rows(rows) if step == "unit" else centred(rows, self.keep)


def of_tokens(states: Tensor | Spectra, mask: Tensor | None = None) -> Spectra:
    """Spectra of each prompt's tokens, in float32 or better."""
    return states if isinstance(states, Spectra) else Spectra(at_least_float32(states), mask)


def of_pooled(vectors: Tensor | Spectra) -> Spectra:
    """Spectra of one vector per prompt, in float64."""
    return vectors if isinstance(vectors, Spectra) else Spectra(vectors.double())


def of_covariance(vectors: Tensor | Spectra, function: Callable[[Tensor], Tensor], centre: bool = True) -> Tensor:
    """A function of the eigenvalues of prompts' vectors, rounding set to zero; NaN where all are zero.

    Parameters
    ----------
    vectors : Tensor (P, D) or Spectra
    function : callable
        From eigenvalues (m,) of the smaller of Z Zᵀ and Zᵀ Z, ascending, to a scalar.
    centre : bool
        Whether the mean is taken off first.
    """
    spectra = of_pooled(vectors)
    # a root would turn rounding of 1e-16 into singular values of 1e-8
    values = above_rounding(spectra.values("centred") if centre else spectra.values())
    return torch.where(values.sum() > 0, function(values), torch.nan)

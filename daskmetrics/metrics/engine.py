"""The engine: reads hidden states layer by layer and keeps one vector per prompt and layer."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, islice, product
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from daskmetrics.domain.results import EQUAL, Status
from daskmetrics.metrics._eigenvalues import is_queued, processors
from daskmetrics.metrics._metric import Metric
from daskmetrics.metrics._spectra import (
    NotSolved,
    Spectra,
    at_least_float32,
    of_pooled,
    solve_together,
)


@dataclass(frozen=True, eq=False)
class Reduced:
    """Metrics (L, M) of every layer of one checkpoint.

    Layers are in the order asked for.
    """

    metrics: tuple[str, ...]  # names of the columns
    values: NDArray[np.float64]  # (L, M), in the units of the metric; NaN if there is no value
    # (L, M), over prompts; NaN for functions of a spectrum and a single prompt
    stderr: NDArray[np.float64]
    # (L, M), of `Status`: OK, NAN, or NOT_APPLICABLE without a next layer
    status: NDArray[np.uint8]
    reasons: Mapping[tuple[int, str], str]  # by layer and metric: why a value is NaN


MISSING, BROKEN, FINITE = range(3)  # what the states of a prompt are, one view of it


@dataclass(frozen=True)
class _Layer:
    """What is kept of one layer, for V views and P prompts.

    It is filled row by row, in this machine's memory.
    """

    vectors: Tensor  # (V, P, D)
    states: Tensor  # (V, P): MISSING, BROKEN or FINITE
    values: dict[str, Tensor]  # by token metric, (P,)

    @cached_property
    def are_equal(self) -> list[bool]:
        """Of each view, whether all prompts have equal vectors (V,)."""
        span = (self.vectors.amax(1) - self.vectors.amin(1)).amax(1)
        size = self.vectors.abs().amax((1, 2))
        return list((span <= EQUAL * size).tolist())


@dataclass
class _Batch:
    """One layer of a batch of B prompts, on the states' device."""

    layer: int
    view: int
    rows: Tensor  # (B,)
    vectors: Tensor  # (B, D)
    finite: Tensor  # (B,) bool
    spectra: Spectra
    values: dict[str, Tensor]  # by token metric, (B,)
    unsolved: list[str]  # token metrics that need eigenvalues


class _Entry(NamedTuple):
    """One value of the result."""

    value: float = math.nan
    stderr: float = math.nan
    status: Status = Status.OK
    reason: str = ""


class Reducer:
    """Computes metrics from hidden states of P prompts.

    Batches and layers may come in any order.

    Every prompt writes its own row, so the order of `add` changes nothing. The coarsest type of the
    states decides below which size metrics see only rounding. On a GPU the layers of a batch are
    solved together and leave it in one copy, for which alone the program waits.

    >>> from daskmetrics.metrics import resolve
    >>> reducer = Reducer(resolve(["curvature", "anisotropy"]), layers=[0], prompts=2)
    >>> states, mask = torch.eye(4).expand(2, 4, 4), torch.ones(2, 4, dtype=torch.bool)
    >>> reducer.add(0, torch.arange(2), states, mask, pooled=states[:, 0] * torch.tensor([[1], [2]]))
    >>> reducer.finish().values.round(4)
    array([[2.0944, 1.    ]])
    """

    def __init__(self, metrics: Sequence[Metric], layers: Sequence[int], prompts: int) -> None:
        self._metrics = metrics
        self._layers = layers
        self._prompts = prompts
        self._eps = 0.0
        self._on_gpu = False
        self._functions: dict[str, Callable[..., Tensor]] = {
            metric.name: metric.load() for metric in metrics
        }
        self._kept: dict[int, _Layer] = {}
        self._waiting: dict[int, _Batch] = {}  # layers of the batch that is on the device

    @property
    def views(self) -> int:
        """Number of views of every prompt to add, the prompts themselves included."""
        return max((metric.views for metric in self._metrics), default=1)

    @torch.inference_mode()
    def add(
        self,
        layer: int,
        rows: Tensor,
        states: Tensor,
        mask: Tensor,
        pooled: Tensor,
        view: int = 0,
        eps: float | None = None,
    ) -> None:
        """Add one batch of one layer, which is not kept.

        States (B, T, D) are those of the prompts ``rows`` (B,).

        The mask (B, T) is True where a token counts; ``pooled`` (B, D) has one vector per prompt.
        View 0 is the prompts themselves, which token metrics read; the others are further views,
        `views` in all. States that were widened have the ``eps`` of their former type.
        """
        if layer in self._waiting:
            self._settle()
        if eps is None:
            eps = torch.finfo(states.dtype).eps
        self._eps = max(self._eps, eps)
        mask = mask.bool()
        finite = _are_finite(states, mask) & pooled.isfinite().all(-1)
        wide = at_least_float32(states)
        self._on_gpu = queued = is_queued(states)
        spectra = Spectra(wide, mask, eps, deferred=queued)
        batch = _Batch(layer, view, rows.to(pooled.device), pooled, finite, spectra, {}, [])
        if view == 0:
            self._reduce(batch, wide, mask)
        spectra.release()
        self._waiting[layer] = batch
        if not queued or len(self._waiting) == len(self._layers):
            self._settle()

    def _reduce(self, batch: _Batch, states: Tensor, mask: Tensor) -> None:
        """Compute the token metrics of a batch whose eigenvalues are not deferred."""
        for metric in self._metrics:
            if metric.takes != "tokens":
                continue
            function = self._functions[metric.name]
            try:
                if metric.spectral:
                    batch.values[metric.name] = function(batch.spectra)
                else:
                    batch.values[metric.name] = function(states, mask)
            except NotSolved:
                batch.unsolved.append(metric.name)

    @torch.inference_mode()
    def _settle(self) -> None:
        """Solve the waiting layers together, and take their results."""
        # one that does not fit into memory comes again, as part of smaller batches
        batches = list(self._waiting.values())
        self._waiting = {}
        unsolved = [batch for batch in batches if batch.unsolved]
        off = torch.zeros((), dtype=torch.bool, device=batches[0].vectors.device)
        if unsolved:
            off = self._solve(unsolved)
        off, *columns = _on_host([off, *_columns(batches)])
        if off:
            self._solve(unsolved, again=True)
            columns = _on_host(_columns(batches))
        remaining = iter(columns)
        for batch in batches:
            rows, finite, vectors = islice(remaining, 3)
            kept = self._kept.get(batch.layer) or self._start(batch.layer, vectors)
            kept.states[batch.view, rows] = BROKEN + finite.byte()
            kept.vectors[batch.view, rows] = vectors.to(kept.vectors.dtype)
            for name in batch.values:
                kept.values[name][rows] = next(remaining).double()

    def _solve(self, batches: Sequence[_Batch], again: bool = False) -> Tensor:
        off = solve_together([batch.spectra for batch in batches], again)
        for batch in batches:
            for name in batch.unsolved:
                batch.values[name] = self._functions[name](batch.spectra)
        return off

    def finish(self) -> Reduced:
        """Compute the metrics of all layers.

        Of states on a GPU, on all processors of this machine.

        Spectra of a thousand rows in float64 are few and large: they do not fill a GPU, which has
        other work.
        """
        if self._waiting:
            self._settle()
        if self._on_gpu:
            with ThreadPoolExecutor(processors()) as pool:
                by_layer = list(pool.map(self._entries, self._layers))
        else:
            by_layer = [self._entries(layer) for layer in self._layers]
        entries = list(chain.from_iterable(by_layer))
        names = tuple(metric.name for metric in self._metrics)
        numbers = np.array([entry[:3] for entry in entries], np.float64)
        values, stderr, status = numbers.reshape(len(self._layers), len(names), 3).transpose(
            2, 0, 1
        )
        cells = zip(product(self._layers, names), entries, strict=True)
        reasons = {cell: entry.reason for cell, entry in cells if entry.reason}
        return Reduced(names, values, stderr, status.astype(np.uint8), reasons)

    def _start(self, layer: int, pooled: Tensor) -> _Layer:
        flags = (self.views, self._prompts)
        wide = torch.promote_types(pooled.dtype, torch.float32)
        self._kept[layer] = _Layer(
            vectors=pooled.new_zeros((*flags, pooled.shape[-1]), dtype=wide),
            states=pooled.new_full(flags, MISSING, dtype=torch.uint8),
            values={
                metric.name: pooled.new_full((self._prompts,), torch.nan, dtype=torch.float64)
                for metric in self._metrics
                if metric.takes == "tokens"
            },
        )
        return self._kept[layer]

    @torch.inference_mode()
    def _entries(self, layer: int) -> list[_Entry]:
        kept = self._kept.get(layer)
        spectra = None
        if kept:
            spectra = of_pooled(kept.vectors[0], self._eps)
        return [self._entry(layer, metric, spectra) for metric in self._metrics]

    def _entry(self, layer: int, metric: Metric, spectra: Spectra | None) -> _Entry:
        layers = [layer]
        if metric.takes == "layers":
            layers += sorted(other for other in self._layers if other > layer)[:1]
            if len(layers) == 1:
                return _Entry(status=Status.NOT_APPLICABLE)
        for number in layers:
            if problem := self._problem(number, metric):
                return _Entry(status=Status.NAN, reason=f"layer {number}: {problem}")
        stderr = math.nan
        if metric.takes == "tokens":
            of_prompts = self._kept[layer].values[metric.name]
            of_prompts = of_prompts[~of_prompts.isnan()]
            value = float(of_prompts.mean())
            if len(of_prompts) > 1:
                stderr = float(of_prompts.std()) / math.sqrt(len(of_prompts))
        else:
            function = self._functions[metric.name]
            inputs: Sequence[Tensor | Spectra | None]
            if metric.spectral:
                inputs = [spectra]
            elif metric.takes == "layers":
                inputs = [self._kept[number].vectors[0] for number in layers]
            else:
                inputs = list(self._kept[layer].vectors[: metric.views])
            value = float(function(*inputs))
            if metric.jackknife:
                stderr = _jackknife(function(*inputs, leave_one_out=True))
        if math.isfinite(value):
            return _Entry(value, stderr)
        reason = f"layer {layer}: {metric.name} is not defined for these states"
        return _Entry(status=Status.NAN, reason=reason)

    def _problem(self, layer: int, metric: Metric) -> str:
        """Why a metric has no value at a layer; empty if it has."""
        if layer not in self._kept:
            return "no states were added"
        kept = self._kept[layer]
        for view in range(metric.views):
            which = {0: "", 1: " of the second view"}.get(view, f" of view {view}")
            missing = int((kept.states[view] == MISSING).sum())
            if missing:
                hint = ""
                if view and missing == self._prompts:
                    hint = " (views drop and swap words; single words have none)"
                return f"states{which} are missing for {missing} of {self._prompts} prompts{hint}"
            broken = int((kept.states[view] == BROKEN).sum())
            if broken:
                return f"states{which} are not finite for {broken} of {self._prompts} prompts"
            # tokens may differ where vectors do not: the first token of every text is the same at
            # layer 0
            if metric.takes == "tokens" or self._prompts == 1:
                continue
            if kept.are_equal[view]:
                return f"the vectors{which} of all {self._prompts} prompts are equal"
        return ""


def _columns(batches: Iterable[_Batch]) -> list[Tensor]:
    columns: list[Tensor] = []
    for batch in batches:
        columns += [batch.rows, batch.finite, batch.vectors, *batch.values.values()]
    return columns


def _on_host(tensors: Sequence[Tensor]) -> list[Tensor]:
    """The tensors in this machine's memory, by one copy from a GPU."""
    if not is_queued(tensors[0]):
        return list(tensors)
    packed = torch.cat([tensor.contiguous().flatten().view(torch.uint8) for tensor in tensors])
    sizes = [tensor.numel() * tensor.element_size() for tensor in tensors]
    chunks = zip(torch.split_with_sizes(packed.cpu(), sizes), tensors, strict=True)
    # a copy starts where its type can be read
    return [chunk.clone().view(tensor.dtype).view(tensor.shape) for chunk, tensor in chunks]


def _are_finite(states: Tensor, mask: Tensor) -> Tensor:
    # the fastest, but a sum may overflow where its terms do not
    finite = states.sum(-1).isfinite() | ~mask
    if is_queued(states) or not finite.all():
        finite = states.abs().amax(-1).isfinite() | ~mask
    return finite.all(-1)


def _jackknife(leave_one_out: Tensor) -> float:
    """Standard error from the values (P,) without each prompt.

    Efron & Stein (1981), equation 1.2.
    """
    deviations = leave_one_out - leave_one_out.mean()
    count = len(deviations)
    return float(((count - 1) / count * deviations.square().sum()).sqrt())

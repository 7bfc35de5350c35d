"""The engine: reads hidden states layer by layer and keeps one vector per prompt and layer."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain, product

import numpy as np
import torch
from torch import Tensor

from daskmetrics.core.status import EQUAL, Status
from daskmetrics.metrics._eigenvalues import processors
from daskmetrics.metrics._metric import Metric, Reduced
from daskmetrics.metrics._spectra import Spectra, of_pooled, of_tokens

_NO_VIEW = "views drop and swap words; single words have none"


@dataclass(frozen=True)
class _Layer:
    """What is kept of one layer, for V views and P prompts; filled row by row, on the device of the
    states.
    """

    vectors: Tensor  # (V, P, D)
    seen: Tensor  # (V, P) bool
    finite: Tensor  # (V, P) bool
    values: dict[str, Tensor]  # by token metric, (P,)

    def to(self, device: str) -> _Layer:
        values = {name: column.to(device) for name, column in self.values.items()}
        return _Layer(self.vectors.to(device), self.seen.to(device), self.finite.to(device), values)


@dataclass(frozen=True)
class _Entry:
    """One value of the result."""

    value: float = math.nan
    stderr: float = math.nan
    count: int = 0
    reason: str = ""
    status: Status = Status.OK


class Reducer:
    """Computes metrics from hidden states of P prompts; batches and layers may come in any order.

    Every prompt writes its own row, so the order of `add` changes nothing. Only an eigensolver
    waits for the device before `finish`. The coarsest type of the states decides below which size
    metrics see only rounding.

    >>> from daskmetrics.metrics import resolve
    >>> reducer = Reducer(resolve(["curvature", "anisotropy"]), layers=[0], prompts=2)
    >>> states, mask = torch.eye(4).expand(2, 4, 4), torch.ones(2, 4, dtype=torch.bool)
    >>> reducer.add(0, torch.arange(2), states, mask, pooled=states[:, 0] * torch.tensor([[1], [2]]))
    >>> reducer.finish().values.round(4)
    array([[2.0944, 1.    ]])
    """

    def __init__(self, metrics: Sequence[Metric], layers: Sequence[int], prompts: int) -> None:
        self._metrics = tuple(metrics)
        self._layers = tuple(layers)
        self._prompts = prompts
        self._eps = 0.0
        self._functions: dict[str, Callable[..., Tensor]] = {
            metric.name: metric.load() for metric in metrics
        }
        self._kept: dict[int, _Layer] = {}

    @property
    def views(self) -> int:
        """Number of views of every prompt to add, the prompts themselves included."""
        return max((metric.views for metric in self._metrics), default=1)

    @torch.inference_mode()
    def add(
        self, layer: int, rows: Tensor, states: Tensor, mask: Tensor, pooled: Tensor, view: int = 0
    ) -> None:
        """Add one batch of one layer: states (B, T, D) of the prompts ``rows`` (B,), which are not
        kept.

        The mask (B, T) is True where a token counts; ``pooled`` (B, D) has one vector per prompt.
        View 0 is the prompts themselves, which token metrics read; the others are further views,
        `views` in all.
        """
        kept = self._kept.get(layer) or self._start(layer, pooled)
        self._eps = max(self._eps, torch.finfo(states.dtype).eps)
        rows, mask = rows.to(pooled.device), mask.bool()
        kept.seen[view, rows] = True
        kept.finite[view, rows] = _are_finite(states, mask) & pooled.isfinite().all(-1)
        kept.vectors[view, rows] = pooled.to(kept.vectors.dtype)
        if view == 0:
            spectra = of_tokens(states, mask)
            for metric in self._metrics:
                if metric.takes == "tokens":
                    function = self._functions[metric.name]
                    values = function(spectra) if metric.spectral else function(states, mask)
                    kept.values[metric.name][rows] = values.double()

    def finish(self) -> Reduced:
        """Compute the metrics of all layers; of states on a GPU, on all processors of this machine.

        Spectra of a thousand rows in float64 are few and large: they do not fill a GPU, which has
        other work.
        """
        if any(kept.vectors.is_cuda for kept in self._kept.values()):
            self._kept = {layer: kept.to("cpu") for layer, kept in self._kept.items()}
            with ThreadPoolExecutor(processors()) as pool:
                by_layer = list(pool.map(self._entries, self._layers))
        else:
            by_layer = [self._entries(layer) for layer in self._layers]
        entries = list(chain.from_iterable(by_layer))
        names = tuple(metric.name for metric in self._metrics)
        shape = (len(self._layers), len(names))
        return Reduced(
            layers=self._layers,
            metrics=names,
            values=np.array([entry.value for entry in entries], np.float64).reshape(shape),
            stderr=np.array([entry.stderr for entry in entries], np.float64).reshape(shape),
            counts=np.array([entry.count for entry in entries], np.int64).reshape(shape),
            status=np.array([entry.status for entry in entries], np.uint8).reshape(shape),
            reasons={
                layer_and_metric: entry.reason
                for layer_and_metric, entry in zip(
                    product(self._layers, names), entries, strict=True
                )
                if entry.reason
            },
        )

    def _start(self, layer: int, pooled: Tensor) -> _Layer:
        flags = (self.views, self._prompts)
        wide = torch.promote_types(pooled.dtype, torch.float32)
        self._kept[layer] = _Layer(
            vectors=pooled.new_zeros((*flags, pooled.shape[-1]), dtype=wide),
            seen=pooled.new_zeros(flags, dtype=torch.bool),
            finite=pooled.new_zeros(flags, dtype=torch.bool),
            values={
                metric.name: pooled.new_full((self._prompts,), torch.nan, dtype=torch.float64)
                for metric in self._metrics
                if metric.takes == "tokens"
            },
        )
        return self._kept[layer]

    @torch.inference_mode()
    def _entries(self, layer: int) -> list[_Entry]:
        """The values of a layer, in the order of the metrics."""
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
                return _undefined(number, problem)
        kept = [self._kept[number] for number in layers]
        function = self._functions[metric.name]
        if metric.takes == "tokens":
            entry = _mean(kept[0].values[metric.name])
        elif metric.takes == "layers":
            vectors = [states.vectors[0] for states in kept]
            entry = _Entry(float(function(*vectors)), count=self._prompts)
        elif metric.spectral:
            entry = _Entry(float(function(spectra)), count=self._prompts)
        else:
            views = kept[0].vectors[: metric.views]
            stderr = math.nan
            if metric.jackknife:
                stderr = _jackknife(function(*views, leave_one_out=True))
            entry = _Entry(float(function(*views)), stderr, self._prompts)
        if math.isfinite(entry.value):
            return entry
        return _undefined(layer, f"{metric.name} is not defined for these states")

    def _problem(self, layer: int, metric: Metric) -> str:
        """Why a metric has no value at a layer; empty if it has."""
        if layer not in self._kept:
            return "no states were added"
        kept = self._kept[layer]
        for view in range(metric.views):
            which = {0: "", 1: " of the second view"}.get(view, f" of view {view}")
            if missing := int((~kept.seen[view]).sum()):
                hint = ""
                if view and missing == self._prompts:
                    hint = f" ({_NO_VIEW})"
                return f"states{which} are missing for {missing} of {self._prompts} prompts{hint}"
            if broken := int((~kept.finite[view]).sum()):
                return f"states{which} are not finite for {broken} of {self._prompts} prompts"
            # tokens may differ where vectors do not: the first token of every text is the same at
            # layer 0
            if metric.takes != "tokens" and _are_equal(kept.vectors[view]):
                return f"the vectors{which} of all {self._prompts} prompts are equal"
        return ""


def _are_finite(states: Tensor, mask: Tensor) -> Tensor:
    """Whether all tokens that count are finite (B,)."""
    # the fastest, but a sum may overflow where its terms do not
    finite = states.sum(-1).isfinite() | ~mask
    if not finite.all():
        finite = states.abs().amax(-1).isfinite() | ~mask
    return finite.all(-1)


def _are_equal(vectors: Tensor) -> bool:
    span = (vectors.amax(0) - vectors.amin(0)).max()
    return len(vectors) > 1 and bool(span <= EQUAL * vectors.abs().max())


def _undefined(layer: int, reason: str) -> _Entry:
    return _Entry(reason=f"layer {layer}: {reason}", status=Status.NAN)


def _jackknife(leave_one_out: Tensor) -> float:
    """Standard error from the values (P,) without each prompt in turn (Efron & Stein, 1981,
    equation 1.2).
    """
    deviations = leave_one_out - leave_one_out.mean()
    count = len(deviations)
    return float(((count - 1) / count * deviations.square().sum()).sqrt())


def _mean(values: Tensor) -> _Entry:
    """Mean and standard error of the values that are defined."""
    defined = values[~values.isnan()]
    count = len(defined)
    if count == 0:
        return _Entry()
    stderr = math.nan
    if count > 1:
        stderr = float(defined.std()) / math.sqrt(count)
    return _Entry(float(defined.mean()), stderr, count)

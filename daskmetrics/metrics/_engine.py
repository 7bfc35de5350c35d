"""The engine: takes hidden states layer by layer as they appear, and keeps no more than one vector per prompt."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from daskmetrics.core.status import Status
from daskmetrics.metrics._metric import Metric
from daskmetrics.metrics._reduced import Reduced
from daskmetrics.metrics._spectra import Spectra, of_pooled, of_tokens

__all__ = ["Reduced", "Reducer"]


@dataclass(frozen=True)
class _Layer:
    """What is kept of one layer: V views, P prompts. The tensors are filled row by row, on the states' device."""

    vectors: Tensor  # (V, P, D)
    seen: Tensor  # (V, P) bool
    finite: Tensor  # (V, P) bool
    values: dict[str, Tensor]  # of each token metric, (P,)


@dataclass(frozen=True)
class _Entry:
    """One value of the result."""

    value: float = math.nan
    stderr: float = math.nan
    count: int = 0
    reason: str = ""
    status: Status = Status.OK


class Reducer:
    """Hidden states in, metrics out; batches and layers may come in any order.

    Every prompt writes its own row, so the order of `add` changes nothing. Nothing waits for the device before
    `finish`, except where an eigensolver does.

    Parameters
    ----------
    metrics : sequence of Metric
    layers : sequence of int
        Layers that will be added.
    prompts : int
        Number of prompts, P.
    halves : bool
        Whether vectors are rounded to half precision with an exponent each, so that what is kept of them (`vectors`)
        gives the same metrics.

    Examples
    --------
    >>> from daskmetrics.metrics import resolve
    >>> reducer = Reducer(resolve(["curvature", "anisotropy"]), layers=[0], prompts=2)
    >>> states, mask = torch.eye(4).expand(2, 4, 4), torch.ones(2, 4, dtype=torch.bool)
    >>> reducer.add(0, torch.arange(2), states, mask, pooled=states.mean(1))
    >>> reducer.finish().values.round(4)
    array([[2.0944, 1.    ]])
    """

    def __init__(self, metrics: Sequence[Metric], layers: Sequence[int], prompts: int, halves: bool = False) -> None:
        self._metrics = tuple(metrics)
        self._layers = tuple(layers)
        self._prompts = prompts
        self._halves = halves
        self._functions: dict[str, Callable[..., Tensor]] = {metric.name: metric.load() for metric in metrics}
        self._kept: dict[int, _Layer] = {}

    @property
    def views(self) -> int:
        """How many views of every prompt must be added, the prompts themselves included."""
        return max((metric.views for metric in self._metrics), default=1)

    @property
    def needs_views(self) -> bool:
        """Whether further views of every prompt must be added too."""
        return self.views > 1

    @torch.inference_mode()
    def add(self, layer: int, rows: Tensor, states: Tensor, mask: Tensor, pooled: Tensor, view: int = 0) -> None:
        """Take one batch of one layer.

        Parameters
        ----------
        layer : int
        rows : Tensor (B,) of int64
            Which prompts these are, from 0 to P - 1.
        states : Tensor (B, T, D)
            Hidden states of all tokens; read here and not kept.
        mask : Tensor (B, T) of bool
            True where a token counts.
        pooled : Tensor (B, D)
            One vector per prompt.
        view : int
            0, or the number of a further view of the same prompts; token metrics read view 0 only.

        Raises
        ------
        ValueError
            For a layer that was not announced, or a view that no metric compares.
        """
        kept = self._kept.get(layer) or self._start(layer, pooled)
        if view not in range(len(kept.vectors)):
            raise ValueError(f"View {view} was added, but these metrics read {len(kept.vectors)}, counted from 0.")
        rows, mask = rows.to(pooled.device), mask.bool()
        kept.seen[view, rows] = True
        kept.finite[view, rows] = _finite(states, mask) & pooled.isfinite().all(-1)
        wide = pooled.to(kept.vectors.dtype)
        kept.vectors[view, rows] = _in_halves(wide) if self._halves else wide
        if view == 0:
            self._add_tokens(kept, rows, states, mask)

    def _add_tokens(self, kept: _Layer, rows: Tensor, states: Tensor, mask: Tensor) -> None:
        spectra = of_tokens(states, mask)
        for metric in self._metrics:
            if metric.takes == "tokens":
                given = (spectra,) if metric.spectral else (states, mask)
                kept.values[metric.name][rows] = self._functions[metric.name](*given).double()

    def vectors(self) -> NDArray[np.float32]:
        """The pooled vectors of the prompts themselves at every layer, (L, P, D)."""
        return np.stack([self._kept[layer].vectors[0].float().cpu().numpy() for layer in self._layers])

    @torch.inference_mode()
    def put_vectors(self, vectors: NDArray[np.float32]) -> None:
        """Take vectors that were kept, (L, P, D), in place of states; for metrics that read nothing else."""
        rows = torch.arange(self._prompts)
        for layer, own in zip(self._layers, torch.from_numpy(vectors), strict=True):
            self.add(layer, rows, own[:, None], torch.ones(self._prompts, 1, dtype=torch.bool), own)

    @torch.inference_mode()
    def finish(self) -> Reduced:
        """Compute what needs all prompts, and hand everything over as arrays."""
        names = tuple(metric.name for metric in self._metrics)
        places = [(layer, metric) for layer in self._layers for metric in self._metrics]
        entries = [entry for layer in self._layers for entry in self._entries(layer)]
        shape = (len(self._layers), len(self._metrics))
        return Reduced(
            layers=self._layers,
            metrics=names,
            values=np.array([entry.value for entry in entries], np.float64).reshape(shape),
            stderr=np.array([entry.stderr for entry in entries], np.float64).reshape(shape),
            counts=np.array([entry.count for entry in entries], np.int64).reshape(shape),
            status=np.array([entry.status for entry in entries], np.uint8).reshape(shape),
            reasons={
                (layer, metric.name): entry.reason
                for (layer, metric), entry in zip(places, entries, strict=True)
                if entry.reason
            },
        )

    def _start(self, layer: int, pooled: Tensor) -> _Layer:
        if layer not in self._layers:
            raise ValueError(f"Layer {layer} was added, but only {', '.join(map(str, self._layers))} were announced.")
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

    def _entries(self, layer: int) -> list[_Entry]:
        """The values of a layer, in the order of the metrics."""
        kept = self._kept.get(layer)
        spectra = of_pooled(kept.vectors[0]) if kept else None
        return [self._entry(layer, metric, spectra) for metric in self._metrics]

    def _entry(self, layer: int, metric: Metric, spectra: Spectra | None) -> _Entry:
        deeper = min((other for other in self._layers if other > layer), default=None)
        if metric.takes == "layers" and deeper is None:
            return _Entry(status=Status.NOT_APPLICABLE)
        if fault := self._fault(layer, metric.views):
            return _undefined(layer, fault)
        if metric.takes == "layers" and deeper is not None and (fault := self._fault(deeper, 1)):
            return _undefined(deeper, fault)
        entry = self._value(layer, deeper, metric, spectra)
        if math.isfinite(entry.value):
            return entry
        return _undefined(layer, f"{metric.name} is not defined for these states")

    def _value(self, layer: int, deeper: int | None, metric: Metric, spectra: Spectra | None) -> _Entry:
        kept, function = self._kept[layer], self._functions[metric.name]
        if metric.takes == "tokens":
            return _mean(kept.values[metric.name])
        if metric.takes == "layers" and deeper is not None:
            value = function(kept.vectors[0], self._kept[deeper].vectors[0])
        elif metric.spectral:
            value = function(spectra)
        else:
            value = function(*kept.vectors[: metric.views])
            if metric.jackknife:
                stderr = _jackknife(function(*kept.vectors[: metric.views], leave_one_out=True))
                return _Entry(float(value), stderr, self._prompts)
        return _Entry(float(value), count=self._prompts)

    def _fault(self, layer: int, views: int) -> str:
        """Why no metric that reads so many views has a value at this layer; empty if they may."""
        if layer not in self._kept:
            return "no states were added"
        kept = self._kept[layer]
        for view in range(views):
            which = "" if view == 0 else " of the second view" if view == 1 else f" of view {view}"
            if absent := int((~kept.seen[view]).sum()):
                return f"states{which} are missing for {absent} of {self._prompts} prompts"
            if broken := int((~kept.finite[view]).sum()):
                return f"states{which} are not finite for {broken} of {self._prompts} prompts"
        return ""


def _in_halves(vectors: Tensor) -> Tensor:
    """Vectors (B, D) as half precision with an exponent for each row holds them."""
    exponent = torch.frexp(vectors.abs().amax(-1, keepdim=True)).exponent
    return torch.ldexp(torch.ldexp(vectors, -exponent).half().to(vectors.dtype), exponent)


def _undefined(layer: int, reason: str) -> _Entry:
    return _Entry(reason=f"layer {layer}: {reason}", status=Status.NAN)


def _finite(states: Tensor, mask: Tensor) -> Tensor:
    """Which prompts (B,) hold finite numbers wherever a token counts."""
    # the largest entry tells the same as every entry, at a tenth of the time
    return (states.abs().amax(-1).isfinite() | ~mask).all(-1)


def _jackknife(without: Tensor) -> float:
    """Standard error from the values (P,) without each prompt in turn (Efron & Stein, 1981, equation 1.2)."""
    rest = without - without.mean()
    return float(((len(without) - 1) / len(without) * rest.square().sum()).sqrt())


def _mean(values: Tensor) -> _Entry:
    """Mean and standard error of what is defined among the prompts' values."""
    defined = values[~values.isnan()].cpu()
    count = len(defined)
    if count == 0:
        return _Entry()
    stderr = float(defined.std()) / math.sqrt(count) if count > 1 else math.nan
    return _Entry(float(defined.mean()), stderr, count)

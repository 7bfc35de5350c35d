"""Scores against what an arm takes: layers, parameters, operations and time for a text, and the
size of a vector.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import compress, pairwise
from statistics import fmean
from typing import Any

from daskmetrics.core.costs import pass_flops, undominated
from daskmetrics.core.events import Event, measured
from daskmetrics.core.names import Arm, Cell, Checkpoint
from daskmetrics.core.outcomes import Difference, mean_difference, means_of
from daskmetrics.core.readouts import STORAGES, Readout
from daskmetrics.core.results import NetworkSize, Scored


@dataclass(frozen=True)
class ArmCost:
    """What a text costs with an arm.

    Attributes
    ----------
    layers : int
        Transformer blocks that must be computed.
    parameters : int
        Weights that must be kept: embeddings and the blocks up to the layer.
    whole : int or None
        Weights of the whole model; None if the run did not record them.
    tokens : float
        Tokens of a text.
    flops : float
        Operations of a forward pass over a text of so many tokens, up to the layer: two for each
        token and weight of the blocks (Kaplan et al. 2020, section 2.1), and those of the attention
        (Hoffmann et al. 2022, appendix F).
    dimensions : int
        Numbers of a vector.
    bytes : int
        Of a vector, as an index stores it.
    seconds : float or None
        Of reading such a text: what the run measured for the model, times the share of the
        operations up to the layer. It is 0 for the embedding, which has none; None if the run
        recorded no times.
    """

    layers: int
    parameters: int
    whole: int | None
    tokens: float
    flops: float
    dimensions: int
    bytes: int
    seconds: float | None = None

    @property
    def texts_per_second(self) -> float | None:
        """How many such texts are read in a second; None if that is not known, as for the
        embedding.
        """
        return 1 / self.seconds if self.seconds else None

    @property
    def compared(self) -> tuple[float, ...]:
        """What arms are compared by: bytes of a vector and time, or, where no time is known, what
        determines it.
        """
        if self.seconds is None:
            return self.layers, self.parameters, self.flops, self.bytes
        return self.bytes, self.seconds


@dataclass(frozen=True)
class LayerWeights:
    """Numbers of weights of a model, as `daskmetrics.models.LoadedModel.size` counts them."""

    whole: int
    attention: int  # width
    # for each layer those that must be kept, and those that are computed with
    layers: Mapping[int, Sequence[int]]


@dataclass(frozen=True)
class Timing:
    """What a run measured of reading texts with a model."""

    seconds: float  # for a token
    layer: int  # the deepest that was read


@dataclass(frozen=True)
class ModelSize:
    """What a run recorded of a model, or assumes of one that an earlier version measured."""

    width: int  # of the hidden states
    weights: LayerWeights | None  # None if not recorded
    tokens: float  # of a text
    is_measured: (
        bool  # whether that is the mean over the tasks of the run, and not the greatest length
    )
    dimensions: Mapping[str, int]  # numbers of a vector, by readout; empty if not recorded
    timing: Timing | None = None

    def cost(self, arm: Arm) -> ArmCost:
        """What a text costs with an arm."""
        readout = Readout.parse(arm.readout)
        needed, total, flops = self._pass(arm.layer)
        seconds = None
        if self.timing:
            seconds = self.timing.seconds * self.tokens
            if deepest := self._pass(self.timing.layer)[-1]:
                seconds *= flops / deepest
        full = self.dimensions.get("", self.width)
        dimensions = self.dimensions.get(arm.readout) or readout.width(full)
        size = math.ceil(dimensions * STORAGES[readout.storage])
        return ArmCost(arm.layer, needed, total, self.tokens, flops, dimensions, size, seconds)

    def _pass(self, layer: int) -> tuple[int, int | None, float]:
        """Weights that must be kept for a layer, those of the whole model, and the operations for a
        text.
        """
        computed = needed = 12 * self.width**2 * layer
        total, attention = None, self.width
        if self.weights and layer in self.weights.layers:
            needed, computed = self.weights.layers[layer]
            total, attention = self.weights.whole, self.weights.attention
        return needed, total, pass_flops(computed, layer, attention, self.tokens, self.tokens)


@dataclass(frozen=True)
class TradeOff:
    """An arm that was scored on every task of the objective, with what it takes.

    ``score`` is the weighted mean of its raw scores, ``stderr`` its standard error. ``gain`` is the
    paired difference from the next cheaper arm of the front; None for the others.
    """

    arm: Arm
    score: float
    stderr: float
    cost: ArmCost
    gain: Difference | None = None


@dataclass(frozen=True)
class TradeOffs:
    """Scores against costs.

    Attributes
    ----------
    arms : tuple of TradeOff
        Every arm that was scored on all tasks of the objective.
    front : tuple of TradeOff
        Those that no other arm beats in both score and cost, cheapest forward pass first: an arm is
        beaten by one with at least its score that needs no more bytes for a vector and no more time
        for a text. Where the run measured no times, it is one that needs no more bytes, layers,
        parameters and operations.
    sizes : mapping
        What is known of the size of every model.
    tasks : tuple of str
        The tasks that scores are means over.
    """

    arms: tuple[TradeOff, ...]
    front: tuple[TradeOff, ...]
    sizes: Mapping[str, ModelSize]
    tasks: tuple[str, ...]


def on_front(scores: Sequence[float], costs: Sequence[ArmCost]) -> list[int]:
    """Places of the arms that no other beats in both score and cost, cheapest forward pass first."""
    if any(cost.seconds is None for cost in costs):
        costs = [replace(cost, seconds=None) for cost in costs]
    unbeaten = undominated(
        [(-score, *cost.compared) for score, cost in zip(scores, costs, strict=True)]
    )
    return sorted(compress(range(len(scores)), unbeaten), key=lambda i: (costs[i].flops, scores[i]))


def recorded_size(
    model: str,
    width: int,
    entries: Sequence[Event],
    recorded: Mapping[Arm, Mapping[str, Scored]],
    config: Mapping[str, Any],
    tasks: Container[str],
) -> ModelSize:
    """What a run recorded of a model: by its entries, the scores by arm and task, and the tasks of
    the objective.
    """
    scores = list(_scores_of(model, recorded))
    tokens = {
        cell.task: score.tokens for cell, score in scores if score.tokens and cell.task in tasks
    }
    dimensions = {cell.arm.readout: score.dimensions for cell, score in scores if score.dimensions}
    settings: Mapping[str, Any] = next(
        (entry for entry in config["models"] if entry["name"] == model), {}
    )
    mean = float(settings.get("max_length") or config["protocol"]["max_length"])
    if tokens:
        mean = fmean(tokens.values())
    weights = _layer_weights(model, entries, [score.size for _, score in scores if score.size])
    return ModelSize(width, weights, mean, bool(tokens), dimensions, _timing(scores))


def _scores_of(
    model: str, recorded: Mapping[Arm, Mapping[str, Scored]]
) -> Iterator[tuple[Cell, Scored]]:
    for arm, by_task in recorded.items():
        if arm.model == model:
            for task, score in by_task.items():
                yield Cell(arm, task), score


def _timing(scores: Iterable[tuple[Cell, Scored]]) -> Timing | None:
    """The time for a token over all encodings down to the deepest layer; each has scores of several
    arms.
    """
    readings = {}
    for cell, score in scores:
        if score.reading and score.tokens:
            tokens = score.reading.texts * score.tokens
            readings[cell.arm.revision, cell.task] = score.reading, tokens
    if not readings:
        return None
    layer = max(reading.layer for reading, _ in readings.values())
    deepest = [entry for entry in readings.values() if entry[0].layer == layer]
    seconds = math.fsum(reading.seconds for reading, _ in deepest)
    return Timing(seconds / math.fsum(tokens for _, tokens in deepest), layer)


def _layer_weights(
    model: str, entries: Sequence[Event], scored: Sequence[NetworkSize]
) -> LayerWeights | None:
    """As the model's checkpoints were measured, also by earlier configurations with other layers,
    and as scored.
    """
    sizes = [
        replace(result.size, layers=result.layers)
        for record, result in measured(entries)
        if result.size and Checkpoint.parse(record.name).model == model
    ]
    sizes += scored
    layers: dict[int, Sequence[int]] = {}
    for size in sizes:
        weights = zip(size.parameters, size.computed, strict=True)
        layers.update(zip(size.layers or (), weights, strict=True))
    if not sizes:
        return None
    return LayerWeights(sizes[-1].whole, sizes[-1].attention, layers)


def trade_offs_of(
    recorded: Mapping[Arm, Mapping[str, Scored]],
    weights: Mapping[str, float],
    sizes: Mapping[str, ModelSize],
    differences: Callable[[Arm, Arm], Mapping[str, Difference]],
) -> TradeOffs | None:
    """The trade-offs of recorded scores, by arm and task; None if no arm was scored on all weighted
    tasks.
    """
    means = means_of(recorded, weights)
    if not means:
        return None
    arms = tuple(TradeOff(arm, *mean, sizes[arm.model].cost(arm)) for arm, mean in means.items())
    indices = on_front([row.score for row in arms], [row.cost for row in arms])
    front = [arms[i] for i in indices]
    with_gains = front[:1]
    for cheaper, row in pairwise(front):
        by_task = differences(row.arm, cheaper.arm)
        gain = mean_difference([by_task[task] for task in weights], list(weights.values()))
        with_gains.append(replace(row, gain=gain))
    used_sizes = {arm.model: sizes[arm.model] for arm in means}
    return TradeOffs(arms, tuple(with_gains), used_sizes, tuple(weights))

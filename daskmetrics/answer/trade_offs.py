"""Scores against what an arm takes: layers, parameters, operations and time for a text, and the
size of a vector.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from operator import attrgetter
from statistics import fmean

import numpy as np

from daskmetrics.answer.recorded import RecordedRun
from daskmetrics.core.errors import DataError
from daskmetrics.domain.costs import pass_flops
from daskmetrics.domain.events import measured
from daskmetrics.domain.names import Arm, Checkpoint
from daskmetrics.domain.outcomes import Difference
from daskmetrics.domain.readouts import Readout
from daskmetrics.domain.results import NetworkSize, Scored


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
        Weights of the whole model; None if its blocks are not known, which are then estimated.
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
        """Texts read in a second; None if not known.

        It is not known of the embedding.
        """
        return 1 / self.seconds if self.seconds else None


@dataclass(frozen=True)
class ModelSize:
    """What a run recorded of a model."""

    width: int  # of the hidden states
    # of a text: the mean over the tasks or, while none is scored, the greatest length
    tokens: float
    dimensions: Mapping[str, int]  # numbers of a vector, by readout; empty if not recorded
    # the whole model, as `daskmetrics.models.LoadedModel.size` counts its weights; None if its
    # blocks are not known
    network: NetworkSize | None
    # of each layer the weights that must be kept, and those that are computed with
    weights: Mapping[int, tuple[int, int]]
    seconds: float | None  # of reading a token down to the `deepest` layer; None if not recorded
    deepest: int

    def cost(self, arm: Arm) -> ArmCost:
        """What a text costs with an arm."""
        parameters, flops = self._pass(arm.layer)
        seconds = None
        if self.seconds is not None:
            seconds = self.seconds * self.tokens
            _, deepest = self._pass(self.deepest)
            if deepest:
                seconds *= flops / deepest
        width = self.dimensions.get("", self.width)
        dimensions = self.dimensions.get(arm.readout) or Readout.parse(arm.readout).width(width)
        network_parameters = None
        if self.network and arm.layer in self.weights:
            network_parameters = self.network.whole
        return ArmCost(
            layers=arm.layer,
            parameters=parameters,
            whole=network_parameters,
            tokens=self.tokens,
            flops=flops,
            dimensions=dimensions,
            bytes=4 * dimensions,
            seconds=seconds,
        )

    def _pass(self, layer: int) -> tuple[int, float]:
        """Weights kept for a layer, and operations for a text."""
        assumed = 12 * self.width**2 * layer
        needed, computed = self.weights.get(layer, (assumed, assumed))
        attention = self.width
        if layer in self.weights and self.network:
            attention = self.network.attention
        return needed, pass_flops(computed, layer, attention, self.tokens, self.tokens)


@dataclass(frozen=True)
class TradeOff:
    """A fully scored arm, with what it takes.

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
        parameters and operations. Of equal ones, the first is here.
    sizes : mapping
        What is known of the size of every model.
    tasks : tuple of str
        The tasks that scores are means over.
    """

    arms: tuple[TradeOff, ...]
    front: tuple[TradeOff, ...]
    sizes: Mapping[str, ModelSize]
    tasks: tuple[str, ...]


def _front(arms: Sequence[TradeOff]) -> list[TradeOff]:
    """The arms that no other beats, cheapest first."""
    compared = ["bytes", "seconds"]
    if any(row.cost.seconds is None for row in arms):  # what determines the time
        compared = ["layers", "parameters", "flops", "bytes"]
    costs_of = attrgetter(*compared)
    points = np.array([(-row.score, *costs_of(row.cost)) for row in arms])
    # of those with equal scores and costs the first
    distinct, rows = np.unique(points, axis=0, return_index=True)
    front = []
    for row, point in zip(rows, distinct, strict=True):
        # another one takes at most as much of everything, and less of something (Pareto)
        is_as_good = (distinct <= point).all(axis=1)
        if is_as_good.sum() == 1:
            front.append(arms[row])
    return sorted(front, key=lambda row: (row.cost.flops, row.score))


def sizes_of(run: RecordedRun) -> dict[str, ModelSize]:
    """What a run recorded of every model, by name."""
    return {model: _size(run, model, width) for model, width in run.plan.widths.items()}


def _size(run: RecordedRun, model: str, width: int) -> ModelSize:
    scores = []
    for arm, by_task in run.recorded.items():
        if arm.model == model:
            scores += [(arm, task, score) for task, score in by_task.items()]
    objective = run.weights
    tokens = {task: score.tokens for _, task, score in scores if score.tokens and task in objective}
    lengths = {entry["name"]: entry.get("max_length") for entry in run.config["models"]}
    mean = float(lengths.get(model) or run.config["protocol"]["max_length"])
    if tokens:
        mean = fmean(tokens.values())
    # as checkpoints were measured, also by earlier configurations with other layers, and as scored
    sizes = [
        replace(result.size, layers=result.layers)
        for record, result in measured(run.entries)
        if result.size and Checkpoint.parse(record.name).model == model
    ]
    sizes += [score.size for _, _, score in scores if score.size]
    weights: dict[int, tuple[int, int]] = {}
    for size in sizes:
        needed = zip(size.parameters, size.computed, strict=True)
        weights.update(zip(size.layers or (), needed, strict=True))
    seconds, deepest = _seconds_per_token(scores)
    return ModelSize(
        width=width,
        tokens=mean,
        dimensions={arm.readout: score.dimensions for arm, _, score in scores if score.dimensions},
        network=sizes[-1] if sizes else None,
        weights=weights,
        seconds=seconds,
        deepest=deepest,
    )


def _seconds_per_token(scores: Iterable[tuple[Arm, str, Scored]]) -> tuple[float | None, int]:
    """The time for a token down to the deepest layer.

    Also this layer. Each encoding has scores of several arms.
    """
    readings = {}
    for arm, task, score in scores:
        if score.reading and score.tokens:
            tokens = score.reading.texts * score.tokens
            readings[arm.revision, task] = score.reading, tokens
    if not readings:
        return None, 0
    layer = max(reading.layer for reading, _ in readings.values())
    deepest = [entry for entry in readings.values() if entry[0].layer == layer]
    seconds = math.fsum(reading.seconds for reading, _ in deepest)
    total_tokens = math.fsum(tokens for _, tokens in deepest)
    return seconds / total_tokens, layer


def trade_offs_of(run: RecordedRun) -> TradeOffs:
    """The trade-offs of a run.

    `DataError` if no arm was scored on all tasks of the objective.
    """
    weights = run.weights
    means = run.means
    if not means:
        raise DataError(
            f"No candidate of the run in '{run.folder.path}' was scored on all {len(weights)} tasks"
            f" of the objective, so there is nothing to compare. {run.remedy}"
        )
    sizes = sizes_of(run)
    arms = []
    for arm, (score, stderr) in means.items():
        cost = sizes[arm.model].cost(arm)
        arms.append(TradeOff(arm, score, stderr, cost))
    front = _front(arms)
    with_gains = front[:1]
    for cheaper, row in pairwise(front):
        gain = run.recorded.gain(row.arm, cheaper.arm, weights)
        with_gains.append(replace(row, gain=gain))
    used_sizes = {arm.model: sizes[arm.model] for arm in means}
    return TradeOffs(tuple(arms), tuple(with_gains), used_sizes, tuple(weights))

"""What a text costs with an arm: layers, parameters, operations, time, and the size of a vector."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from daskmetrics.domain.costs import pass_flops
from daskmetrics.domain.events import Event, measured
from daskmetrics.domain.names import Arm, Checkpoint
from daskmetrics.domain.plan import Plan
from daskmetrics.domain.readouts import Readout
from daskmetrics.domain.results import NetworkSize, Scored
from daskmetrics.domain.scores import Scores


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
    # numbers of a vector, by readout and layer, as far as they are recorded
    dimensions: Mapping[str, Mapping[int, int]]
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
        width = max(self.dimensions.get("", {}).values(), default=self.width)
        by_layer = self.dimensions.get(arm.readout, {})
        assumed = max(by_layer.values(), default=Readout.parse(arm.readout).width(width))
        dimensions = by_layer.get(arm.layer, assumed)
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


def sizes_of(plan: Plan, recorded: Scores, entries: Iterable[Event]) -> dict[str, ModelSize]:
    """What a run recorded of every model, by name."""
    # as checkpoints were measured, also by earlier configurations with other layers, and as scored
    by_model: dict[str, list[NetworkSize]] = {model: [] for model in plan.widths}
    for record, result in measured(entries):
        model = Checkpoint.parse(record.name).model
        if result.size and model in by_model:
            by_model[model].append(replace(result.size, layers=result.layers))
    lengths = {entry["name"]: entry.get("max_length") for entry in plan.config["models"]}
    longest = plan.config["protocol"]["max_length"]
    return {
        model: model_size(
            {arm: by_task for arm, by_task in recorded.items() if arm.model == model},
            plan.weights,
            width,
            by_model[model],
            float(lengths.get(model) or longest),
        )
        for model, width in plan.widths.items()
    }


def model_size(
    scores: Mapping[Arm, Mapping[str, Scored]],
    objective: Iterable[str],
    width: int,
    measured_sizes: Sequence[NetworkSize] = (),
    longest: float = 0.0,
) -> ModelSize:
    """What the scores of a model's arms say of its size and speed.

    ``longest`` are the tokens of a text while none is scored.
    """
    cells = [(arm, task, score) for arm, row in scores.items() for task, score in row.items()]
    counted = set(objective)
    tokens = {task: score.tokens for _, task, score in cells if score.tokens and task in counted}
    sizes = [*measured_sizes, *(score.size for _, _, score in cells if score.size)]
    dimensions: defaultdict[str, dict[int, int]] = defaultdict(dict)
    for arm, _, score in cells:
        if score.dimensions:
            dimensions[arm.readout][arm.layer] = score.dimensions
    weights: dict[int, tuple[int, int]] = {}
    for size in sizes:
        needed = zip(size.parameters, size.computed, strict=True)
        weights.update(zip(size.layers or (), needed, strict=True))
    seconds, deepest = _seconds_per_token(cells)
    return ModelSize(
        width=width,
        tokens=fmean(tokens.values()) if tokens else longest,
        dimensions=dict(dimensions),
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

"""Scores against what an arm takes: layers, parameters, operations and time for a text, and the size of a vector."""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import compress, pairwise
from statistics import fmean
from typing import Any

from daskmetrics.core._costs import pass_flops
from daskmetrics.core._estimate import undominated
from daskmetrics.core._events import Event, succeeded
from daskmetrics.core._outcomes import Difference, mean_difference, means_of
from daskmetrics.core._readouts import STORAGES, Readout
from daskmetrics.core._table import Table
from daskmetrics.core._text import listed, plural
from daskmetrics.core.names import Arm, Checkpoint
from daskmetrics.report._format import apart, number, si, unpaired

HEADER = ("layers", "parameters", "operations", "texts/s", "dimensions", "bytes")


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
        Operations of a forward pass over a text of so many tokens, up to the layer: two for each token and weight of
        the blocks (Kaplan et al. 2020, section 2.1), and those of the attention (Hoffmann et al. 2022, appendix F).
    dimensions : int
        Numbers of a vector.
    bytes : int
        Of a vector, as an index stores it.
    seconds : float or None
        Of reading such a text: what the run measured for the model, times the share of the operations up to the layer.
        It is 0 for the embedding, which has none; None if the run recorded no times.
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
        """How many such texts are read in a second; None if that is not known, as for the embedding."""
        return 1 / self.seconds if self.seconds else None

    @property
    def compared(self) -> tuple[float, ...]:
        """What arms are compared by: bytes of a vector and time, or, where no time is known, what determines it."""
        if self.seconds is None:
            return self.layers, self.parameters, self.flops, self.bytes
        return self.bytes, self.seconds

    @property
    def cells(self) -> tuple[str, ...]:
        """The columns of `HEADER`."""
        kept = si(self.parameters) + ("" if self.whole is None else f" of {si(self.whole)}")
        speed = si(self.texts_per_second) if self.texts_per_second else "unknown" if self.seconds is None else "–"
        shown = kept, si(self.flops), speed, f"{self.dimensions:,}", f"{self.bytes:,}"
        return f"{self.layers}", *shown


@dataclass(frozen=True)
class LayerWeights:
    """Numbers of weights of a model, as `daskmetrics.models.LoadedModel.size` counts them."""

    whole: int
    attention: int  # width
    layers: Mapping[int, Sequence[int]]  # for each layer those that must be kept, and those that are computed with


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
    is_measured: bool  # whether that is the mean over the tasks of the run, and not the greatest length
    dimensions: Mapping[str, int]  # numbers of a vector, by readout; empty if not recorded
    timing: Timing | None = None

    def cost(self, arm: Arm) -> ArmCost:
        """What a text costs with an arm."""
        readout, seconds = Readout.parse(arm.readout), None
        kept, whole, flops = self._pass(arm.layer)
        if self.timing:
            deepest = self._pass(self.timing.layer)[2]
            seconds = self.timing.seconds * self.tokens * (flops / deepest if deepest else 1.0)
        dimensions = self.dimensions.get(arm.readout) or readout.width(self.dimensions.get("", self.width))
        size = math.ceil(dimensions * STORAGES[readout.storage])
        return ArmCost(arm.layer, kept, whole, self.tokens, flops, dimensions, size, seconds)

    def _pass(self, layer: int) -> tuple[int, int | None, float]:
        """Weights that must be kept for a layer, those of the whole model, and the operations for a text."""
        computed = kept = 12 * self.width**2 * layer
        whole, attention = None, self.width
        if self.weights and layer in self.weights.layers:
            kept, computed = self.weights.layers[layer]
            whole, attention = self.weights.whole, self.weights.attention
        return kept, whole, pass_flops(computed, layer, attention, self.tokens, self.tokens)


@dataclass(frozen=True)
class TradeOff:
    """An arm that was scored on every task of the objective, with what it takes.

    ``score`` is the weighted mean of its raw scores, ``stderr`` its standard error. ``gain`` is the paired difference
    from the next cheaper arm of the front; None for the others.
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
        Those that no other arm beats in both score and cost, cheapest forward pass first: an arm is beaten by one with
        at least its score that needs no more bytes for a vector and no more time for a text. Where the run measured no
        times, it is one that needs no more bytes, layers, parameters and operations.
    notes : tuple of str
        What the scores are means of, and how the costs are known.
    """

    arms: tuple[TradeOff, ...]
    front: tuple[TradeOff, ...]
    notes: tuple[str, ...]

    def table(self) -> Table:
        """The front, one arm a row."""
        rows = [
            (str(each.arm), number(each.score, each.stderr), apart(each.gain, " *"), *each.cost.cells)
            for each in self.front
        ]
        notes = (*self.notes, *unpaired(each.gain for each in self.front))
        timed = all(each.cost.seconds is not None for each in self.arms)
        least = "bytes and at least as many texts/s" if timed else "layers, parameters, operations and bytes"
        about = (
            f"arms: those of the {len(self.arms):,} scored on all tasks that no other arm beats in both score and "
            f"cost, by at least the score and no more {least}"
        )
        return Table(("arm", "score", "gain", *HEADER), tuple(rows), "Trade-offs", (about, *notes))

    def _repr_html_(self) -> str:
        return self.table().as_html()


def on_front(scores: Sequence[float], costs: Sequence[ArmCost]) -> list[int]:
    """Places of the arms that no other beats in both score and cost, cheapest forward pass first."""
    if any(cost.seconds is None for cost in costs):
        costs = [replace(cost, seconds=None) for cost in costs]
    kept = undominated([(-score, *cost.compared) for score, cost in zip(scores, costs, strict=True)])
    return sorted(compress(range(len(scores)), kept), key=lambda i: (costs[i].flops, scores[i]))


def sources(sizes: Mapping[str, ModelSize], tasks: Sequence[str]) -> tuple[str, ...]:
    """What the numbers of a table are, and how they are known."""
    lines = [
        f"score: raw mean over {plural(len(tasks), 'task')} ± standard error; gain: above the row before, text by text",
        "parameters: of the embeddings and the blocks up to the layer, of those of the whole model",
        "bytes: of a vector, as an index stores it",
        "operations (FLOPs): 2 x weights of these blocks x tokens of a text, and the attention (Kaplan et al. 2020; "
        "Hoffmann et al. 2022)",
        f"tokens of a text: {'; '.join(_tokens(sizes))}",
    ]
    if all(size.timing for size in sizes.values()):
        lines.append(
            "texts/s: measured for the deepest layer on the workers of the run, without loading the model; computed "
            "for the others by their share of the operations"
        )
    if assumed := [model for model, size in sizes.items() if not size.weights]:
        lines.append(f"assumed for {', '.join(assumed)}, whose size was not recorded: 12 width² weights a block")
    return tuple(lines)


def _tokens(sizes: Mapping[str, ModelSize]) -> list[str]:
    """Tokens of a text, and how they are known, with the models for which that holds."""
    how = {True: "measured, mean over the tasks", False: "the greatest length, as the run recorded none"}
    models: dict[str, list[str]] = {}
    for model, size in sizes.items():
        models.setdefault(f"{size.tokens:,.0f} ({how[size.is_measured]})", []).append(model)
    return [f"{text}{f' for {listed(names)}' if len(models) > 1 else ''}" for text, names in models.items()]


def recorded_size(
    model: str,
    width: int,
    entries: Sequence[Event],
    recorded: Mapping[Arm, Mapping[str, Mapping[str, Any]]],
    config: Mapping[str, Any],
    tasks: Container[str],
) -> ModelSize:
    """What a run recorded of a model: by its entries, the scores by arm and task, and the tasks of the objective."""
    values = [own for arm, by_task in recorded.items() if arm.model == model for own in by_task.items()]
    tokens = {task: value["tokens"] for task, value in values if value.get("tokens") and task in tasks}
    by_arm = ((arm, value.get("dimensions")) for arm, own in recorded.items() for value in own.values())
    dimensions = {arm.readout: found for arm, found in by_arm if found and arm.model == model}
    timing = _timing(model, recorded)
    own = next((each.get("max_length") for each in config["models"] if each["name"] == model), None)
    longest = float(own or config["protocol"]["max_length"])
    mean = fmean(tokens.values()) if tokens else longest
    weights = _layer_weights(model, entries, [value["size"] for _, value in values if "size" in value])
    return ModelSize(width, weights, mean, bool(tokens), dimensions, timing)


def _timing(model: str, recorded: Mapping[Arm, Mapping[str, Mapping[str, Any]]]) -> Timing | None:
    """The time for a token over all encodings down to the deepest layer; each has scores of several arms."""
    read = {
        (arm.revision, task): (value["reading"], value["reading"]["texts"] * value["tokens"])
        for arm, by_task in recorded.items()
        if arm.model == model
        for task, value in by_task.items()
        if value.get("reading") and value.get("tokens")
    }
    deepest = max((reading["layer"] for reading, _ in read.values()), default=0)
    own = [(reading["seconds"], tokens) for reading, tokens in read.values() if reading["layer"] == deepest]
    return Timing(math.fsum(s for s, _ in own) / math.fsum(t for _, t in own), deepest) if own else None


def _layer_weights(model: str, entries: Sequence[Event], scored: Sequence[Mapping[str, Any]]) -> LayerWeights | None:
    """As the model's checkpoints were measured, also by earlier configurations with other layers, and as scored."""
    measured = [e.value for e in succeeded(entries, "measure") if Checkpoint.parse(e.name).model == model]
    sizes = [*({**value["size"], "layers": value["layers"]} for value in measured if value.get("size")), *scored]
    layers: dict[int, Sequence[int]] = {}
    for size in sizes:
        layers.update(zip(size["layers"], zip(size["parameters"], size["computed"], strict=True), strict=True))
    return LayerWeights(sizes[-1]["whole"], sizes[-1]["attention"], layers) if sizes else None


def trade_offs_of(
    recorded: Mapping[Arm, Mapping[str, Mapping[str, Any]]],
    weights: Mapping[str, float],
    sizes: Mapping[str, ModelSize],
    differences: Callable[[Arm, Arm], Mapping[str, Difference]],
) -> TradeOffs | None:
    """The trade-offs of recorded scores, by arm and task; None if no arm was scored on all weighted tasks."""
    means = means_of(recorded, weights)
    if not means:
        return None
    arms = tuple(TradeOff(arm, *mean, sizes[arm.model].cost(arm)) for arm, mean in means.items())
    front = [arms[i] for i in on_front([each.score for each in arms], [each.cost for each in arms])]
    above = [differences(arm.arm, before.arm) for before, arm in pairwise(front)]
    gains = [None, *(mean_difference([by_task[task] for task in weights], list(weights.values())) for by_task in above)]
    best = tuple(replace(arm, gain=each) for arm, each in zip(front, gains, strict=True))
    return TradeOffs(arms, best, sources({arm.model: sizes[arm.model] for arm in means}, list(weights)))

"""From the states of a text's tokens to its vector: pooling, and what a sentence-transformers
folder puts after it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from daskmetrics.checkpoints.shipped import NORMALIZE, Dense, ModelProtocol
from daskmetrics.core.errors import DataError
from daskmetrics.models._hooks import HookedModel
from daskmetrics.models._model import LoadedModel
from daskmetrics.models._tokens import pool
from daskmetrics.models._weights import loading

OnVectors = Callable[[NDArray[np.intp], Sequence[NDArray[np.float32]], NDArray[np.int64]], None]
"""Receives rows (B,), for each pooling the vectors (L, B, D) of these texts, and their numbers of tokens (B,)."""

Pooled = Callable[[Tensor, Tensor, Tensor], Tensor]
"""From states (B, T, D) of float32, the mask (B, T) of tokens that count and that of all tokens to vectors (B, D)."""


class Pooler:
    """Texts as a model is to read them, and their vectors from the states of any layer.

    The poolings are names of `daskmetrics.core.readouts.POOLINGS`; others than ``as_shipped`` are
    without what follows the pooling of a folder of sentence-transformers. An empty name is as the
    protocol says.
    """

    def __init__(
        self,
        model: LoadedModel | HookedModel,
        protocol: ModelProtocol,
        texts: Sequence[str],
        prompts: str | Sequence[str],  # what is put before the texts: one for all, or one for each
        poolings: Sequence[str] = ("",),
    ) -> None:
        if isinstance(prompts, str):
            prompts = [prompts] * len(texts)
        shipped = protocol.shipped
        if shipped and shipped.lower_case:
            prompts = list(map(lower, prompts))
            texts = list(map(lower, texts))
        self.model = model
        # with their prompts, for the model's `read`
        # items that are no text have no prompt
        self.texts = [
            prompt + text if prompt else text for prompt, text in zip(prompts, texts, strict=True)
        ]
        self._poolings = tuple(name or protocol.base.pooling for name in poolings)
        if "as_shipped" in self._poolings and shipped is None:
            raise DataError(
                "This model ships no pooling: it is no folder of sentence-transformers."
            )
        self._shipped = None
        if "as_shipped" in self._poolings:
            self._shipped = shipped
        self._steps: list[Callable[[Tensor], Tensor]] = []
        # tokens at the beginning of each text that are not pooled
        self._skipped: Tensor | None = None
        if self._shipped:
            self._steps = [_step(step, model.device) for step in self._shipped.steps]
        if self._shipped and not self._shipped.include_prompt:
            assert isinstance(model, LoadedModel)  # a network that is read by hooks ships nothing
            lengths = {prompt: model.tokenizer.prompt_length(prompt) for prompt in set(prompts)}
            self._skipped = torch.tensor(
                [lengths[prompt] for prompt in prompts], device=model.device
            )

    @property
    def widths(self) -> list[int]:
        """Numbers of a loaded model's vector, by pooling; modules that are read by hooks have
        widths of their own.
        """
        assert isinstance(self.model, LoadedModel)
        none = torch.zeros(0, 1, self.model.width, device=self.model.device)
        rows = torch.zeros(0, dtype=torch.long, device=self.model.device)
        return [
            self._pooled(name, rows, none, none[..., 0].bool()).shape[1] for name in self._poolings
        ]

    def read(self, layers: Sequence[int], on_vectors: OnVectors) -> None:
        """Read the texts, and call ``on_vectors`` with the vectors of each batch; rows may come
        again.
        """
        batch: list[list[Tensor]] = [[] for _ in self._poolings]

        def take(layer: int, rows: Tensor, states: Tensor, mask: Tensor) -> None:
            for name, vectors in zip(self._poolings, batch, strict=True):
                if layer == layers[0]:
                    vectors.clear()  # a batch that did not fit into memory is repeated
                vectors.append(self._pooled(name, rows, states, mask))
            if layer == layers[-1]:  # one transfer from the device per batch, not per layer
                _check_widths(layers, batch[0])
                pooled = [torch.stack(vectors).cpu().numpy() for vectors in batch]
                on_vectors(rows.cpu().numpy(), pooled, mask.sum(1).cpu().numpy())

        self.model.read(self.texts, layers, take)

    def vectors(self, layers: Sequence[int]) -> list[NDArray[np.float32]]:
        """The vectors (L, texts, D) of all texts at these layers, by pooling."""
        kept: list[NDArray[np.float32]] = []

        def keep(
            rows: NDArray[np.intp], pooled: Sequence[NDArray[np.float32]], _: NDArray[np.int64]
        ) -> None:
            if not kept:
                kept.extend(
                    np.empty((len(layers), len(self.texts), vectors.shape[2]), np.float32)
                    for vectors in pooled
                )
            for vectors, new in zip(kept, pooled, strict=True):
                vectors[:, rows] = new

        self.read(layers, keep)
        return kept

    def __call__(self, rows: Tensor, states: Tensor, mask: Tensor) -> Tensor:
        """Vectors (B, D) of float32 of the texts ``rows`` (B,), from states (B, T, D) and mask (B,
        T).

        With several poolings, those of the first.
        """
        return self._pooled(self._poolings[0], rows, states, mask)

    @torch.inference_mode()
    def _pooled(self, pooling: str, rows: Tensor, states: Tensor, mask: Tensor) -> Tensor:
        if self._shipped is None or pooling != "as_shipped":
            return POOLINGS[NAMES[pooling]](states, mask, mask).float()
        counted = mask
        if self._skipped is not None:
            counted = mask & (mask.cumsum(1) > self._skipped[rows][:, None])
        wide = states.float()
        pooled = [POOLINGS[mode](wide, counted, mask) for mode in self._shipped.pooling]
        vectors = torch.cat(pooled, dim=1)
        for step in self._steps:
            vectors = step(vectors)
        return vectors[:, : self._shipped.dimensions]


def _check_widths(layers: Sequence[int], vectors: Sequence[Tensor]) -> None:
    widths = {layer_vectors.shape[1] for layer_vectors in vectors}
    if len(widths) > 1:
        raise DataError(
            f"The vectors of these {len(layers)} layers have different numbers of dimensions: "
            f"{', '.join(map(str, sorted(widths)))}. Embed layers of one width at a time."
        )


def lower(text: str) -> str:
    """A text in lower case as the library ``tokenizers`` makes it: each character on its own.

    >>> lower("ΟΔΟΣ") == "οδοσ" != "ΟΔΟΣ".lower()
    True
    """
    return "".join(map(str.lower, text))


def _mean_sqrt(states: Tensor, counted: Tensor, _: Tensor) -> Tensor:
    return pool(states, counted, "mean") * counted.sum(1, keepdim=True).clamp(min=1).sqrt()


def _weighted(states: Tensor, counted: Tensor, mask: Tensor) -> Tensor:
    """A mean in which the n-th token of a text has weight n (Muennighoff, 2022)."""
    weights = (mask.cumsum(1) * counted).unsqueeze(-1).float()
    return (states.float() * weights).sum(1) / weights.sum(1).clamp(min=1)


POOLINGS: dict[str, Pooled] = {
    "mean": lambda states, counted, _: pool(states, counted, "mean"),
    "cls": lambda states, counted, _: pool(states, counted, "cls"),
    "lasttoken": lambda states, counted, _: pool(states, counted, "last"),
    "max": (
        lambda states, counted, _: states.masked_fill(~counted.unsqueeze(-1), -torch.inf).amax(1)
    ),
    "mean_sqrt_len_tokens": _mean_sqrt,
    "weightedmean": _weighted,
}
"""The poolings of sentence-transformers."""

NAMES = {
    "mean": "mean",
    "last": "lasttoken",
    "cls": "cls",
    "weighted": "weightedmean",
    "max": "max",
}
"""Their names for our own poolings."""


def _step(step: Dense | str, device: torch.device) -> Callable[[Tensor], Tensor]:
    if step == NORMALIZE:
        return lambda vectors: functional.normalize(vectors, dim=1)
    assert isinstance(step, Dense)
    return _dense(step, device)


def _dense(step: Dense, device: torch.device) -> Callable[[Tensor], Tensor]:
    activation = getattr(nn, step.activation, None)
    if not (isinstance(activation, type) and issubclass(activation, nn.Module)):
        raise DataError(
            f"The dense layer in '{step.weights}' has the activation '{step.activation}', which"
            " torch.nn lacks."
        )
    apply = activation()
    weights = {name: tensor.float().to(device) for name, tensor in load_dense(step).items()}
    linear, bias, residual = (
        weights.get(name) for name in ("linear.weight", "linear.bias", "residual.weight")
    )
    if linear is None:
        raise DataError(
            f"'{step.weights}' has no linear.weight, but {', '.join(weights) or 'nothing'}."
        )

    def dense(vectors: Tensor) -> Tensor:
        activated: Tensor = apply(functional.linear(vectors, linear, bias))
        if not step.residual:
            return activated
        if residual is not None:
            vectors = functional.linear(vectors, residual)
        return activated + vectors

    return dense


def load_dense(step: Dense) -> dict[str, Tensor]:
    """The weights of a dense module, by their names."""
    with loading("the dense layer", step.weights):
        if step.weights.endswith(".safetensors"):
            from safetensors.torch import load_file

            return dict(load_file(step.weights))
        return dict(torch.load(step.weights, map_location="cpu", weights_only=True))

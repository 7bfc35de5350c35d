"""From the states of a text's tokens to its vector: pooling, and what a sentence-transformers
folder puts after it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn import functional

from daskmetrics.checkpoints.shipped import Dense, ModelProtocol
from daskmetrics.core.errors import DataError, foreign_errors
from daskmetrics.models._model import LoadedModel

OnVectors = Callable[[NDArray[np.intp], Sequence[NDArray[np.float32]], NDArray[np.int64]], None]
"""Receives rows (B,), for each pooling the vectors (L, B, D) of these texts, and their numbers of tokens (B,)."""


class Pooler:
    """Texts as a model reads them, and their vectors.

    The poolings are names of `daskmetrics.domain.readouts.POOLINGS`; others than ``as_shipped`` are
    without what follows the pooling of a folder of sentence-transformers. An empty name is as the
    protocol says.
    """

    def __init__(
        self,
        model: LoadedModel,
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
        self.texts = [prompt + text for prompt, text in zip(prompts, texts, strict=True)]
        self._poolings = tuple(name or protocol.base.pooling for name in poolings)
        if "as_shipped" in self._poolings and shipped is None:
            raise DataError(
                "This model ships no pooling: it is no folder of sentence-transformers."
            )
        self._shipped = shipped
        self._steps: list[Callable[[Tensor], Tensor]] = []
        # tokens at the beginning of each text that are not pooled
        self._skipped: Tensor | None = None
        if shipped and "as_shipped" in self._poolings:
            self._steps = [_step(step, model.device) for step in shipped.steps]
            if not shipped.include_prompt:
                lengths = {prompt: model.tokenizer.prompt_length(prompt) for prompt in set(prompts)}
                skipped = [lengths[prompt] for prompt in prompts]
                self._skipped = torch.tensor(skipped, device=model.device)

    @property
    def widths(self) -> list[int]:
        """Numbers of a vector, by pooling."""
        none = torch.zeros(0, 1, self.model.width, device=self.model.device)
        rows = torch.zeros(0, dtype=torch.long, device=self.model.device)
        mask = none[..., 0].bool()
        return [self(rows, none, mask, pooling).shape[1] for pooling in self._poolings]

    def read(self, layers: Sequence[int], on_vectors: OnVectors) -> None:
        """Call ``on_vectors`` with the vectors of each batch.

        Rows may come again.
        """
        batch: list[list[Tensor]] = [[] for _ in self._poolings]

        def take(layer: int, rows: Tensor, states: Tensor, mask: Tensor) -> None:
            for name, vectors in zip(self._poolings, batch, strict=True):
                if layer == layers[0]:
                    vectors.clear()  # a batch that did not fit into memory is repeated
                vectors.append(self(rows, states, mask, name))
            if layer == layers[-1]:  # one transfer from the device per batch, not per layer
                pooled = [torch.stack(vectors).cpu().numpy() for vectors in batch]
                tokens = mask.sum(1).cpu().numpy()
                on_vectors(rows.cpu().numpy(), pooled, tokens)

        self.model.read(self.texts, layers, take)

    def vectors(self, layers: Sequence[int]) -> list[NDArray[np.float32]]:
        """The vectors (L, texts, D) of these layers, by pooling."""
        texts = len(self.texts)
        kept = [np.empty((len(layers), texts, width), np.float32) for width in self.widths]

        def keep(
            rows: NDArray[np.intp], pooled: Sequence[NDArray[np.float32]], _: NDArray[np.int64]
        ) -> None:
            for vectors, new in zip(kept, pooled, strict=True):
                vectors[:, rows] = new

        self.read(layers, keep)
        return kept

    @torch.inference_mode()
    def __call__(self, rows: Tensor, states: Tensor, mask: Tensor, pooling: str = "") -> Tensor:
        """Vectors (B, D) of float32 of the texts ``rows`` (B,).

        From states (B, T, D) and mask (B, T), by default with the first pooling.
        """
        pooling = pooling or self._poolings[0]
        if self._shipped is None or pooling != "as_shipped":
            return pool(states, mask, pooling).float()
        counted = mask
        if self._skipped is not None:
            skipped = self._skipped[rows]
            counted = mask & (mask.cumsum(1) > skipped[:, None])
        wide = states.float()
        pooled = [pool(wide, counted, mode, mask) for mode in self._shipped.pooling]
        vectors = torch.cat(pooled, dim=1)
        for step in self._steps:
            vectors = step(vectors)
        return vectors[:, : self._shipped.dimensions]


def lower(text: str) -> str:
    """A text in lower case, each character on its own.

    So does the library ``tokenizers``.

    >>> lower("ΟΔΟΣ") == "οδοσ" != "ΟΔΟΣ".lower()
    True
    """
    return "".join(map(str.lower, text))


MODES = {
    "mean": "mean",
    "cls": "cls",
    "last": "lasttoken",
    "max": "max",
    "weighted": "weightedmean",
    "mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
}
"""The poolings of sentence-transformers, by our names for them."""


def pool(states: Tensor, counted: Tensor, pooling: str, mask: Tensor | None = None) -> Tensor:
    """One vector per text, (B, D), from the states (B, T, D).

    ``counted`` (B, T) says which tokens count. In a weighted mean the n-th token of the ``mask``
    (B, T), by default of those that count, has weight n (Muennighoff, 2022).

    >>> pool(torch.tensor([[[1.0], [3.0], [9.0]]]), torch.tensor([[True, True, False]]), "mean")
    tensor([[2.]])
    """
    mode = MODES.get(pooling, pooling)
    if mode == "max":
        return states.masked_fill(~counted.unsqueeze(-1), -torch.inf).amax(1)
    texts = torch.arange(len(states), device=states.device)
    if mode == "cls":
        return states[texts, counted.float().argmax(1)]
    if mode == "lasttoken":
        positions = torch.arange(counted.shape[1], device=counted.device)
        last_token = torch.where(counted, positions, -1).argmax(1)
        return states[texts, last_token]
    if mask is None:
        mask = counted
    weights = counted.unsqueeze(1).float()
    if mode == "weightedmean":
        weights *= mask.cumsum(1).unsqueeze(1)
    total = weights @ states.float()
    weight = weights.sum(-1, keepdim=True).clamp(min=1)
    mean = (total / weight).squeeze(1)
    if mode == "mean_sqrt_len_tokens":
        mean *= counted.sum(1, keepdim=True).clamp(min=1).sqrt()
    return mean


def _step(step: Dense | str, device: torch.device) -> Callable[[Tensor], Tensor]:
    if not isinstance(step, Dense):
        return lambda vectors: functional.normalize(vectors, dim=1)
    activation = getattr(nn, step.activation, None)
    if not (isinstance(activation, type) and issubclass(activation, nn.Module)):
        raise DataError(
            f"The dense layer in '{step.weights}' has the activation '{step.activation}', which"
            " torch.nn lacks."
        )
    apply = activation()
    weights = {name: tensor.float().to(device) for name, tensor in load_dense(step).items()}
    linear = weights["linear.weight"]
    bias = weights.get("linear.bias")
    residual = weights.get("residual.weight")

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
    with foreign_errors(f"Cannot load the dense layer in '{step.weights}'", DataError):
        if step.weights.endswith(".safetensors"):
            weights = load_file(step.weights)
        else:
            weights = torch.load(step.weights, map_location="cpu", weights_only=True)
        weights = dict(weights)
    if "linear.weight" not in weights:
        raise DataError(
            f"'{step.weights}' has no linear.weight, but {', '.join(weights) or 'nothing'}. Copy the"
            " model's folder again."
        )
    return weights

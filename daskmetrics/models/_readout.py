"""From the states of a text's tokens to its vector: pooling, and what a sentence-transformers folder puts after it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from daskmetrics.config._protocol import ModelProtocol
from daskmetrics.config._shipped import NORMALIZE, Dense
from daskmetrics.core.errors import DataError
from daskmetrics.models._model import LoadedModel
from daskmetrics.models._tokens import pool

Pooled = Callable[[Tensor, Tensor, Tensor], Tensor]
"""From states (B, T, D) of float32, the mask (B, T) of tokens that count and that of all tokens to vectors (B, D)."""


class Readout:
    """Texts as a model is to read them, and their vectors from the states of any layer.

    Parameters
    ----------
    model : LoadedModel
    protocol : ModelProtocol
    texts : sequence of str
    prompts : str or sequence of str
        What is put before the texts: one for all, or one for each.
    pooling : {"mean", "last", "cls"}, optional
        In place of the protocol's, without what follows its pooling.

    Attributes
    ----------
    texts : list of str
        With their prompts, for `LoadedModel.read`.
    width : int
        Numbers of a vector.
    """

    def __init__(
        self,
        model: LoadedModel,
        protocol: ModelProtocol,
        texts: Sequence[str],
        prompts: str | Sequence[str],
        pooling: str | None = None,
    ) -> None:
        each = [prompts] * len(texts) if isinstance(prompts, str) else list(prompts)
        shipped = protocol.shipped
        if shipped and shipped.lower_case:
            each, texts = [lower(prompt) for prompt in each], [lower(text) for text in texts]
        self.texts = [prompt + text for prompt, text in zip(each, texts, strict=True)]
        self._shipped = None if pooling else shipped
        self._pooling = pooling or protocol.base.pooling
        self._steps = [_step(step, model.device) for step in self._shipped.steps] if self._shipped else []
        self._skipped: Tensor | None = None  # tokens at the beginning of each text that are not pooled
        if self._shipped and not self._shipped.include_prompt:
            lengths = {prompt: model.prompt_length(prompt) for prompt in set(each)}
            self._skipped = torch.tensor([lengths[prompt] for prompt in each], device=model.device)
        none = torch.zeros(0, 1, model.width, device=model.device)
        rows = torch.zeros(0, dtype=torch.long, device=model.device)
        self.width = self(rows, none, none[..., 0].bool()).shape[1]

    @torch.inference_mode()
    def __call__(self, rows: Tensor, states: Tensor, mask: Tensor) -> Tensor:
        """Vectors (B, D) of float32 of the texts ``rows`` (B,), from states (B, T, D) and mask (B, T)."""
        if self._shipped is None:
            return pool(states, mask, self._pooling).float()
        counted = mask
        if self._skipped is not None:
            counted = mask & (mask.cumsum(1) > self._skipped[rows][:, None])
        wide = states.float()
        vectors = torch.cat([POOLINGS[mode](wide, counted, mask) for mode in self._shipped.pooling], dim=1)
        for step in self._steps:
            vectors = step(vectors)
        return vectors[:, : self._shipped.dimensions]


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
    weights = (mask.cumsum(1) * counted).unsqueeze(-1).to(states.dtype)
    return (states * weights).sum(1) / weights.sum(1).clamp(min=1)


POOLINGS: dict[str, Pooled] = {
    "mean": lambda states, counted, _: pool(states, counted, "mean"),
    "cls": lambda states, counted, _: pool(states, counted, "cls"),
    "lasttoken": lambda states, counted, _: pool(states, counted, "last"),
    "max": lambda states, counted, _: states.masked_fill(~counted.unsqueeze(-1), -torch.inf).amax(1),
    "mean_sqrt_len_tokens": _mean_sqrt,
    "weightedmean": _weighted,
}
"""The poolings of sentence-transformers."""


def _step(step: Dense | str, device: torch.device) -> Callable[[Tensor], Tensor]:
    if step == NORMALIZE:
        return lambda vectors: functional.normalize(vectors, dim=1)
    assert isinstance(step, Dense)
    return _dense(step, device)


def _dense(step: Dense, device: torch.device) -> Callable[[Tensor], Tensor]:
    activation = getattr(nn, step.activation, None)
    if not (isinstance(activation, type) and issubclass(activation, nn.Module)):
        raise DataError(
            f"The dense layer in '{step.weights}' has the activation '{step.activation}', which torch.nn lacks."
        )
    apply = activation()
    weights = {name: tensor.float().to(device) for name, tensor in _load(step).items()}
    linear, bias, residual = (weights.get(name) for name in ("linear.weight", "linear.bias", "residual.weight"))
    if linear is None:
        raise DataError(f"'{step.weights}' has no linear.weight, but {', '.join(weights) or 'nothing'}.")

    def dense(vectors: Tensor) -> Tensor:
        made: Tensor = apply(functional.linear(vectors, linear, bias))
        if step.residual:
            made = made + (vectors if residual is None else functional.linear(vectors, residual))
        return made

    return dense


def _load(step: Dense) -> dict[str, Tensor]:
    try:
        if step.weights.endswith(".safetensors"):
            from safetensors.torch import load_file

            return dict(load_file(step.weights))
        return dict(torch.load(step.weights, map_location="cpu", weights_only=True))
    except Exception as error:  # foreign files can fail in any way
        raise DataError(f"Cannot load the dense layer in '{step.weights}': {error}") from error

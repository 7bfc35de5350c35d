"""Where an architecture keeps its blocks and its final norm."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from operator import attrgetter
from types import MappingProxyType
from typing import Any

from torch import nn


@dataclass(frozen=True)
class Family:
    """Names of the parts of a network, as ``AutoModel`` builds it.

    Attributes
    ----------
    blocks : str
        The list of blocks; its entry k takes layer k and gives layer k + 1.
    final_norm : str or None
        The norm after the last block, if there is one: encoders such as BERT have it inside each block.
    """

    blocks: str
    final_norm: str | None


_LLAMA = Family("layers", "norm")
_BERT = Family("encoder.layer", None)
_MAMBA = Family("layers", "norm_f")

FAMILIES: Mapping[str, Family] = MappingProxyType(
    {
        "gpt_neox": Family("layers", "final_layer_norm"),
        "gpt2": Family("h", "ln_f"),
        "gpt_neo": Family("h", "ln_f"),
        **dict.fromkeys(("llama", "mistral", "qwen2", "qwen3", "olmo2", "phi3"), _LLAMA),
        **dict.fromkeys(("bert", "roberta", "xlm-roberta", "electra"), _BERT),
        # transformers leaves the embeddings out of a Mamba's hidden_states and shifts the rest by one
        **dict.fromkeys(("mamba", "mamba2", "falcon_mamba"), _MAMBA),
    }
)
"""The architectures whose states are read block by block, by ``model_type``."""

_FINAL_NORMS = ("final_layer_norm", "ln_f", "norm", "norm_f", "final_norm")
"""Where the final norm is in architectures that are not in the table."""


@dataclass(frozen=True)
class Anatomy:
    """The parts of one network. Without blocks, ``output_hidden_states`` is what can be had."""

    blocks: tuple[nn.Module, ...]
    final_norm: nn.Module | None


def anatomy_of(network: Any) -> Anatomy:
    """Find the blocks and the final norm of a network."""
    family = FAMILIES.get(network.config.model_type)
    if family is None:
        found = (getattr(network, name, None) for name in _FINAL_NORMS)
        return Anatomy((), next((module for module in found if isinstance(module, nn.Module)), None))
    blocks = tuple(attrgetter(family.blocks)(network))
    return Anatomy(blocks, getattr(network, family.final_norm) if family.final_norm else None)

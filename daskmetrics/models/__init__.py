"""From a checkpoint to the hidden states of all its layers, in one forward pass over the texts.

===========
===========================================================================================
`_encoder`  texts as vectors and metrics of layers, as runs compute them; what `daskmetrics.embed`
uses `_save`     a model cut after a layer, in the format of sentence-transformers `_model`    a
loaded checkpoint that reads texts `_hooks`    any network, read by forward hooks
`_networks` networks of this process, into which the weights of the next checkpoint are copied
`_weights`  the tensors of safetensors files, and what LoRA adapters make of those of their base
`_parts`    blocks, final norm and positions of a network; a pass that hands out each layer's states
`_tokens`   texts as token ids, cached by tokenizer; batches and padding
`_pooler`   states as vectors: pooling, prompts, and the modules of a sentence-transformers folder
===========
===========================================================================================

All of it is internal; runs use it through `daskmetrics.run`.
"""

from __future__ import annotations

from daskmetrics.models._encoder import Encoder
from daskmetrics.models._hooks import HookedModel
from daskmetrics.models._model import LoadedModel
from daskmetrics.models._pooler import Pooler, pool
from daskmetrics.models._tokens import InMemory, pad_batch, plan_batches

__all__ = [
    "Encoder",
    "HookedModel",
    "InMemory",
    "LoadedModel",
    "Pooler",
    "pad_batch",
    "plan_batches",
    "pool",
]

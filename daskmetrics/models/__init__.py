"""From a checkpoint to the hidden states of all its layers, in one forward pass over the texts.

In the order of the way there:

`_tokens`   texts as token ids, cached by tokenizer
`_networks` the tensors of a checkpoint's files, and a network of this process that gets them
`_whole`    whether a network holds every tensor of the files, and nothing else
`_adapters` what a LoRA adapter makes of the weights of its base
`_parts`    blocks, final norm and positions of a network; a pass that hands out each layer's states
`_model`    a loaded checkpoint that reads texts, in batches
`_pooler`   states as vectors: pooling, prompts, and the modules of a sentence-transformers folder
`_encoder`  vectors and metrics of layers, as runs compute them; what `daskmetrics.embed` uses
`_save`     a model cut after a layer, in the format of sentence-transformers

All of it is internal; runs use it through `daskmetrics.run`.
"""

from __future__ import annotations

from daskmetrics.models._encoder import TextEncoder
from daskmetrics.models._model import LoadedModel, plan_batches
from daskmetrics.models._parts import pad_batch
from daskmetrics.models._pooler import Pooler, pool
from daskmetrics.models._tokens import InMemory

__all__ = [
    "InMemory",
    "LoadedModel",
    "Pooler",
    "TextEncoder",
    "pad_batch",
    "plan_batches",
    "pool",
]

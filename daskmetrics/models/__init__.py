"""From a checkpoint to the hidden states of all its layers, in one forward pass over the texts.

============ =====================================================================================
`_model`     a loaded checkpoint that reads texts
`_networks`  networks of this process, into which the weights of the next checkpoint are copied
`_weights`   the tensors of safetensors files, read in the background if wanted
`_forward`   one forward pass that hands out the states of each layer
`_parts`     blocks, final norm and positions of a network, found by what they do
`_tokens`    texts as token ids, cached by tokenizer; batches, padding and pooling
`_readout`   states as vectors: pooling, prompts, and the modules of a sentence-transformers folder
============ =====================================================================================

All of it is internal; runs use it through `daskmetrics.run`.
"""

from __future__ import annotations

from daskmetrics.models._model import LoadedModel
from daskmetrics.models._readout import Readout
from daskmetrics.models._tokens import pad_batch, plan_batches, pool

__all__ = ["LoadedModel", "Readout", "pad_batch", "plan_batches", "pool"]

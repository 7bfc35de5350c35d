"""From a checkpoint to the hidden states of all its layers in one pass over the texts.

=============  =========================================================================================
`model`        a checkpoint that is ready to read texts
`networks`     networks of this process, into which the weights of the next checkpoint are swapped
`weights`      what lies in safetensors files, and its reading ahead of need
`anatomy`      where the blocks and the final norm of an architecture are
`forward`      one forward pass, whose states are handed out as they appear
`tokens`       texts as token ids, once per tokenizer and process
`batches`      which texts go together, padding and pooling
=============  =========================================================================================
"""

from __future__ import annotations

from daskmetrics.models._batches import pad_batch, plan_batches, pool
from daskmetrics.models._model import LoadedModel

__all__ = ["LoadedModel", "pad_batch", "plan_batches", "pool"]

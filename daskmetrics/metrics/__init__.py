"""Label-free metrics of a layer: pure functions on tensors, a catalogue that names them, an engine that reduces.

============================  =================================================================================
``catalogue``                 what exists: names, inputs and units, no torch; plug-ins join by entry points
``reduced``                   the answer, layers x metrics, as plain arrays; no torch
``engine``                    `Reducer`: takes hidden states layer by layer and keeps only what is needed
``views``                     a second view of a text, for metrics that compare two
``curvature``, ``infonce``…   one file per metric, one public function each
============================  =================================================================================

A function gets one of three inputs, as its `Metric` says in ``takes``:

- ``tokens``: states (B, T, D) and mask (B, T), and gives one value per prompt, (B,);
- ``pooled``: vectors (P, D), one per prompt, and gives one value;
- ``views``: first (P, D) and second (P, D), two views of the same prompts, and gives one value.

What is undefined is NaN, never an exception and never a zero.

This package itself imports no torch: the driver on a login node checks names with it.
"""

from daskmetrics.metrics.catalogue import Metric, catalogue, resolve

__all__ = ["Metric", "catalogue", "resolve"]

"""Label-free metrics of a layer: pure functions on tensors, a catalogue that names them, an engine that reduces.

============================  =================================================================================
``metric``, ``builtin``       what a metric is, and the table of those of this package; no torch
``calls``, ``catalogue``      how they are asked for: names, calls, families, plug-ins; no torch
``reduced``                   the answer, layers x metrics, as plain arrays; no torch
``engine``                    `Reducer`: takes hidden states layer by layer and keeps only what is needed
``spectra``                   the spectra of a layer, each computed once for all metrics that need it
``views``                     further views of a text, for metrics that compare them
``curvature``, ``infonce``…   one file per metric, one public function each
============================  =================================================================================

A function gets one of four inputs, as its `Metric` says in ``takes``:

- ``tokens``: states (B, T, D) and mask (B, T), and gives one value per prompt, (B,);
- ``pooled``: vectors (P, D), one per prompt, and gives one value;
- ``views``: as many vectors (P, D) as the metric has ``views``, of the same prompts, and gives one value;
- ``layers``: vectors (P, D) of a layer and of the next deeper one, and gives one value.

What is undefined is NaN, never an exception and never a zero.

A metric of your own is a `Metric` that names such a function. Register it by an entry point of the group
``daskmetrics.metrics``, or name the place where it lies, ``mypackage.metrics:NORM``, among the metrics of a
configuration. Module and function must be importable on the workers; only `Metric.load` imports the function.

This package itself imports no torch: the driver on a login node checks names with it.
"""

from daskmetrics.metrics._metric import Metric, Parameter
from daskmetrics.metrics._registry import catalogue, families, resolve

__all__ = ["Metric", "Parameter", "catalogue", "families", "resolve"]

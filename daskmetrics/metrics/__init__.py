"""Label-free metrics of a layer: pure functions on tensors, and the catalogue that names them.

Each metric is one function in a module of the same name, with its source, formula and an example:
`alignment`, `alpha_req`, `anisotropy`, `cka_next`, `curvature`, `dataset_entropy`, `dime`,
`effective_rank`, `infonce`, `intrinsic_dimension`, `lidar`, `logdet_covariance`, `nesum`,
`participation_ratio`, `prompt_entropy`, `rankme`, `spectral_norm`, `stable_rank`, `uniformity`.

============== =========================================================================
`_metric`      what a metric is, and how ``curvature(k=2)`` is read
`registry`     the metrics of this package in one table, plug-ins, lookup by name, operations
`engine`       `Reducer`: reads hidden states layer by layer and computes the metrics
`_spectra`     the spectra of a layer, each computed once for all metrics that need it
`_eigenvalues` eigenvalues of many matrices: which library computes them, and a check
`views`        further views of a text, for metrics that compare views
============== =========================================================================

A function has one of four inputs, which its `Metric` names in ``takes``:

- ``tokens``: states (B, T, D) and mask (B, T); returns one value per prompt, (B,);
- ``pooled``: vectors (P, D), one per prompt; returns one value;
- ``views``: as many vectors (P, D) as the metric has ``views``, of the same prompts; returns one value;
- ``layers``: vectors (P, D) of a layer and of the next deeper one; returns one value.

An undefined value is NaN, never an exception and never zero.

Your own metric is a `Metric` that names such a function. Register it with an entry point of the
group ``daskmetrics.metrics``, or write its place, ``mypackage.metrics:NORM``, among the metrics of
a configuration. Module and function must be importable on the workers; only `Metric.load` imports
the function.

The catalogue imports no torch, so that a login node can check names. Modules with a leading
underscore are internal.
"""

from daskmetrics.metrics._metric import Metric, Parameter
from daskmetrics.metrics.registry import catalogue, families, resolve

__all__ = ["Metric", "Parameter", "catalogue", "families", "resolve"]

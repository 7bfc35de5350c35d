"""Every metric and what its parameters change, with random input for each."""

from __future__ import annotations

import numpy as np
import torch

from daskmetrics.metrics import Metric, resolve

OF_ENTROPIES = (
    "alpha=2",
    "alpha=0.5",
    "centred=false",
    "norm=logN",
    "norm=logD",
    "norm=logNlogD",
    "norm=maxEntropy",
    "variant=paper",
)
OTHERS = (
    "prompt_entropy(alpha=2, variant=paper)",
    "prompt_entropy(first=false)",
    "dataset_entropy(alpha=2, centred=false)",
    "dataset_entropy(alpha=2, variant=paper)",
    "curvature(k=2)",
    "curvature(variant=paper)",
    "effective_rank(squared=true)",
    "effective_rank(centred=false)",
    "rankme(eps=0)",
    "participation_ratio(centred=false)",
    "stable_rank(centred=true)",
    "infonce(temperature=0.5)",
    "infonce(centred=true)",
    "infonce(variant=paper)",
    "uniformity(t=0.5)",
    "intrinsic_dimension(fit=likelihood)",
    "intrinsic_dimension(discarded=0)",
    "alignment(power=1)",
    "lidar(views=2)",
    "lidar(unit=false, log=true)",
    "lidar(relative=true)",
    "dime(alpha=2)",
    "dime(variant=paper)",
    "cka_next(debiased=true)",
)
VARIANTS = resolve(
    [
        "all",
        *(f"prompt_entropy({setting})" for setting in OF_ENTROPIES),
        *(f"dataset_entropy({setting})" for setting in OF_ENTROPIES),
        *OTHERS,
    ]
)


def draw(
    metric: Metric, seed: int, rows: int = 7, width: int = 5, dtype: torch.dtype = torch.float64
) -> list[torch.Tensor]:
    """Random input of a metric: one prompt of some tokens, some vectors, views of them, or two
    layers.
    """
    arrays = 2 if metric.takes == "layers" else metric.views
    states = np.random.default_rng(seed).normal(0.5, 1, size=(arrays, rows, width))
    return list(torch.from_numpy(states).to(dtype))


def value(metric: Metric | str, arrays: list[torch.Tensor]) -> float:
    """A metric, or the one that a call names, of the input that `draw` gives."""
    if isinstance(metric, str):
        (metric,) = resolve([metric])
    if metric.takes == "tokens":
        (states,) = arrays
        return metric.load()(states[None], torch.ones(1, len(states), dtype=torch.bool)).item()
    return metric.load()(*arrays).item()

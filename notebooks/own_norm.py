"""A metric: the length of the vectors."""

from daskmetrics.metrics import Metric


def norm(vectors):
    """Mean length of the vectors (P, D), one per prompt."""
    return vectors.double().norm(dim=1).mean()


NORM = Metric("norm", "pooled", "1", "mean length of a prompt's vector", "own_norm:norm")

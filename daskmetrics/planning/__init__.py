"""What a run will take: costs and estimates as pure functions of numbers."""

from daskmetrics.planning.cost import encode_seconds, forward_flops, score_seconds
from daskmetrics.planning.estimate import Estimate, duration, estimate

__all__ = ["Estimate", "duration", "encode_seconds", "estimate", "forward_flops", "score_seconds"]

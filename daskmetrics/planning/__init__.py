"""What a run will take: costs, offers and options as pure functions of numbers.

============ ===================================================================
`cost`       the assumed cost of a piece of work
`estimate`   what a whole run comes to
`interval`   numbers with bounds and sources
`devices`    what is assumed of GPUs that were not measured
`calibration` what was measured, and how assumptions are put right by it
`workload`   what is to be done
`offer`      what can be had
`options`    the one against the other: times, costs, the choices
`scaling`    time against number of workers
============ ===================================================================
"""

from daskmetrics.planning.calibration import Calibration, Sample, calibrated
from daskmetrics.planning.cost import encode_seconds, forward_flops, score_seconds
from daskmetrics.planning.estimate import Estimate, duration, estimate
from daskmetrics.planning.interval import Figure, Interval
from daskmetrics.planning.offer import NO_WAIT, UNKNOWN_WAIT, Offer
from daskmetrics.planning.options import Choice, Limits, Option, available_now, break_even, choices, front, options
from daskmetrics.planning.scaling import Amdahl, Row, Trial
from daskmetrics.planning.workload import Phase, Workload

__all__ = [
    "NO_WAIT",
    "UNKNOWN_WAIT",
    "Amdahl",
    "Calibration",
    "Choice",
    "Estimate",
    "Figure",
    "Interval",
    "Limits",
    "Offer",
    "Option",
    "Phase",
    "Row",
    "Sample",
    "Trial",
    "Workload",
    "available_now",
    "break_even",
    "calibrated",
    "choices",
    "duration",
    "encode_seconds",
    "estimate",
    "forward_flops",
    "front",
    "options",
    "score_seconds",
]

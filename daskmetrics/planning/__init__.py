"""What a run will take, before it starts: trials of it, and what the cluster offers.

============= ===========================================================================
`plan`        the options for a run, compared; the prediction that is kept beside the run
`bench`       the same work at several numbers of workers
`experiment`  an experiment as a workload
`scenario`    workloads and partitions written down by hand
`slurm`       what a Slurm cluster has free, live or recorded
`options`     a workload on an offer: times, costs, suggestions
`workload`    what is to be done
`offer`       what can be had
`devices`     assumed speeds of GPUs that were not measured
`calibration` measured times, and how they correct what is assumed
`scaling`     time against number of workers
`report`      tables for a terminal, CSV and HTML; the plot of a bench
`doctor`      checks of a profile, an experiment or a run
============= ===========================================================================
"""

from daskmetrics.planning._calibration import Calibration, Sample, calibrated
from daskmetrics.planning._offer import NO_WAIT, UNKNOWN_WAIT, Offer
from daskmetrics.planning._options import (
    Limits,
    Option,
    Suggestion,
    available_now,
    break_even,
    front,
    options,
    suggestions,
)
from daskmetrics.planning._scaling import Amdahl, BenchTrial, ScalingRow
from daskmetrics.planning._workload import Phase, Workload

__all__ = [
    "NO_WAIT",
    "UNKNOWN_WAIT",
    "Amdahl",
    "BenchTrial",
    "Calibration",
    "Limits",
    "Offer",
    "Option",
    "Phase",
    "Sample",
    "ScalingRow",
    "Suggestion",
    "Workload",
    "available_now",
    "break_even",
    "calibrated",
    "front",
    "options",
    "suggestions",
]

"""Estimates of a run before it starts: its time, its cost, and what is free to run it on.

=============== ===================================================================
`_plan`         the options for a configuration, and the prediction kept for the run
`_bench`        the same work with several numbers of workers
`_trials`       what each of its trials does
`_workload`     the work of a run in phases, and its time on a number of workers of one kind
`_experiment`   an experiment as a workload
`_scenario`     workloads and partitions written by hand
`_options`      offers of workers compared for a workload: times, costs, suggestions
`_slurm`        what a Slurm cluster has free, live or recorded
`_success`      how earlier work on a partition ended
`_calibration`  measured times, and how they correct assumed times
`_scaling`      time against number of workers
`_rank_bench`   what the ranks of a training measure: exchange of gradients, loaders, precision
`_report`       tables of a plan and a bench; the plot of a bench
`doctor`        checks of a profile, an experiment or a run
=============== ===================================================================
"""

from daskmetrics.core._estimate import Estimate, Interval
from daskmetrics.planning._options import Limits, Offer, Option, Suggestion, front, options, suggestions
from daskmetrics.planning._workload import Phase, Workload

__all__ = [
    "Estimate",
    "Interval",
    "Limits",
    "Offer",
    "Option",
    "Phase",
    "Suggestion",
    "Workload",
    "front",
    "options",
    "suggestions",
]

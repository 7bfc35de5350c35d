"""Before a run: its time, its cost, what is free to run it on, and what will go wrong.

============= ===============================================================================
`calibration` measured times, and how they correct assumed times
`options`     phases of work, and offers of workers compared for them: times, costs, suggestions
`estimate`    what is left of an experiment, as a workload
`preview`     the same as the table of a dry run
`offers`      what profiles offer: free workers, waits, how earlier work ended
`plan`        the options for a configuration
`progress`    the prediction that a plan keeps for its run, beside the run
`scaling`     numbers with error bounds, and time against number of workers
`bench`       the same work with several numbers of workers
`rank_bench`  what the ranks of a training measure: exchange of gradients, loaders, precision
`report`      tables of a plan and a bench
`doctor`      checks of a profile, an experiment or a run
============= ===============================================================================

All assumed costs are those of `daskmetrics.core.costs`, which the search uses as well.
"""

from daskmetrics.planning.options import (
    Limits,
    Offer,
    Option,
    Phase,
    Suggestion,
    Workload,
    options,
    suggestions,
)
from daskmetrics.planning.scaling import Estimate, Interval

__all__ = [
    "Estimate",
    "Interval",
    "Limits",
    "Offer",
    "Option",
    "Phase",
    "Suggestion",
    "Workload",
    "options",
    "suggestions",
]

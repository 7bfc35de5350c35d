"""Before a run: its time, its cost, what is free to run it on, and what will go wrong.

============= ===============================================================================
`workload`    phases of work, and their time on a number of workers of one kind
`calibration` measured times, and how they correct assumed times
`estimate`    what is left of an experiment, as a workload
`preview`     the same as the table of a dry run
`options`     offers of workers compared for a workload: times, costs, suggestions
`offers`      what profiles offer: free workers, waits, how earlier work ended
`plan`        the options for a configuration, and the prediction kept for the run
`progress`    how far a run is beside what its plan predicted
`scaling`     time against number of workers
`bench`       the same work with several numbers of workers
`trials`      what each of its trials does
`rank_bench`  what the ranks of a training measure: exchange of gradients, loaders, precision
`report`      tables of a plan and a bench; the plot of a bench
`doctor`      checks of a profile, an experiment or a run
============= ===============================================================================

All assumed costs are those of `daskmetrics.core.costs`, which the search uses as well.
"""

from daskmetrics.core.costs import Estimate, Interval
from daskmetrics.planning.options import (
    Limits,
    Offer,
    Option,
    Phase,
    Suggestion,
    Workload,
    front,
    options,
    suggestions,
)

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

"""Before a run: its time, its cost, what is free to run it on, and what will go wrong.

============= ===============================================================================
`options`     times with their errors; offers of workers compared for the phases of work: times,
              costs, suggestions, and the tables of a plan
`estimate`    what is left of an experiment as a workload; measured times correct assumed times
`preview`     the same as the table of a dry run
`plan`        the options for a configuration, from what its profiles offer
`scaling`     time against number of workers, and its tables
`bench`       the same work with several numbers of workers; what the ranks of a training measure
`doctor`      checks of a profile, an experiment or a run
============= ===============================================================================

All assumed costs are those of `daskmetrics.core.costs`, which the search uses as well.
"""

__all__: list[str] = []

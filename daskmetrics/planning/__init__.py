"""Before a run: its time, its cost, and what will go wrong.

============= ===============================================================================
`work`        the phases of the work of a run, and its time on workers of a device
`calibration` measured seconds of units, kept in files, which correct assumed ones
`estimate`    what is left of an experiment or of training programs, counted by its plan
`options`     offers of workers compared: times, costs, the one to choose
`offers`      what this machine and Slurm offer
`plan`        the options for a configuration or a training program
`table`       a plan as one table, and as a document
`preview`     the table of a dry run
`bench`       the same work with several numbers of workers, measured and simulated
`doctor`      checks of a profile, an experiment or a run
============= ===============================================================================

Each time is three numbers: low, expected and high. All assumed costs are those of
`daskmetrics.domain.costs`, which the search uses as well.
"""

__all__: list[str] = []

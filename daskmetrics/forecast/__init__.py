"""What a run will take: by trials of it, and by what is free.

================ ===========================================================================
`work`           what can be tried: phases of an experiment, a map
`bench`          the same work at several numbers of workers
`calibrations`   where what was measured is kept
`experiments`    an experiment as a workload
`site`           what a Slurm has free, live or recorded
`paper`          workloads and partitions written down by hand
`plan`           all of these as a proposal
`proposal`       options, choices, commands; the prediction kept beside the run
`text`           sheets of rows for a terminal, CSV and HTML
`figures`        the plot of a bench
`page`           sheets as HTML
================ ===========================================================================
"""

"""What every other package may use: names, errors, files, times. Needs the standard library and numpy only.

========== =====================================================================
`names`    suites, checkpoints, arms and cells, as frozen values with content keys
`steps`    the axis of training steps
`errors`   the exceptions of this package
`status`   what became of one stored value
`files`    where a run keeps its files, and how a file is written
`workers`  the workers that a Dask client has
`times`    durations and walltimes, read from text
`text`     numbers and lists as a person writes them
`corpus`   the prompts that are measured
`costs`    the assumed cost of a piece of work
`events`   names of the events that workers send to the live pages
========== =====================================================================
"""

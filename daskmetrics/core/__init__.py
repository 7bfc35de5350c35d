"""What every other package may use: names, errors, files, times. Needs only the standard library and numpy.

============== =========================================================================
`names`        suites, checkpoints, arms and cells, as frozen values with content keys
`errors`       the exceptions of this package
`status`       the status of a stored value
`_files`       the files of a run, and writing a file completely or not at all
`_corpus`      the prompts that are measured
`_rows`        the rows of a user's table, and the lines of a text file
`_readouts`    how an arm's vector is read: pooling, layers together, dimensions, whitening, storage
`_lazy`        names that a package imports on first use
`_fitted`      readouts applied to pooled vectors
`_steps`       training steps along an axis
`_text`        durations, counts and lists as text, and durations read from text
`_json`        results as one JSON document
`_table`       tables for a terminal, a spreadsheet and a page
`_costs`       the cost model: assumed seconds of each kind of work
`_estimate`    numbers with error bounds and a source
`_machine`     software and GPUs of this machine, and the workers of a Dask client
`_main_module` child processes that do not import the caller's main module
`_telemetry`   what workers use over time: CPU, memory, network, disk, GPU
`_outcomes`    what a score says of every item, and the paired difference of two scores
`_events`      the entries of a journal, the messages to the live pages and their topics
============== =========================================================================

Modules with a leading underscore are internal.
"""

__all__: list[str] = []

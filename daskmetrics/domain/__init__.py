"""The vocabulary: candidates, tasks, what a run is asked, and what is known.

================ ==============================================================================
`names`          suites, checkpoints, arms and cells, as frozen values with content keys
`readouts`       how an arm's vector is read: pooling, dimensions
`plan`           what a run is asked, and the keys of the units that answer it
`results`        what each kind of work unit gives, as frozen values, and the status of a value
`record`         the record of a work unit
`outcomes`       what a score says of every item, and the paired difference of two scores
`scores`         the scores of candidates on tasks, as a mapping and as arrays
`recommendation` what a search recommends
`costs`          the cost model: assumed seconds of work
`training`       how far a training program is, and how its ranks end
`failures`       failures grouped by their causes, and their table
`retry`          what follows a failed attempt, as a value
`events`         the entries of a journal, the messages to the live pages and their topics
================ ==============================================================================

It needs numpy, and nothing of the rooms above.
"""

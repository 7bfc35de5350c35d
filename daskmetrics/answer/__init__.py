"""What a run found, as numbers: read from its files, without a word of a report.

============== ===================================================================================
`recorded`     `RecordedRun`: what the files of a run hold: configuration, records, scores
`analysis`     scores, metrics, correlations, the path of the search, failures and seconds
`posterior`    the posterior of the search, computed again from the journal
`trade_offs`   `TradeOffs`: scores against what candidates take
`evidence`     what a verdict rests on
`ties`         which candidates are within the error of the best: the test
============== ===================================================================================

Nothing here measures anything, imports torch, needs a scheduler, or phrases a sentence.
"""

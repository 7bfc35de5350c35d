"""What a run found, as numbers: read from its files, without a word of a report.

============= ===========================================================================
`recorded`    `RecordedRun`: what the files of a run hold: configuration, records, scores
`evidence`    `Evidence`: what an answer rests on: plan, scores and the end of the search
`answer`      `Answer`: what to use, what it gains, how sure that is, what it cost; `Verdict`: the
              best and the tied candidates, over all tasks, by kind, task and model; all in the
              order of their means
`worth`       the gain of each choice of a readout; finalists on items that were kept back
`ties`        which candidates are within the error of the best: the test
`sizes`       `ArmCost`: what a text costs with a candidate: operations, time, bytes of a vector
`trade_offs`  `TradeOffs`: scores against what candidates take
`comparison`  two candidates, and two runs
`status`      `Status`: how far a run is, and how busy its workers were
`analysis`    scores, metrics, correlations, the path of the search, failures and seconds
`posterior`   the posterior of the search, computed again from the journal
============= ===========================================================================

Nothing here measures anything, imports torch, needs a scheduler, or phrases a sentence.
"""

from daskmetrics.answer.answer import Answer, RankedArm, Standing, Verdict, answer_of
from daskmetrics.answer.recorded import RecordedRun
from daskmetrics.answer.sizes import ArmCost
from daskmetrics.answer.status import RunStatus, status_of
from daskmetrics.answer.trade_offs import TradeOff, TradeOffs
from daskmetrics.answer.worth import Worth
from daskmetrics.domain.outcomes import Difference

__all__ = [
    "Answer",
    "ArmCost",
    "Difference",
    "RankedArm",
    "RecordedRun",
    "RunStatus",
    "Standing",
    "TradeOff",
    "TradeOffs",
    "Verdict",
    "Worth",
    "answer_of",
    "status_of",
]

"""The search: which (arm, task) cells to pay for, and what they say about the best arm.

Pure mathematics of numbers: nothing here knows of futures, files or weights. Imports run downwards in this list.

=================== ==================================================================================
`problem`           arms, tasks, features and costs; `answers`: what became of cells, as columns
`ledger`, `fleet`   what was paid for, shared encodings once; assumed workers, their clock and their checkpoints
`rewards`           raw scores to values that tasks can be compared and averaged by
`kernel`            what is believed before a score is seen, and how that is learnt
`posterior`         a Gaussian process over all cells, and what it says of every arm; `memory` lets it grow
`policy`            what a policy sees (`State`) and answers (`Choice`)
`policies`          one per file: `race` is the default; `policies.registry` knows them by name
`prices`            the assumed costs, corrected by measured ones
`confidence`        probabilities of being the best or nearly so, and who else may be
`recommendation`    the best arm, its confidence and its price
`objectives`        what an arm should be best at; the best arm of every kind of task
`campaign`          the learner: ``ask`` and ``tell``, deterministic in any order of arrival
`replay`            a campaign over a table of known scores
=================== ==================================================================================
"""

from daskmetrics.bandit._learner import Budget, Campaign, Pick
from daskmetrics.bandit._objectives import champions, weigh
from daskmetrics.bandit._policy import Choice, Policy, State
from daskmetrics.bandit._problem import Outcome, Problem, arm_features
from daskmetrics.bandit._recommend import Recommendation
from daskmetrics.bandit.policies._registry import installed, place_of, policy_named

__all__ = [
    "Budget",
    "Campaign",
    "Choice",
    "Outcome",
    "Pick",
    "Policy",
    "Problem",
    "Recommendation",
    "State",
    "arm_features",
    "champions",
    "installed",
    "place_of",
    "policy_named",
    "weigh",
]

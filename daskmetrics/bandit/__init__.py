"""The search: which (arm, task) cells to pay for, and what their scores say about the best arm.

Mathematics of numbers: nothing here uses futures, files or model weights. Imports run downwards in
this list.

=========== =================================================================================
`problem`   arms, tasks, features and costs; scores as arrays
`costs`     what was paid, what a cell would cost next, and the assumed workers
`model`     the Gaussian process: the prior, its parameters, the posterior
`_state`    what a policy sees (`State`) and returns (`Choice`); which arm would be reported
`_coverage` what a search must have looked at before it compares, and before it is sure
`_errors`   the part of a score's error that decides
`policies`  the policies by name: `race` is the default
`recommend` the best arm and its confidence, by kind of task; whether a score will still rise
`_learner`  the decisions of a search: ``ask`` and ``tell``
=========== =================================================================================
"""

from daskmetrics.bandit._learner import Budget, Ending, Learner, Pick, least_budget
from daskmetrics.bandit._state import Choice, Policy, State
from daskmetrics.bandit.policies import installed_policies, policy_named, policy_path
from daskmetrics.bandit.problem import Outcome, Problem, arm_features, problem_of, task_weights
from daskmetrics.bandit.recommend import champions
from daskmetrics.domain.recommendation import Recommendation

__all__ = [
    "Budget",
    "Choice",
    "Ending",
    "Learner",
    "Outcome",
    "Pick",
    "Policy",
    "Problem",
    "Recommendation",
    "State",
    "arm_features",
    "champions",
    "installed_policies",
    "least_budget",
    "policy_named",
    "policy_path",
    "problem_of",
    "task_weights",
]

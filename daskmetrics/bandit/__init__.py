"""The search: which (arm, task) cells to pay for, and what their scores tell about the best arm.

Mathematics of numbers: nothing here uses futures, files or model weights. Imports run downwards in this list.

===================================== ========================================================================
`_problem`                            arms, tasks, features and costs; outcomes as arrays
`_features`                           what is known of an arm before any score, as numbers
`_costs`, `_clock`                    what was paid, and corrections by measured seconds; assumed workers
`_rewards`                            from raw scores to values that can be averaged over tasks
`_kernel`                             the Gaussian process prior, and how its parameters are estimated
`_posterior`, `_incremental`          the posterior of every arm; how it grows during a search
`_policy`                             what a policy sees (`State`) and returns (`Choice`)
`_coverage`                           a first look at every model; kinds of task that contenders were scored on
`policies`                            the policies: `race` is the default
`_recommend`, `_objectives`           the best arm and its confidence; the best arm of every kind of task
`_learner`                            the decisions of a search: ``ask`` and ``tell``
`_forecast`                           whether the score of checkpoints that do not exist yet will rise
`_outlook`                            why it ended, what more would buy, what the metrics contributed
`_simulate`, `replay`                 a search of known scores; many of them, compared
===================================== ========================================================================
"""

from daskmetrics.bandit._features import arm_features
from daskmetrics.bandit._learner import Budget, Learner, Pick, least_budget
from daskmetrics.bandit._objectives import champions, task_weights
from daskmetrics.bandit._outlook import metrics_worth, outlook
from daskmetrics.bandit._policy import Choice, Policy, State
from daskmetrics.bandit._problem import Outcome, Problem
from daskmetrics.bandit._recommend import Recommendation
from daskmetrics.bandit.policies._registry import installed_policies, policy_named, policy_path

__all__ = [
    "Budget",
    "Choice",
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
    "metrics_worth",
    "outlook",
    "policy_named",
    "policy_path",
    "task_weights",
]

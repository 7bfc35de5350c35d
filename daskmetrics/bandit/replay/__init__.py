"""Searches of known scores, by the code of a live search: what a policy would have found, and at what cost.

============= ============================================================================
`_tables`     known scores as arrays over arms x tasks
`_likeness`   how alike the tasks were in other models
`_scenario`   how a table becomes a search: costs, tasks and objective; the true best arm
`_trials`     one search per setting and seed, on several processes
`_statistics` success rates, costs, confidence, with their intervals; CSV files
`_report`     the same as tables for a terminal, and as curves
============= ============================================================================

Nothing here needs torch, a scheduler or a GPU.
"""

from daskmetrics.bandit.replay._likeness import task_likeness
from daskmetrics.bandit.replay._report import describe, summary_tables
from daskmetrics.bandit.replay._scenario import GroundTruth, Scenario, ground_truth
from daskmetrics.bandit.replay._statistics import COST_SHARES, write_csv
from daskmetrics.bandit.replay._tables import ScoreRow, ScoreTable, score_table
from daskmetrics.bandit.replay._trials import ReplayPlan, ReplayStep, ReplayTrial, Setting, run_trials

__all__ = [
    "COST_SHARES",
    "GroundTruth",
    "ReplayPlan",
    "ReplayStep",
    "ReplayTrial",
    "Scenario",
    "ScoreRow",
    "ScoreTable",
    "Setting",
    "describe",
    "ground_truth",
    "run_trials",
    "score_table",
    "summary_tables",
    "task_likeness",
    "write_csv",
]

"""Searches of known scores: what a policy would have found, and at what cost, by the very code of a live search.

=========== ================================================================================
`tables`    known scores as arrays over arms x tasks
`readers`   from CSV files, mteb results and our own runs
`terms`     what cells cost, and what the best arm is best at; the truth
`trials`    one search per seed, on several processes
`summary`   how often, how soon, how sure: numbers with their intervals, and CSV files
`text`      the same as tables for a terminal
`figures`   the same as curves
=========== ================================================================================

Nothing here needs torch, a scheduler or a GPU.
"""

from daskmetrics.bandit.replay._report import Sheet, about, sheets
from daskmetrics.bandit.replay._scenario import Terms, Truth, truth
from daskmetrics.bandit.replay._statistics import SHARES, write
from daskmetrics.bandit.replay._tables import Row, Table, table
from daskmetrics.bandit.replay._trials import Plan, Setting, Step, Trial, conduct

__all__ = [
    "SHARES",
    "Plan",
    "Row",
    "Setting",
    "Sheet",
    "Step",
    "Table",
    "Terms",
    "Trial",
    "Truth",
    "about",
    "conduct",
    "sheets",
    "table",
    "truth",
    "write",
]

"""What a run found, for readers: texts for a terminal, figures, an HTML page and tables of numbers.

============== ==============================================================================
`_run`         `Run`: a run with its answer; `Best`: the recommended candidate, and its model
`_background`  `BackgroundRun`: a run that goes on in a thread
`_leaderboard` `Leaderboard`: candidates by their mean score, as table, frame and figure
`lines`        the answer, line by line
`status`       how far a run is, line by line, and what is missing
`tables`       the tables below an answer, and those that the page folds
`explanation`  why the search chose a candidate or not
`comparison`   two candidates or two runs beside each other
`terminal`     what a terminal shows of a run
`_format`      lines, numbers and candidates as text
`markup`       HTML by templates; cards for notebooks
`log`          the journal line by line, and the history of one work unit
`_export`      all numbers in one file, and scores as files of mteb
`_quantities`  what figures show of a candidate
`figures`      the figures with matplotlib, as axes and as files
`page`         the page, with figures by `daskmetrics.dashboard.drawing`
`index`        one page that lists the runs in a folder
============== ==============================================================================

Nothing here computes what a run found: `daskmetrics.answer` does. Nothing imports torch or needs a
scheduler.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from daskmetrics.core import on_first_use
from daskmetrics.report._format import fact, need_matplotlib

if TYPE_CHECKING:
    from daskmetrics.report._background import BackgroundRun
    from daskmetrics.report._export import export, frame, to_mteb
    from daskmetrics.report._leaderboard import Leaderboard
    from daskmetrics.report._run import Best, Run
    from daskmetrics.report.figures import Plots
    from daskmetrics.report.page import write

__all__ = [
    "BackgroundRun",
    "Best",
    "Leaderboard",
    "Plots",
    "Run",
    "export",
    "fact",
    "frame",
    "need_matplotlib",
    "to_mteb",
    "write",
]

_PLACES = {
    "BackgroundRun": "daskmetrics.report._background:BackgroundRun",
    "Best": "daskmetrics.report._run:Best",
    "export": "daskmetrics.report._export:export",
    "frame": "daskmetrics.report._export:frame",
    "Leaderboard": "daskmetrics.report._leaderboard:Leaderboard",
    "Plots": "daskmetrics.report.figures:Plots",
    "Run": "daskmetrics.report._run:Run",
    "to_mteb": "daskmetrics.report._export:to_mteb",
    "write": "daskmetrics.report.page:write",
}
# commands that only show a line need neither pandas nor an answer
__getattr__ = on_first_use(__name__, _PLACES)

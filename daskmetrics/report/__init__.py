"""What a run found, for readers: texts for a terminal, figures, an HTML page and tables of numbers.

============== ==============================================================================
`_run`         `Run`: a run with its answer
`_background`  `BackgroundRun`: a run that goes on in a thread
`_best`        `Best`: the recommended candidate, and the model that reads it
`_leaderboard` `Leaderboard`: candidates by their mean score, as table, frame and figure
`_sections`    an answer and its run as sections: title, sentence, table
`_terminal`    status, summary, best, explained and cheaper candidates for a terminal
`_compare`     runs side by side, two candidates, a run and published scores
`_format`      numbers, candidates and labelled lines as text; templates; cards for notebooks
`log`          the journal line by line, and the history of one work unit
`_export`      all numbers in one file
`_plots`       `Plots`: the figures as axes
`plots`        the figures
`page`         the page
`overview`     the runs of a folder, one row each
`server`       a server of pages of these runs
============== ==============================================================================

Nothing here computes what a run found: `daskmetrics.answer` does. Nothing imports torch or needs a
scheduler.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from daskmetrics.answer import (
    Answer,
    ArmCost,
    RankedArm,
    Standing,
    TradeOff,
    TradeOffs,
    Verdict,
    Worth,
)
from daskmetrics.core.errors import room_for
from daskmetrics.core.files import private
from daskmetrics.core.lazy import on_first_use
from daskmetrics.core.outcomes import Difference
from daskmetrics.report._best import Best
from daskmetrics.report._compare import compare_arms_text, compare_published_text, compare_text
from daskmetrics.report._export import export, frame
from daskmetrics.report._format import fact
from daskmetrics.report._leaderboard import Leaderboard
from daskmetrics.report._plots import Plots
from daskmetrics.report._run import Run
from daskmetrics.report._terminal import (
    best_text,
    explain_text,
    status_text,
    summary_text,
    trade_offs_text,
    whereabouts,
    within_text,
)

if TYPE_CHECKING:
    from daskmetrics.experiment.score_tables import read as read_scores
    from daskmetrics.report._background import BackgroundRun

__all__ = [
    "Answer",
    "ArmCost",
    "BackgroundRun",
    "Best",
    "Difference",
    "Leaderboard",
    "Plots",
    "RankedArm",
    "Run",
    "Standing",
    "TradeOff",
    "TradeOffs",
    "Verdict",
    "Worth",
    "best_text",
    "compare_arms_text",
    "compare_published_text",
    "compare_text",
    "explain_text",
    "export",
    "fact",
    "frame",
    "read_scores",
    "status_text",
    "summary_text",
    "trade_offs_text",
    "whereabouts",
    "within_text",
    "write",
]

_PLACES = {
    "BackgroundRun": "daskmetrics.report._background:BackgroundRun",
    "read_scores": "daskmetrics.experiment.score_tables:read",
}
__getattr__ = on_first_use(__name__, _PLACES)


def write(run: Run, vectors: bool = False) -> Path:
    """Write the HTML report, its figures and ``summary.json``, and return the path of the page.

    Parameters
    ----------
    run : Run
    vectors : bool
        Whether to write each figure as SVG, too.

    Raises
    ------
    DiskFullError
        If the disk is full.
    """
    from daskmetrics.report.page import write_page

    with private(), room_for(f"the report in '{run.folder.report}'"):
        return write_page(run, vectors)

"""Results of a run, read from its files: texts for a terminal, figures, an HTML page and tables of numbers.

================ =================================================================================
`_recorded`      what the files of a run hold: configuration, records, scores
`_run`           `Run`: the same with its answer: best arm, verdict, leaderboard
`_background`    `BackgroundRun`: a run that goes on in a thread
`_best`          `Best`: the recommended arm beside the default arm
`_fresh`         finalists on items that were kept back from the search
`_tradeoffs`     `TradeOffs`: scores against what arms take
`_outlook`       why the search ended, what more would buy, why the answer changed, as sentences
`_arrays`        the store as labelled arrays
`_format`        numbers, arms and labelled lines as text; templates; cards for notebooks
`_snippet`       the lines of Python that load an arm
`_analysis`      scores, metrics, correlations, the path of the search, failures and seconds
`_timing`        the plan beside the run, and how busy the workers were
`_terminal`      status, summary and best arm for a terminal
`_posterior`     the posterior of the search, computed again from the journal
`_paired`        two arms compared item by item
`_ties`          which arms are within the error of the best: the test
`_leaderboard`   `Leaderboard`: arms ordered by their mean score, with errors and ties
`_evidence`      what a verdict rests on
`_verdict`       the best and the tied arms, over all tasks, by kind and by task
`_worth`         `Worths`: what each choice of a readout is worth, paired
`_explain`       why the search chose an arm; which cheaper arms are nearly as good
`_compare`       runs side by side, or a run and published scores
`_documents`     the same results for other programs, as plain values
`_log`           the journal line by line, and the history of one work unit
`_export`        all numbers in one file
`_plots`         `Plots`: the figures as axes
`plots`          the figures
`_tables`        the tables of the page
`_html`          the page
`_overview`      the runs of a folder, one row each
`_serve`         a server of pages of these runs
================ =================================================================================

Nothing here measures anything, imports torch or needs a scheduler.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from daskmetrics.core._files import private
from daskmetrics.core._lazy import on_first_use
from daskmetrics.core._outcomes import Difference
from daskmetrics.core.errors import room_for
from daskmetrics.report._best import Best
from daskmetrics.report._export import export, frame
from daskmetrics.report._leaderboard import Leaderboard, RankedArm
from daskmetrics.report._plots import Plots
from daskmetrics.report._run import Run
from daskmetrics.report._terminal import best_text, status_text, summary_text, whereabouts
from daskmetrics.report._tradeoffs import ArmCost, TradeOff, TradeOffs
from daskmetrics.report._verdict import Standing, Verdict
from daskmetrics.report._worth import Worth, Worths

if TYPE_CHECKING:
    from daskmetrics.execution._score_tables import read as read_scores
    from daskmetrics.report._background import BackgroundRun

__all__ = [
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
    "Worths",
    "best_text",
    "export",
    "frame",
    "read_scores",
    "status_text",
    "summary_text",
    "whereabouts",
    "write",
]

_PLACES = {
    "BackgroundRun": "daskmetrics.report._background:BackgroundRun",
    "read_scores": "daskmetrics.execution._score_tables:read",
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
    from daskmetrics.report._html import write_page

    with private(), room_for(f"the report in '{run.folder.report}'"):
        return write_page(run, vectors)

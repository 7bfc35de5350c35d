"""Results of a run, read from its files: texts for a terminal, figures, an HTML page and tables of numbers.

================ =================================================================================
`_run`           `Run`: the configuration, the records and the answer of a run
`_best`          `Best`: the recommended arm beside the default arm
`_fresh`         finalists on items that were kept back from the search
`_tradeoffs`     `TradeOffs`: scores against what arms take
`_outlook`       why the search ended, what more would buy, why the answer changed, as sentences
`_arrays`        the store as labelled arrays
`_format`        numbers, arms and labelled lines as text; templates; cards for notebooks
`_snippet`       the lines of Python that load an arm
`_analysis`      scores, metrics, correlations, failures and seconds by arm, task or worker
`_timing`        the plan beside the run, and how busy the workers were
`_terminal`      status, summary and best arm for a terminal
`_posterior`     the posterior of the search, computed again from the journal
`_paired`        two arms compared item by item
`_ties`          which arms cannot be told from the best: the test
`_evidence`      what a verdict rests on
`_verdict`       the best and the tied arms, over all tasks, by kind and by task
`_settle`        what would settle a tie, with its cost and a command
`_explain`       why the search chose an arm; which cheaper arms are nearly as good
`_compare`       two runs, or a run and published scores
`_log`           the journal line by line, and the history of one work unit
`_export`        all numbers in one file
`plots`          the figures
`_html`          the page
================ =================================================================================

Nothing here measures anything, imports torch or needs a scheduler.
"""

from __future__ import annotations

from pathlib import Path

from daskmetrics.core._files import private
from daskmetrics.core._outcomes import Difference
from daskmetrics.core.errors import room_for
from daskmetrics.execution._score_tables import read as read_scores
from daskmetrics.report._best import Best
from daskmetrics.report._export import export, frame
from daskmetrics.report._run import Run
from daskmetrics.report._terminal import best_text, status_text, summary_text, whereabouts
from daskmetrics.report._tradeoffs import ArmCost, TradeOff, TradeOffs
from daskmetrics.report._verdict import Standing, Verdict

__all__ = [
    "ArmCost",
    "Best",
    "Difference",
    "Run",
    "Standing",
    "TradeOff",
    "TradeOffs",
    "Verdict",
    "best_text",
    "export",
    "frame",
    "read_scores",
    "status_text",
    "summary_text",
    "whereabouts",
    "write",
]


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

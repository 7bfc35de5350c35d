"""What is read from a run's files afterwards: answers for a terminal, figures and one HTML page.

============== =======================================================================
`run`          `Run` and `Best`: the journal, the store and the answer as values
`facts`        what the journal says: scores, metrics, failures, seconds
`prediction`   the plan beside the run, and what workers made of their time
`wording`      the sentences that terminal, page and notebook share
`text`         texts for a terminal
`log`          the journal line by line, and all that is known of one unit
`maps`         heat maps of layer x checkpoint
`curves`       quantities along the layers
`agreement`    metric against score
`predictors`   their rank correlations, by kind of task
`plots`        the search's path, training loss
`losses`       the loss of a training, step by step
`sheet`        the blank sheet on which panels are drawn
`figures`      which figures a run has, as PNG with captions
`png`          pixels as a file, quickly
`html`         the page and the notebook cards
`arrays`       the store as labelled arrays
`export`       all numbers in one file
`belief`       the posterior, worked out again from the journal
`explain`      why an arm was chosen, or was not
`enough`       the shallowest and the earliest arm that are good enough
`compare`      two runs, or a run and what others published
`ranks`        rank correlation
`snippet`      the lines of Python that load an arm
============== =======================================================================

Nothing here measures anything anew, imports torch or needs a scheduler.
"""

from __future__ import annotations

from pathlib import Path

from daskmetrics.core._files import RunFolder, private
from daskmetrics.core.errors import room_for
from daskmetrics.report._run import Best, Run
from daskmetrics.report._terminal import best_text, status_text, summary_text, whereabouts

__all__ = ["Best", "Run", "best_text", "status_text", "summary_text", "whereabouts", "write"]


def write(folder: RunFolder, vectors: bool = False) -> Path:
    """Write the HTML report and its figures, with ``vectors`` as SVG, too; the path of the page.

    Raises
    ------
    ConfigError
        If there is no run in this folder.
    DiskFullError
        If there is no room for it.
    """
    from daskmetrics.report._html import write_page

    with private(), room_for(f"the report in '{folder.report}'"):
        return write_page(Run(folder.path), vectors)

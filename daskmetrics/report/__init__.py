"""What is read from a run's files afterwards: answers for a terminal, figures and one HTML page.

============== =======================================================================
`run`          `Run` and `Best`: the journal, the store and the answer as values
`facts`        what the journal says: scores, metrics, failures, seconds
`prediction`   the plan beside the run, and what workers made of their time
`wording`      the sentences that terminal, page and notebook share
`text`         texts for a terminal
`log`          the journal line by line, and all that is known of one unit
`maps`         heat maps of layer x checkpoint
`agreement`    metric against score
`plots`        the search's path, training loss
`sheet`        the blank sheet on which panels are drawn
`figures`      which figures a run has, as PNG with captions
`png`          pixels as a file, quickly
`html`         the page and the notebook cards
`arrays`       the store as labelled arrays
`snippet`      the lines of Python that load an arm
============== =======================================================================

Nothing here computes anything anew, imports torch or needs a scheduler.
"""

from __future__ import annotations

from pathlib import Path

from daskmetrics.errors import room_for
from daskmetrics.layout import RunFolder, private
from daskmetrics.report.run import Best, Run
from daskmetrics.report.text import best_text, status_text, summary_text, whereabouts

__all__ = ["Best", "Run", "best_text", "status_text", "summary_text", "whereabouts", "write"]


def write(folder: RunFolder) -> Path:
    """Write the HTML report and its figures; the path of the page.

    Raises
    ------
    ConfigError
        If there is no run in this folder.
    DiskFullError
        If there is no room for it.
    """
    from daskmetrics.report.html import write_page

    with private(), room_for(f"the report in '{folder.report}'"):
        return write_page(Run(folder.path))

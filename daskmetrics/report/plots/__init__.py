"""The figures of a report, drawn with matplotlib as files and with Bokeh on the page.

=============== =================================================================
`_style`        size, colours and fonts of all figures; figures as files
`_heatmaps`     a quantity by layer and checkpoint
`lines`         quantities along the layers, the search's path, losses
`_points`       mean scores of the best arms, along the layers, and against costs
`_correlations` metrics against scores
`_telemetry`    what the workers used over time, and their units
`figures`       which figures a run has as files, with captions
`_fields`       what the interactive figures can show of an arm
`_interactive`  the interactive figures, with Bokeh
`_explore`      which of them a run has, as JSON for its page
=============== =================================================================
"""

from importlib.util import find_spec

from daskmetrics.core.errors import ConfigError

__all__ = ["need_matplotlib"]


def need_matplotlib() -> None:
    """Raise a `ConfigError` before anything is drawn if matplotlib is not installed."""
    if find_spec("matplotlib") is None:
        raise ConfigError(
            "Plots need matplotlib, which is not installed: pip install 'daskmetrics[plot]'."
        )

"""The figures of a report.

============= ==================================================================
`quantities`  what figures show of an arm: scores, metrics and costs
`figures`     the figures drawn with matplotlib, as axes and as files
`interactive` which figures a page has, drawn with Bokeh by `dashboard.drawing`
============= ==================================================================
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

"""The figures of a report, drawn with matplotlib as files and with Bokeh on the page.

=============== ===========================================================
`_style`        size, colours and fonts of all figures; figures as files
`_heatmaps`     a quantity by layer and checkpoint
`_lines`        quantities along the layers, the search's path, losses
`_leaderboard`  mean scores of the best arms, or along the layers
`_tradeoffs`    scores against costs
`_correlations` metrics against scores
`_telemetry`    what the workers used over time, and their units
`_path`         the path of a search, by cost
`_figures`      which figures a run has as files, with captions
`_fields`       what the interactive figures can show of an arm
`_interactive`  the interactive figures, with Bokeh
`_explore`      which of them a run has, as JSON for its page
=============== ===========================================================
"""

__all__: list[str] = []

"""The figures of a report, drawn with matplotlib.

=============== ===========================================================
`_style`        size, colours and fonts of all figures; figures as files
`_heatmaps`     a quantity by layer and checkpoint
`_lines`        quantities along the layers, the search's path, losses
`_tradeoffs`    scores against costs
`_correlations` metrics against scores
`_figures`      which figures a run has, with captions
=============== ===========================================================
"""

__all__: list[str] = []

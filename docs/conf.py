"""How the documentation is built: ``make docs``."""

from __future__ import annotations

import socket
import sys
from contextlib import suppress
from importlib.metadata import version as version_of
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import generate

generate.write_pages()

project = "daskmetrics"
author = copyright = "The daskmetrics developers"
version = release = version_of("daskmetrics")

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.intersphinx",
    "numpydoc",
    "myst_nb",
    "sphinx_click",
    "sphinx_copybutton",
    "sphinx_design",
]
exclude_patterns = ["_build"]

# MyST: pages are Markdown, notebooks are shown as they were written and not run
myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3
nb_execution_mode = "off"

# API; single backticks are code, in docstrings and in the help of commands
default_role = "code"
autosummary_generate = True
autosummary_imported_members = True
autodoc_typehints = "none"
autodoc_default_options = {"members": True}
numpydoc_show_class_members = False
numpydoc_class_members_toctree = False

INVENTORIES = {
    "python": ("https://docs.python.org/3", None),
    "numpy": ("https://numpy.org/doc/stable", None),
    "pandas": ("https://pandas.pydata.org/docs", None),
    "xarray": ("https://docs.xarray.dev/en/stable", None),
    "distributed": ("https://distributed.dask.org/en/stable", None),
    "torch": ("https://docs.pytorch.org/docs/stable", None),
}

intersphinx_mapping = {}
with suppress(OSError), socket.create_connection(("docs.python.org", 443), timeout=5):
    intersphinx_mapping = (
        INVENTORIES  # without a network the pages are the same, less their links to other projects
    )

html_theme = "pydata_sphinx_theme"
html_title = "daskmetrics"
html_theme_options = {
    "show_prev_next": True,
    "navigation_with_keys": False,
    "secondary_sidebar_items": ["page-toc"],
    "navbar_center": [],  # the pages are listed beside each page
    "footer_start": ["copyright"],
    "footer_end": [],
}
html_sidebars = {"index": [], "**": ["globaltoc"]}
html_show_sourcelink = False

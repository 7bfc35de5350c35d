"""What a run is asked to do: YAML read into one frozen, validated value.

=========== ==================================================================
`loading`   YAML, ``--set`` settings and cluster profiles into a configuration
`schema`    an experiment: models, corpus, protocol, metrics, tasks, search
`_readouts` how vectors are read from the states, beside the layer
`_recipe`   how suites are trained: by the built-in recipe, or a program
`_cluster`  where the work runs
`section`   the base of these sections, and the types of their text fields
`prompts`   what is put before a text, by its role and task
=========== ==================================================================

Modules with a leading underscore are internal.
"""

from daskmetrics.config._cluster import Cluster, Factory, Pool
from daskmetrics.config._readouts import Readouts
from daskmetrics.config._recipe import DDP, Recipe, Script
from daskmetrics.config.loading import cluster, folder, load, parse
from daskmetrics.config.schema import PRESETS, Config, Corpus, Model, Protocol, Search
from daskmetrics.config.section import Section

__all__ = [
    "DDP",
    "PRESETS",
    "Cluster",
    "Config",
    "Corpus",
    "Factory",
    "Model",
    "Pool",
    "Protocol",
    "Readouts",
    "Recipe",
    "Script",
    "Search",
    "Section",
    "cluster",
    "folder",
    "load",
    "parse",
]

"""What a run is asked to do: YAML read into one frozen, validated value.

================ ==================================================================
`_load`          YAML, ``--set`` settings and cluster profiles into a configuration
`_schema`        an experiment: models, corpus, protocol, metrics, tasks, search
`_recipe`        how suites are trained
`_cluster`       where the work runs
`_section`       the base of these sections, and the types of their text fields
`_checkpoints`   where the checkpoints of a model are, and which of them are equal
`_content`       digests of a checkpoint's files, and a sample of its weights
`_order`         steps whose weights lie out of order
`_hub`           branches and files of a hub repository
`_protocol`      how the texts of one checkpoint become vectors
`_prompts`       what is put before a text, by its role and task
`_shipped`       what a folder of sentence-transformers says about it
================ ==================================================================

Modules with a leading underscore are internal.
"""

from daskmetrics.config._cluster import Cluster, Driver, Pool
from daskmetrics.config._load import cluster, folder, load, parse
from daskmetrics.config._recipe import DDP, Recipe
from daskmetrics.config._schema import PRESETS, Config, Corpus, Model, Protocol, Search
from daskmetrics.config._section import Section

__all__ = [
    "DDP",
    "PRESETS",
    "Cluster",
    "Config",
    "Corpus",
    "Driver",
    "Model",
    "Pool",
    "Protocol",
    "Recipe",
    "Search",
    "Section",
    "cluster",
    "folder",
    "load",
    "parse",
]

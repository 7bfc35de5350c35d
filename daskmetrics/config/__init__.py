"""What a run is asked to do: YAML read into one frozen, validated value.

================ ==================================================================
`_load`          YAML, ``--set`` settings and cluster profiles into a configuration
`_schema`        an experiment: models, corpus, protocol, metrics, tasks, search
`_readouts`      how vectors are read from the states, beside the layer
`_recipe`        how suites are trained
`_cluster`       where the work runs
`_watch`         how a suite that grows is followed
`_arrivals`      its checkpoints: which can be read, and whether more will come
`_section`       the base of these sections, and the types of their text fields
`_checkpoints`   where the checkpoints of a model are, and which of them are equal
`_complete`      which checkpoints of a trainer are complete
`_adapters`      what the configuration of a LoRA adapter says
`_content`       digests of a checkpoint's files, and a sample of its weights
`_order`         steps whose weights lie out of order
`_hub`           branches and files of a hub repository; checkpoints that are here only while needed
`_protocol`      how the texts of one checkpoint become vectors
`_prompts`       what is put before a text, by its role and task
`_shipped`       what the folder of a model says about it
`_starter`       a first configuration with comments, as YAML
================ ==================================================================

Modules with a leading underscore are internal.
"""

from daskmetrics.config._cluster import TLS, Cluster, Driver, Factory, Pool
from daskmetrics.config._load import cluster, folder, load, parse
from daskmetrics.config._readouts import Readouts
from daskmetrics.config._recipe import DDP, Recipe
from daskmetrics.config._schema import PRESETS, Config, Corpus, Model, Protocol, Search
from daskmetrics.config._section import Section
from daskmetrics.config._watch import Watch

__all__ = [
    "DDP",
    "PRESETS",
    "TLS",
    "Cluster",
    "Config",
    "Corpus",
    "Driver",
    "Factory",
    "Model",
    "Pool",
    "Protocol",
    "Readouts",
    "Recipe",
    "Search",
    "Section",
    "Watch",
    "cluster",
    "folder",
    "load",
    "parse",
]

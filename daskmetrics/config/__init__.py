"""What a run is to do: YAML read into one frozen, validated value; unknown keys are refused with the nearest."""

from daskmetrics.config._load import cluster, folder, load, parse, profile
from daskmetrics.config._schema import (
    PRESETS,
    Cluster,
    Config,
    Controller,
    Corpus,
    Gang,
    Model,
    Pool,
    Protocol,
    Recipe,
    Search,
    Section,
)

__all__ = [
    "PRESETS",
    "Cluster",
    "Config",
    "Controller",
    "Corpus",
    "Gang",
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
    "profile",
]

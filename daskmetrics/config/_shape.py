"""Depth and width of a network that reads texts, from its ``config.json``."""

from __future__ import annotations

from pathlib import Path

from daskmetrics.config._section import DEEPEST, WIDEST
from daskmetrics.config._shipped import read_json
from daskmetrics.core.errors import ConfigError, DataError

_VOCABULARY = ("vocab_size", "n_words", "num_hash_buckets")  # the last is CANINE's, which reads characters
_OTHER_INPUTS = {"image_size": "images", "num_mel_bins": "sound", "feat_extract_norm": "sound"}


def shape_of(config: Path) -> tuple[int, int]:
    """Number of blocks and hidden size of a model that reads text."""
    data = read_json(config, dict)
    other = next((what for name, what in _OTHER_INPUTS.items() if name in data), None)
    if other or not any(name in data for name in _VOCABULARY):
        kind = data.get("model_type", "model of an unknown type")
        reason = f"it reads {other}" if other else "it has no vocabulary (vocab_size)"
        raise ConfigError(f"'{config}' is of a {kind}, which is no model that reads text: {reason}.")
    depth, width = (
        next((data[name] for name in names if type(data.get(name)) is int and 0 < data[name] <= most), None)
        for most, names in (
            (DEEPEST, ("num_hidden_layers", "n_layer", "num_layers", "n_layers", "encoder_layers")),
            (WIDEST, ("hidden_size", "n_embd", "d_model", "dim", "emb_dim")),
        )
    )
    if depth is None or width is None:
        raise DataError(
            f"'{config}' has no depth and width of the model (num_hidden_layers, hidden_size), numbers from 1 to "
            f"{DEEPEST:,} and {WIDEST:,}."
        )
    return depth, width

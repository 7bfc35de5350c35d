"""Model folders with made-up weights, written as safetensors by numpy."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from safetensors.numpy import save

CONFIG = {"num_hidden_layers": 2, "hidden_size": 8, "vocab_size": 100}


def write(folder: Path, values: np.ndarray | bytes | float, **config: object) -> Path:
    """A model folder with these weights in two tensors, or with these bytes in their place."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps({**CONFIG, **config}))
    (folder / "tokenizer.json").write_text("{}")
    if not isinstance(values, bytes):
        a, b = np.array_split(np.atleast_1d(values).astype(np.float32), 2)
        values = save({"a": a, "b": b})
    (folder / "model.safetensors").write_bytes(values)
    return folder


def in_shards(folder: Path, *shards: bytes | dict[str, np.ndarray]) -> Path:
    """The same folder with these files of weights and their index, in place of its own."""
    (folder / "model.safetensors").unlink()
    weight_map = {}
    for number, content in enumerate(shards, start=1):
        name = f"model-{number:05}-of-{len(shards):05}.safetensors"
        tensors = {f"t{number}": name}
        if not isinstance(content, bytes):
            tensors = dict.fromkeys(content, name)
            content = save(content)
        (folder / name).write_bytes(content)
        weight_map |= tensors
    index = {"metadata": {}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return folder


def files(seed: int) -> dict[str, bytes]:
    """The files of a checkpoint with random weights, as a repository of the hub holds them."""
    weights = np.random.default_rng(seed).normal(size=20_000).astype(np.float32)
    return {
        "config.json": json.dumps(CONFIG).encode(),
        "tokenizer.json": b"{}",
        "README.md": b"%d" % seed,
        "model.safetensors": save({"w": weights}),
    }

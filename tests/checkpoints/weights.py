"""Model folders with made-up weights, written as safetensors by numpy."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

CONFIG = {"num_hidden_layers": 2, "hidden_size": 8, "vocab_size": 100}


def safetensors(tensors: dict[str, np.ndarray], dtype: str = "F32") -> bytes:
    """The bytes of a safetensors file; bfloat16 is given as its bits."""
    header, data = {}, b""
    for name, values in tensors.items():
        raw = values.tobytes()
        header[name] = {
            "dtype": dtype,
            "shape": list(values.shape),
            "data_offsets": [len(data), len(data) + len(raw)],
        }
        data += raw
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


def write(folder: Path, values: np.ndarray | bytes, **config: object) -> Path:
    """A model folder; values of one dimension are the weights of two tensors."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps({**CONFIG, **config}))
    (folder / "tokenizer.json").write_text("{}")
    if not isinstance(values, bytes):
        a, b = np.array_split(values.astype(np.float32), 2)
        values = safetensors({"a": a, "b": b})
    (folder / "model.safetensors").write_bytes(values)
    return folder


def files(seed: int) -> dict[str, bytes]:
    """The files of a checkpoint with random weights, as a repository of the hub holds them."""
    tensors = {"w": np.random.default_rng(seed).normal(size=20_000).astype(np.float32)}
    beside = {
        "config.json": json.dumps(CONFIG).encode(),
        "tokenizer.json": b"{}",
        "README.md": b"%d" % seed,
    }
    return {**beside, "model.safetensors": safetensors(tensors)}

"""Pooled states that are kept beside the store, so that metrics of them can be added later without a forward pass.

Layout of ``states.zarr``::

    <model>/<revision>/vectors   (layer, prompt, dimension)  float16
    <model>/<revision>/exponent  (layer, prompt)             int16; a state is vectors * 2 ** exponent
    <model>/<revision>/layer                                 coordinate

Each vector has an exponent of its own: half precision holds its directions to 3e-4 and no length overflows.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import zarr

from daskmetrics.core.names import Checkpoint, Key


def write(path: Path, checkpoint: Checkpoint, key: Key, layers: tuple[int, ...], vectors: np.ndarray) -> None:
    """Keep the states of one checkpoint, vectors (L, P, D) of float32, replacing those that were kept.

    The key names what the states are of: weights, prompts, protocol. It is written last, as the commit mark.
    """
    exponent = np.frexp(np.abs(vectors).max(-1))[1]
    halves = np.ldexp(vectors, -exponent[..., None]).astype(np.float16)
    group = zarr.open_group(path, path=str(checkpoint).replace("@", "/"), mode="w")
    arrays = (
        ("vectors", halves, ("layer", "prompt", "dimension")),
        ("exponent", exponent.astype(np.int16), ("layer", "prompt")),
        ("layer", np.array(layers, np.int64), ("layer",)),
    )
    for name, values, dimensions in arrays:
        group.create_array(
            name,
            data=values,
            chunks=values.shape,
            dimension_names=dimensions,
            compressors=zarr.codecs.ZstdCodec(level=1, checksum=True),
        )
    group.attrs["states"] = key


def read(path: Path, checkpoint: Checkpoint, key: Key) -> np.ndarray | None:
    """The states (L, P, D) of float32 that were kept under this key; None if they were not, or are damaged."""
    try:
        group = zarr.open_group(path, path=str(checkpoint).replace("@", "/"), mode="r")
        if group.attrs.get("states") != key:
            return None
        halves, exponent = group["vectors"][...], group["exponent"][...]
    except (OSError, KeyError, ValueError, RuntimeError):
        return None
    return np.asarray(np.ldexp(halves.astype(np.float32), exponent[..., None]))

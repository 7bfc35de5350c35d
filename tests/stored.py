"""What a store holds of one checkpoint."""

from __future__ import annotations

from pathlib import Path

from daskmetrics import store
from daskmetrics.domain.names import Checkpoint


def read_block(path: Path, what: str, checkpoint: Checkpoint) -> store.Block:
    return store.Reader(path, checkpoint.model).block(what, checkpoint)

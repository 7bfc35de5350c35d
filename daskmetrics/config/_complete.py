"""Checkpoints that a trainer writes, ``checkpoint-500`` and so on: which of them are complete."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from daskmetrics.config import _adapters as adapters
from daskmetrics.config._content import files_of, tensors_of
from daskmetrics.config._shipped import transformer_folder
from daskmetrics.core._json import parse

CHECKPOINT = re.compile(r"checkpoint-\d+")
"""Names of the folders that the trainers of transformers and sentence-transformers write."""

STATE = "trainer_state.json"  # what these trainers write last
_OF_A_TRAINER = ("training_args.bin", "optimizer.*", "scheduler.pt", "rng_state*.pth", STATE)


def fault(folder: Path) -> str:
    """Why a checkpoint is not complete, such as "no config.json"; empty if it is complete.

    It is complete if its configuration can be read, every weight file that its index names is there and has the size
    that its header says, and the trainer has written the file that it writes last.
    """
    network = transformer_folder(folder)
    config = network / (adapters.CONFIG if adapters.is_adapter(network) else "config.json")
    with suppress(OSError):  # a trainer removes old checkpoints at any time
        return _unreadable(config) or weights_fault(network) or _without_state(folder)
    return "it cannot be read"


def _unreadable(file: Path) -> str:
    """Why a file of JSON cannot be read."""
    if not file.is_file():
        return f"no {file.name}"
    try:
        return "" if isinstance(parse(file.read_bytes()), Mapping) else f"{file.name} is no mapping"
    except ValueError:
        return f"{file.name} is not complete"


def weights_fault(folder: Path) -> str:
    """Why the weights in a folder cannot be read, by the headers of its files; empty if nothing is wrong with them."""
    names = files_of(folder) or files_of(folder, pickled=True)
    if not names:
        return "not all weights" if any(folder.glob("*.index.json")) else "no weights"
    for name in names:
        if name.endswith(".safetensors") and (reason := _cut_off(folder / name)):
            return reason
    return ""


def _cut_off(file: Path) -> str:
    size = file.stat().st_size
    try:
        wanted = max((end for *_, end in tensors_of(file)), default=size)
    except (ValueError, LookupError, TypeError, AttributeError):
        return f"{file.name} has no complete header"
    return "" if size == wanted else f"{file.name} has {size:,} of {wanted:,} bytes"


def _without_state(folder: Path) -> str:
    """A trainer's checkpoint has files of its state; others, which somebody copied without them, need none."""
    reason = _unreadable(folder / STATE)
    beside = folder.parent.glob(f"checkpoint-*/{STATE}")
    is_of_trainer = reason and (any(any(folder.glob(each)) for each in _OF_A_TRAINER) or any(beside))
    return f"{reason}, which the trainer writes last" if is_of_trainer else ""

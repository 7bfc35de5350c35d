"""The arrays of a run: one Zarr group per model, one chunk per checkpoint, readable by xarray
without this package.

Layout of ``store.zarr``::

    <model>/metrics          (checkpoint, layer, metric)  float64, NaN where there is no value
    <model>/metrics_stderr   (checkpoint, layer, metric)  float64, standard error over prompts
    <model>/metrics_status   (checkpoint, layer, metric)  uint8, see ``flag_meanings``
    <model>/scores           (checkpoint, layer, task)    float64
    <model>/scores_stderr    (checkpoint, layer, task)    float64
    <model>/scores_status    (checkpoint, layer, task)    uint8
    <model>/checkpoint, step, layer, metric, task         coordinates

All planned checkpoints are allocated at once; a worker writes exactly its own chunk, the status
last. Only values that the journal records are valid, and `verify` compares the two.

=========== ===================================================
`_blocks` the `Block` of one checkpoint, from records
`_zarr`     the Zarr store: create, write, read, restore
`_verify`   verify and repair
=========== ===================================================
"""

from daskmetrics.core.events import Axis, StorePlan, Template
from daskmetrics.core.results import Status
from daskmetrics.store._blocks import (
    Block,
    key_of,
    metric_blocks,
    score_blocks,
    score_key,
)
from daskmetrics.store._verify import Damage, DamageKind, check_files, repair, verify
from daskmetrics.store._zarr import (
    create,
    files_of,
    lay_out,
    open_tree,
    read_block,
    restore,
    write,
)

__all__ = [
    "Axis",
    "Block",
    "Damage",
    "DamageKind",
    "Status",
    "StorePlan",
    "Template",
    "check_files",
    "create",
    "files_of",
    "key_of",
    "lay_out",
    "metric_blocks",
    "open_tree",
    "read_block",
    "repair",
    "restore",
    "score_blocks",
    "score_key",
    "verify",
    "write",
]

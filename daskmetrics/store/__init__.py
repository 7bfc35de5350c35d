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

All planned checkpoints are allocated at once. A worker writes the metrics of its checkpoint, exactly
one chunk; the driver alone writes scores, as they are recorded. The status comes last. Only values
that the journal records are valid, and `verify` compares the two.

=========== ===================================================
`_blocks` the `Block` of one checkpoint, from records
`_zarr`     the Zarr store: create, write, read, restore
`_verify`   verify and repair
=========== ===================================================
"""

from daskmetrics.domain.results import Status
from daskmetrics.store._blocks import (
    Block,
    add_score,
    metric_blocks,
    score_blocks,
)
from daskmetrics.store._verify import Damage, DamageKind, check_files, repair, verify
from daskmetrics.store._zarr import (
    Reader,
    create,
    files_of,
    open_tree,
    restore,
    write,
)

__all__ = [
    "Block",
    "Damage",
    "DamageKind",
    "Reader",
    "Status",
    "add_score",
    "check_files",
    "create",
    "files_of",
    "metric_blocks",
    "open_tree",
    "repair",
    "restore",
    "score_blocks",
    "verify",
    "write",
]

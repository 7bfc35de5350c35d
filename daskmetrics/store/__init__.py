"""The arrays of a run: one Zarr group per model, one chunk per checkpoint, readable by xarray without this package.

Layout of ``store.zarr``::

    <model>/metrics          (checkpoint, layer, metric)  float64, NaN where there is no value
    <model>/metrics_stderr   (checkpoint, layer, metric)  float64, standard error over prompts
    <model>/metrics_status   (checkpoint, layer, metric)  uint8, see ``flag_meanings``
    <model>/scores           (checkpoint, layer, task)    float64
    <model>/scores_stderr    (checkpoint, layer, task)    float64
    <model>/scores_status    (checkpoint, layer, task)    uint8
    <model>/checkpoint, step, layer, metric, task         coordinates

All planned checkpoints are allocated at once; a worker writes exactly its own chunk, the status last. Nothing in it is
true because it stands there: what the journal vouches for is, and `verify` compares the two.

============= ================================================================
`plan`        what a store is to hold: `Template`, `Plan`, and the `Block` of one checkpoint, from records
`files`       the Zarr store itself: create, write, read, restore
`checking`    verify and repair
`states`      pooled states, where a run keeps them: a Zarr store of its own
============= ================================================================
"""

from daskmetrics.core.status import Status
from daskmetrics.store._template import Axis, Block, Plan, Template, blocks_of_cells, score_key
from daskmetrics.store._verify import Damage, Kind, check_files, repair, verify
from daskmetrics.store._zarr import create, files_of, finish, lay_out, open_tree, read_block, restore, write

__all__ = [
    "Axis",
    "Block",
    "Damage",
    "Kind",
    "Plan",
    "Status",
    "Template",
    "blocks_of_cells",
    "check_files",
    "create",
    "files_of",
    "finish",
    "lay_out",
    "open_tree",
    "read_block",
    "repair",
    "restore",
    "score_key",
    "verify",
    "write",
]

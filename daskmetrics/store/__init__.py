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

===========
=============================================================================================
`_template` the plan of a store: `Template`, `StorePlan`, and the `Block` of one checkpoint, from
records `_zarr`     the Zarr store: create, write, read, restore `_verify`   verify and repair
===========
=============================================================================================
"""

from typing import TYPE_CHECKING

from daskmetrics.core.lazy import on_first_use
from daskmetrics.core.status import Status
from daskmetrics.store._template import Axis, Block, StorePlan, Template, blocks_of_cells, score_key

if TYPE_CHECKING:
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
    "blocks_of_cells",
    "check_files",
    "create",
    "files_of",
    "lay_out",
    "open_tree",
    "read_block",
    "repair",
    "restore",
    "score_key",
    "verify",
    "write",
]

_VERIFY = ("Damage", "DamageKind", "check_files", "repair", "verify")
_ZARR = ("create", "files_of", "lay_out", "open_tree", "read_block", "restore", "write")
_PLACES = {name: f"{__name__}._verify:{name}" for name in _VERIFY}
_PLACES |= {name: f"{__name__}._zarr:{name}" for name in _ZARR}
__getattr__ = on_first_use(__name__, _PLACES)  # a dry run does not import zarr

"""The store of a run as labelled arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from daskmetrics.core.names import step_of, training_order

if TYPE_CHECKING:
    import xarray


def dataset(
    tree: xarray.DataTree, models: Sequence[str], quantity: str, dimension: str
) -> xarray.Dataset:
    """Metrics or scores of all models, (model, checkpoint, layer), with the models in the given
    order.

    Scores of several readouts have a fourth dimension, readout.

    Per metric or task: the variables NAME with units and description, ``NAME_stderr`` and
    ``NAME_status``. A layer or checkpoint that a model lacks is NaN with status 0 (missing).
    """
    import xarray

    kinds = (quantity, f"{quantity}_stderr", f"{quantity}_status")
    stored = {model: tree.children[model] for model in models if model in tree.children}
    nodes = {
        model: node.to_dataset()[list(kinds)].drop_vars("step")
        for model, node in stored.items()
        if quantity in node
    }
    if any("arm" in node.dims for node in nodes.values()):
        nodes = {model: _by_readout(node) for model, node in nodes.items()}
    if not nodes:
        return xarray.Dataset(attrs=dict(tree.attrs))
    joined = xarray.concat(
        list(nodes.values()),
        dim=xarray.Variable("model", np.array(list(nodes), object)),
        join="outer",
        fill_value={kinds[0]: np.nan, kinds[1]: np.nan, kinds[2]: 0},
        combine_attrs="drop_conflicts",
    )
    order = training_order(joined["checkpoint"].values.tolist())
    joined = joined.sel(checkpoint=list(order))
    steps = [step_of(name) for name in order]
    stored_steps = [-1 if step is None else step for step in steps]
    joined = joined.assign_coords(
        checkpoint=np.array(order, object), step=("checkpoint", stored_steps)
    )
    attributes = joined[quantity].attrs
    variables = {}
    for name in joined[dimension].values.tolist():
        for kind, suffix in zip(kinds, ("", "_stderr", "_status"), strict=True):
            array = joined[kind].sel({dimension: name}, drop=True)
            if suffix != "_status":
                array.attrs = {
                    "units": attributes["units"][name],
                    "description": attributes["descriptions"][name],
                }
            variables[name + suffix] = array
    return xarray.Dataset(variables, attrs=tree.attrs)


def _by_readout(node: xarray.Dataset) -> xarray.Dataset:
    """The scores of a model with the dimensions layer and readout, in place of that of its arms."""
    if "arm" not in node.dims:
        return node.expand_dims(readout=[""], axis=2)
    missing = {name: 0 if str(name).endswith("_status") else np.nan for name in node}
    unstacked = node.set_index(arm=["arm_layer", "readout"]).unstack("arm", fill_value=missing)
    order = dict.fromkeys(node["readout"].values.tolist())
    return (
        unstacked.rename(arm_layer="layer")
        .sel(readout=list(order))
        .transpose("checkpoint", "layer", "readout", ...)
    )

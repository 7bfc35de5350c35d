"""The numbers of a run for other programs: all in one file, or the scores as files of mteb."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from daskmetrics.checkpoints.locations import is_hub_id
from daskmetrics.core.errors import ConfigError, DataError, room_for
from daskmetrics.core.files import atomic_file
from daskmetrics.core.table import spreadsheet_frame
from daskmetrics.domain.events import scored
from daskmetrics.domain.names import Cell
from daskmetrics.domain.record import Record
from daskmetrics.domain.results import Status
from daskmetrics.report._run import Run
from daskmetrics.tasks.mteb_run import import_mteb

if TYPE_CHECKING:
    import pandas

Format = Literal["csv", "parquet"]
COLUMNS = (
    "model",
    "revision",
    "step",
    "layer",
    "readout",
    "what",
    "name",
    "value",
    "stderr",
    "status",
    "units",
)


def frame(run: Run) -> pandas.DataFrame:
    """All numbers of a run as a table, one row per value or failure.

    Returns
    -------
    pandas.DataFrame
        Columns: model, revision, step, layer, readout (if there are several, of scores), what
        (metric or score), name, value, stderr, status, units.

    Raises
    ------
    DataError
        If the run has neither metrics nor scores yet.
    """
    import pandas

    filled = []
    for kind, arrays in (("metric", run.metrics), ("score", run.scores)):
        for name in map(str, arrays):
            if f"{name}_status" not in arrays:
                continue
            columns = {name: "value", f"{name}_stderr": "stderr", f"{name}_status": "status"}
            renamed = arrays[list(columns)].rename(columns)
            flat = renamed.to_dataframe().reset_index()
            flat = flat[flat["status"] > 0]
            flat = flat.rename(columns={"checkpoint": "revision"})
            labels = flat["status"].map(lambda number: Status(int(number)).name.lower())
            units = arrays[name].attrs["units"]
            flat = flat.assign(what=kind, name=name, units=units, status=labels)
            if len(flat):
                filled.append(flat)
    if not filled:
        raise DataError(f"The run in '{run.folder.path}' has no numbers yet.")
    joined = pandas.concat(filled, ignore_index=True)
    return joined[[name for name in COLUMNS if name in joined]]


def export(run: Run, kind: Format, path: Path | None = None) -> Path:
    """Write all numbers of a run into one file, and return its path.

    Parameters
    ----------
    run : Run
    kind : {"csv", "parquet"}
    path : Path, optional
        The file; by default in the folder of the report.

    Raises
    ------
    ConfigError
        If the library that writes this kind of file is not installed.
    DataError
        If the run has no numbers yet.
    StorageError
        If the disk is full.
    """
    file_path = run.folder.report / f"{run.folder.path.name}.{kind}"
    if path is not None:
        file_path = path.resolve()  # where a link of the user leads
    file_path.parent.mkdir(parents=True, exist_ok=True)
    if kind == "parquet" and not find_spec("pyarrow"):
        raise ConfigError(
            "Parquet needs pyarrow: pip install 'daskmetrics[table]'. CSV needs no extra."
        )
    table = frame(run)
    with room_for(f"'{path or file_path}'"), atomic_file(file_path) as file:
        if kind == "parquet":
            table.to_parquet(file, index=False)
        else:
            spreadsheet_frame(table).to_csv(file, index=False)
    return path or file_path


def to_mteb(
    records: Sequence[Record], models: Sequence[Mapping[str, Any]], folder: Path
) -> tuple[int, int]:
    """Write the recorded scores of mteb's tasks with mteb's own ``ResultCache``.

    Each layer is an experiment of its model and revision, with the keywords ``layer`` and
    ``protocol``. A model without a hub id is of the organisation ``local``. Models of one hub id
    that are read alike share a file.

    Returns
    -------
    (int, int)
        How many scores were written, and how many are of tasks that mteb does not have.
    """
    mteb = import_mteb()
    from mteb.models import ModelMeta
    from mteb.results import TaskResult

    sources = {model["name"]: model["source"] or "" for model in models}
    scores = {Cell.parse(record.name): (record, score) for record, score in scored(records)}
    cache = mteb.ResultCache(folder)
    files: dict[Path, tuple[TaskResult, ModelMeta]] = {}
    written = 0
    for cell, (record, score) in sorted(scores.items()):
        if not (score.detail and score.detail.get("scores")):
            continue
        arm = cell.arm
        source = sources[arm.model]
        is_on_hub = "/" in source and is_hub_id(source)
        settings: dict[str, object] = {"layer": arm.layer}
        if score.protocol:
            settings["protocol"] = score.protocol[:12]
        if arm.readout:
            settings["readout"] = arm.readout
        model = {
            "name": source if is_on_hub else f"local/{arm.model}",
            "revision": arm.revision,
            "experiment_kwargs": settings,
        }
        times = {"evaluation_time": record.seconds, "kg_co2_emissions": None}
        result = TaskResult.model_validate({**score.detail, **times})
        meta = ModelMeta.create_empty(model)
        path = cache.get_task_result_path(result.task_name, meta)
        if path in files:  # a variant of the task; of a subset in both, the first counts
            result = result.merge(files[path][0])
        files[path] = result, meta
        written += 1
    for result, meta in files.values():
        cache.save_to_cache(result, meta)
    return written, len(scores) - written

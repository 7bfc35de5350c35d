"""All numbers of a run in one file for other programs: CSV or Parquet."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from daskmetrics.core.errors import ConfigError, DataError, room_for
from daskmetrics.core.files import atomic_file
from daskmetrics.core.results import Status
from daskmetrics.core.table import spreadsheet_frame
from daskmetrics.report._run import Run

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
    """All numbers of a run as a table: one row per value, or per failure with its status.

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

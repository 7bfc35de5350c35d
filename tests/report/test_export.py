from __future__ import annotations

import numpy as np
import pytest
import xarray

from daskmetrics.answer.comparison import known_scores as cells
from daskmetrics.core.errors import DataError
from daskmetrics.report import export, frame


def test_exported_numbers_are_those_of_the_journal(finished, tmp_path):
    rows = frame(finished)
    scores = (
        rows[(rows.what == "score") & (rows.status == "ok")]
        .set_index(["model", "revision", "layer", "name"])
        .value
    )
    assert len(scores) == len(cells(finished))
    for cell, score in cells(finished).items():
        assert scores[
            cell.arm.model, cell.arm.revision, cell.arm.layer, cell.task
        ] == pytest.approx(score.score)
    assert set(rows.status) >= {"ok", "nan"} and set(rows[rows.name == "curvature"].units) == {
        "radians"
    }
    for kind, suffix in (("csv", ".csv"), ("parquet", ".parquet"), ("netcdf", ".nc")):
        assert export(finished, kind, tmp_path / "deep" / f"x{suffix}").stat().st_size > 1000
    with xarray.open_dataset(tmp_path / "deep" / "x.nc") as read:
        np.testing.assert_array_equal(
            read["metric_curvature"], finished.metrics["curvature"].sel(model=read.model)
        )
        assert (
            read["metric_curvature"].attrs["units"] == "radians"
            and "protocol" not in read.data_vars
        )


def test_a_run_without_numbers_exports_none(a_run):
    with pytest.raises(DataError, match="no numbers"):
        frame(
            a_run(
                tasks=(),
                failing=tuple(f"{m}@step{s}" for m in ("tiny", "small") for s in (0, 1, 2, 4, 8)),
                trained=False,
            )
        )

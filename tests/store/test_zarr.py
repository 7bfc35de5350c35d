from __future__ import annotations

from contextlib import suppress

import numpy as np
import pytest
import xarray

from daskmetrics import store
from daskmetrics.core.errors import DataError
from daskmetrics.domain.names import Checkpoint, Suite
from daskmetrics.domain.results import Measured, Status
from tests.events import metric, planned, task
from tests.stored import read_block

SUITES = (
    Suite("a", ("step0", "step1", "main"), (0, 1, 2), 2),
    Suite("b", ("step0",), (1, 2, 3, 4), 4),
)


PLAN = planned(SUITES, [task("t")], [metric("m1"), metric("m2")])


def block(seed: int, layers: int = 3, names: int = 2) -> store.Block:
    rng = np.random.default_rng(seed)
    values = rng.normal(size=(layers, names))
    values[0, 0] = np.nan
    status = np.where(np.isnan(values), Status.NAN, Status.OK).astype(np.uint8)
    return store.Block(values, abs(values), status)


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "store.zarr"
    store.create(path, PLAN, {"python": "3"})
    return path


def test_a_reader_needs_xarray_only(path):
    store.write(path, "metrics", Checkpoint("a", "step1"), block(1))
    data = xarray.open_zarr(path, group="a", chunks=None).load()
    assert dict(data.sizes) == {"checkpoint": 3, "layer": 3, "metric": 2, "task": 1}
    assert data.metrics.dims == ("checkpoint", "layer", "metric")
    np.testing.assert_array_equal(data.metrics.sel(checkpoint="step1"), block(1).values)
    assert data.metrics_status.sel(checkpoint="step1", layer=0, metric="m1") == Status.NAN
    assert (data.metrics_status.sel(checkpoint="step0") == Status.MISSING).all()
    assert data.metrics_status.attrs["flag_meanings"].split()[Status.NAN] == "nan"
    assert data.metrics.attrs["units"] == {"m1": "nats", "m2": "nats"}
    assert data.step.values.tolist() == [0, 1, -1]
    tree = xarray.open_datatree(path, engine="zarr")
    assert tree.attrs["protocol"] == PLAN.config["protocol"]
    assert tree.attrs["environment"] == {"python": "3"}
    assert set(tree.children) == {"a", "b"}


def test_a_number_that_is_undefined_in_the_journal_is_nan():
    rows = ((0.5, None),)
    found = store.Block.of(Measured((0,), ("a", "b"), rows, rows, ((1, 2),)))
    expected = np.array([[0.5, np.nan]])
    assert found.equals(store.Block(expected, expected, np.array([[1, 2]], np.uint8)))
    assert not block(3).equals(block(4))


@pytest.mark.parametrize(
    ("revision", "layers", "message"),
    [
        ("step0", 4, r"shape \(4, 2\), its chunk \(3, 2\)"),
        ("step9", 3, "a@step9; it plans step0, step1, main"),
    ],
)
def test_a_block_that_is_not_planned_is_refused(path, revision, layers, message):
    with pytest.raises(DataError, match=message):
        store.write(path, "metrics", Checkpoint("a", revision), block(0, layers))


def test_a_new_store_replaces_an_existing_one(path):
    store.write(path, "metrics", Checkpoint("a", "step0"), block(5))
    store.create(path, PLAN, {})
    again = read_block(path, "metrics", Checkpoint("a", "step0"))
    assert (again.status == Status.MISSING).all()
    assert [p.name for p in path.parent.iterdir()] == ["store.zarr"]


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("metrics", lambda content: content[:-3]),
        ("metrics_stderr", lambda content: content[:-9] + bytes([content[-9] ^ 4]) + content[-8:]),
        ("metrics_status", None),
    ],
    ids=["cut", "a bit", "deleted"],
)
def test_any_damage_is_seen_and_mended(path, name, damage):
    blocks = {Checkpoint("a", revision): block(i) for i, revision in enumerate(SUITES[0].revisions)}
    assert store.restore(path, "metrics", blocks) == list(blocks)
    assert store.restore(path, "metrics", blocks) == []
    victim = path / "a" / name / "c" / "1" / "0" / "0"
    if damage:
        victim.write_bytes(damage(victim.read_bytes()))
    else:
        victim.unlink()
    assert store.restore(path, "metrics", blocks) == [Checkpoint("a", "step1")]
    assert all(read_block(path, "metrics", c).equals(b) for c, b in blocks.items())


def test_a_missing_or_newer_store_is_refused_with_the_remedy(path):
    missing = path.parent / "none.zarr"
    for read in (
        store.open_tree,
        lambda path: read_block(path, "metrics", Checkpoint("a", "step1")),
    ):
        with pytest.raises(DataError, match=r"no store at .*Put it back .*runs repair "):
            read(missing)
    text = (path / "zarr.json").read_text()
    (path / "zarr.json").write_text(text.replace('"format": 1', '"format": 2'))
    for attempt in (
        lambda: store.create(path, PLAN, {}),
        lambda: store.open_tree(path),
        lambda: read_block(path, "metrics", Checkpoint("a", "step1")),
    ):
        with pytest.raises(DataError, match=r"format 2.*Another version wrote it: use that"):
            attempt()


@pytest.mark.parametrize("name", ["a/metrics", "a/checkpoint", "a", "."])
@pytest.mark.parametrize(
    "other", ["a/layer", "b", b"", b"null", b"[" * 100_000, b"\xff"], ids=range(6)
)
@pytest.mark.filterwarnings("ignore:Object at:UserWarning")  # of zarr
def test_any_metadata_is_readable_or_one_error(path, name, other):
    """Also the metadata of another array, whose shape does not fit."""
    if isinstance(other, str):
        other = (path / other / "zarr.json").read_bytes()
    (path / name / "zarr.json").write_bytes(other)
    with suppress(DataError):
        read_block(path, "metrics", Checkpoint("a", "step1"))
    with suppress(DataError):
        store.open_tree(path)

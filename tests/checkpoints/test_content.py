"""The key of a model folder covers every byte, and every byte is read once."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import save

from daskmetrics.checkpoints import folders as folders
from daskmetrics.checkpoints.folders import contents, files_of, relevant
from daskmetrics.core.errors import DataError
from tests.checkpoints.weights import write
from tests.hub import git

SHARD = 1_500_000  # bytes: far more than a sample of pieces reads


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory, monkeypatch):
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("DASKMETRICS_CACHE", str(folder))
    return folder


def fingerprint(folder):
    return contents([folder])[0].key


@pytest.fixture(scope="module")
def sharded(tmp_path_factory):
    """A model folder with weights in two files."""
    rng = np.random.default_rng(0)
    folder = write(tmp_path_factory.mktemp("model") / "m", rng.bytes(SHARD))
    (folder / "model.safetensors").rename(folder / "model-1.safetensors")
    (folder / "model-2.safetensors").write_bytes(rng.bytes(SHARD))
    return folder


@given(shard=st.sampled_from([1, 2]), place=st.integers(0, SHARD - 1), flip=st.integers(1, 255))
def test_any_changed_byte_of_any_weight_file_changes_the_key(sharded, shard, place, flip):
    before, path = fingerprint(sharded), sharded / f"model-{shard}.safetensors"
    times = path.stat()

    def change() -> None:
        with path.open("r+b") as file:
            file.seek(place)
            byte = file.read(1)[0]
            file.seek(place)
            file.write(bytes([byte ^ flip]))
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))  # as a copy that preserves times

    change()
    assert fingerprint(sharded) != before
    change()
    assert fingerprint(sharded) == before


@given(st.binary(min_size=1, max_size=200_000))
def test_equal_bytes_have_equal_keys_under_other_names_and_times(data):
    with tempfile.TemporaryDirectory() as place:
        folder = write(Path(place) / "one", data)
        key = fingerprint(folder)
        os.utime(folder / "model.safetensors", (1, 1))
        (folder / "model.safetensors").rename(folder / "other.safetensors")
        moved = shutil.copytree(folder, Path(place) / "two")
        (moved / "README.md").write_text("about")
        (moved / "generation_config.json").write_text("{}")
        assert fingerprint(folder) == fingerprint(moved) == key
        (moved / "config.json").write_text("{}")
        assert fingerprint(moved) != key


@pytest.fixture
def settled(tmp_path, monkeypatch):
    """A model folder whose digests are kept."""
    monkeypatch.setattr(folders, "_SETTLED", 0.05)
    folder = write(tmp_path / "m", np.arange(100_000))
    time.sleep(0.1)
    return folder, fingerprint(folder)


def test_an_unchanged_file_is_read_once(settled, monkeypatch):
    folder, _ = settled
    read = []
    monkeypatch.setattr(folders, "_read", lambda path: read.append(path.name) or "0" * 64)
    fingerprint(folder)
    assert read == ["config.json", "tokenizer.json"]  # small files are read each time


def test_a_change_that_restores_the_time_is_seen_although_the_digest_was_kept(settled):
    folder, key = settled
    path = folder / "model.safetensors"
    times = path.stat()
    data = bytearray(path.read_bytes())
    data[-7] ^= 1
    with path.open("r+b") as file:
        file.write(data)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert fingerprint(folder) != key


@pytest.mark.parametrize("damage", [b"", b"{", b"[]", b'{"digest": 3, "stamp": 4}', b"\xff"])
def test_a_damaged_cache_is_ignored(settled, own_cache, damage):
    folder, key = settled
    (entry,) = (own_cache / "digests").iterdir()
    entry.write_bytes(damage)
    assert fingerprint(folder) == key


def test_a_cache_that_cannot_be_written_costs_only_time(settled, monkeypatch):
    folder, key = settled
    monkeypatch.setenv("DASKMETRICS_CACHE", "/proc/none")
    assert fingerprint(folder) == key


def test_threads_that_read_the_same_files_agree(settled, own_cache):
    folder, key = settled
    shutil.rmtree(own_cache / "digests")
    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(fingerprint, [folder] * 16)) == {key}
    (entry,) = (own_cache / "digests").iterdir()
    assert json.loads(entry.read_text())["digest"]


def test_a_file_of_the_hubs_cache_is_known_by_its_name_until_it_changes(tmp_path):
    data = save({"a": np.zeros(40_000, np.float32)})
    digests = {"config.json": git(b"{}"), "model.safetensors": hashlib.sha256(data).hexdigest()}
    blobs, snapshot = tmp_path / "blobs", tmp_path / "snapshots" / "c"
    blobs.mkdir()
    snapshot.mkdir(parents=True)
    for name, content in (("config.json", b"{}"), ("model.safetensors", data)):
        (blobs / digests[name]).write_bytes(content)
        (snapshot / name).symlink_to(blobs / digests[name])
    (known,) = contents([snapshot])
    assert known.digests == digests
    with (snapshot / "model.safetensors").open("r+b") as file:
        file.seek(100_000)
        file.write(b"x")
    (changed,) = contents([snapshot])
    assert changed.key != known.key


def test_files_that_decide_the_numbers_are_those_of_one_format_and_all_that_the_index_names(
    tmp_path,
):
    pickled = {"pytorch_model.bin", "pytorch_model.bin.index.json"}
    names = {*pickled, "model.safetensors", "1_Pooling/config.json"}
    assert relevant(names) == ("model.safetensors",)
    assert set(relevant(names | {"modules.json"})) == (names | {"modules.json"}) - pickled
    assert relevant(pickled) == ()
    assert set(relevant(pickled, pickled=True)) == pickled

    folder = write(tmp_path / "m", 0)
    index = folder / "model.safetensors.index.json"
    for shards, is_whole in ((["model.safetensors"], True), (["model-2.safetensors"], False)):
        index.write_text(json.dumps({"weight_map": dict(enumerate(shards))}))
        assert (index.name in files_of(folder)) == is_whole


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads every file")
def test_a_file_that_cannot_be_read_is_named(tmp_path):
    folder = write(tmp_path / "m", 0)
    (folder / "model.safetensors").chmod(0)
    with pytest.raises(DataError, match=r"model\.safetensors' cannot be read"):
        fingerprint(folder)

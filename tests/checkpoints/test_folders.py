"""What the folder of a model holds: the key of its content covers every byte, and every byte is
read once; checkpoints of trainers are suites as they lie, and half-written ones are left out.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import tempfile
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import save

from daskmetrics.checkpoints import checks, digests, folders, layout
from daskmetrics.checkpoints import locations as checkpoints
from daskmetrics.config import Model
from daskmetrics.core.errors import ConfigError, DataError
from tests.checkpoints.weights import in_shards, write
from tests.hub import git

SHARD = 1_500_000  # bytes: far more than a sample of pieces reads


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory, monkeypatch):
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("DASKMETRICS_CACHE", str(folder))
    return folder


def fingerprint(folder):
    return digests.weights_key(*digests_in(folder))


def digests_in(folder):
    return digests.digests_of([layout.required_files(folder, pickled=False)])


@pytest.fixture(scope="module")
def sharded(tmp_path_factory):
    """A model folder with weights in two files."""
    rng = np.random.default_rng(0)
    folder = write(tmp_path_factory.mktemp("model") / "m", 0)
    return in_shards(folder, *(rng.bytes(SHARD) for _ in range(2)))


@given(shard=st.sampled_from([1, 2]), place=st.integers(0, SHARD - 1), flip=st.integers(1, 255))
def test_any_changed_byte_of_any_weight_file_changes_the_key(sharded, shard, place, flip):
    before, path = fingerprint(sharded), sharded / f"model-0000{shard}-of-00002.safetensors"
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
        moved = shutil.copytree(folder, Path(place) / "two")
        (moved / "README.md").write_text("about")
        (moved / "generation_config.json").write_text("{}")
        assert fingerprint(folder) == fingerprint(moved) == key
        (moved / "config.json").write_text("{}")
        assert fingerprint(moved) != key


@pytest.fixture
def settled(tmp_path, monkeypatch):
    """A model folder whose digests are kept."""
    monkeypatch.setattr(digests, "_SETTLED", 0.05)
    folder = write(tmp_path / "m", np.arange(100_000))
    time.sleep(0.1)
    return folder, fingerprint(folder)


def test_an_unchanged_file_is_read_once(settled, monkeypatch):
    folder, _ = settled
    read = []
    monkeypatch.setattr(digests, "_read", lambda path: read.append(path.name) or "0" * 64)
    fingerprint(folder)
    assert read == ["config.json", "tokenizer.json"]  # small files are read each time


def test_a_change_that_restores_the_time_is_seen(settled):
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


def test_a_checkpoint_removed_while_read_is_one_message(tmp_path):
    folder = write(tmp_path / "m", bytes(SHARD))
    files = layout.required_files(folder, pickled=False)
    shutil.rmtree(folder)
    with pytest.raises(DataError, match=r"cannot be read \(No such file"):
        digests.stamps_of(files.values())
    with pytest.raises(DataError, match=r"cannot be read \(No such file"):
        digests.digests_of([files])


def test_weights_that_cannot_be_read_are_one_message(tmp_path, monkeypatch):
    folder = write(tmp_path / "m", bytes(SHARD))

    def denied(path):
        raise PermissionError(13, "Permission denied", str(path / "model.safetensors"))

    monkeypatch.setattr(checks, "weight_headers", denied)
    with pytest.raises(DataError, match=r"model.safetensors' cannot be read \(Permission denied"):
        folders.read_folder(folder, Model(source=str(folder)))


def test_an_unchanged_file_of_the_hub_is_known_by_its_name(tmp_path):
    data = save({"a": np.zeros(40_000, np.float32)})
    names = {"config.json": git(b"{}"), "model.safetensors": hashlib.sha256(data).hexdigest()}
    blobs, snapshot = tmp_path / "blobs", tmp_path / "snapshots" / "c"
    blobs.mkdir()
    snapshot.mkdir(parents=True)
    for name, content in (("config.json", b"{}"), ("model.safetensors", data)):
        (blobs / names[name]).write_bytes(content)
        (snapshot / name).symlink_to(blobs / names[name])
    assert digests_in(snapshot) == [names]
    with (snapshot / "model.safetensors").open("r+b") as file:
        file.seek(100_000)
        file.write(b"x")
    assert digests_in(snapshot) != [names]


def test_files_of_one_format_and_of_its_index_decide(
    tmp_path,
):
    pickled = {"pytorch_model.bin", "pytorch_model.bin.index.json"}
    names = {*pickled, "model.safetensors", "1_Pooling/config.json"}
    assert layout.relevant(names) == ("model.safetensors",)
    assert set(layout.relevant(names | {"modules.json"})) == (names | {"modules.json"}) - pickled
    assert layout.relevant(pickled) == ()
    assert set(layout.relevant(pickled, pickled=True)) == pickled

    folder = write(tmp_path / "m", 0)
    index = folder / "model.safetensors.index.json"
    # the second is left over: of its own files none is there
    for shards, counts in ((["model.safetensors"], True), (["model-2.safetensors"], False)):
        index.write_text(json.dumps({"weight_map": dict(enumerate(shards))}))
        assert (index.name in layout.required_files(folder, pickled=False)) == counts


def test_a_file_that_cannot_be_read_is_named(tmp_path, monkeypatch):
    folder = write(tmp_path / "m", 0)

    def digest_of(path, like):
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(digests, "digest_of", digest_of)
    with pytest.raises(DataError, match=r"json' cannot be read \(Permission denied\)"):
        fingerprint(folder)


# checkpoints of trainers

STEPS = (500, 1000, 1500)
NAMES = tuple(f"checkpoint-{step}" for step in STEPS)


def located(folder, **options):
    return checkpoints.locate(Model(name="m", source=str(folder), **options))


@pytest.fixture
def out(tmp_path):
    """Three checkpoints with the files of transformers' Trainer."""
    for step in STEPS:
        folder = write(tmp_path / f"checkpoint-{step}", step)
        (folder / "optimizer.pt").write_bytes(b"moments")
        (folder / "trainer_state.json").write_text(json.dumps({"global_step": step}))
    return tmp_path


def test_an_equal_final_model_has_the_last_checkpoints_name(out):
    for name in ("config.json", "tokenizer.json", "model.safetensors"):
        shutil.copy(out / "checkpoint-1500" / name, out)
    (out / "trainer_state.json").write_text("{}")  # not of the numbers
    suite = located(out)
    assert suite.suite.revisions == NAMES
    assert [location.aliases for location in suite.locations] == [(), (), ("main",)]


def test_a_tokenizer_beside_checkpoints_is_part_of_their_keys(out):
    before = located(out)
    for name in NAMES:
        (out / name / "tokenizer.json").unlink()
    with pytest.raises(ConfigError, match="has no tokenizer"):
        located(out)
    (out / "tokenizer.json").write_text("{}")
    assert located(out).locations == before.locations
    (out / "tokenizer.json").write_text('{"version": 2}')
    identities = {location.identity for location in before.locations}
    assert not identities & {location.identity for location in located(out).locations}


WEIGHTS, STATE = "model.safetensors", "trainer_state.json"


@pytest.mark.parametrize(
    ("file", "size", "reason"),
    [
        ("config.json", None, "config.json is missing or not complete"),
        ("config.json", 20, "config.json is missing or not complete"),
        (WEIGHTS, None, "no weights: no model.safetensors"),
        (WEIGHTS, 123, "model.safetensors has 123 of 124 bytes"),
        (WEIGHTS, 30, "model.safetensors has no complete header"),
        (STATE, None, "trainer_state.json is missing or not complete"),
        (STATE, 3, "trainer_state.json is missing or not complete"),
    ],
)
def test_an_incomplete_checkpoint_is_left_out_with_the_reason(out, file, size, reason):
    last = out / "checkpoint-1500"
    checks.require_complete(last)
    content = (last / file).read_bytes()
    (last / file).unlink()
    if size is not None:
        (last / file).write_bytes(content[:size])
    suite = located(out)
    assert suite.suite.revisions == NAMES[:2]
    assert suite.warnings == (
        f"m: checkpoint-1500 is left out, since it is not complete: {reason}",
    )
    for revisions in (["checkpoint-500", "checkpoint-1500"], "checkpoint-1500"):
        with pytest.raises(ConfigError, match=f"checkpoint-1500' is not complete: {reason}"):
            located(out, revisions=revisions)


def test_checkpoints_without_files_of_a_trainer_are_complete(out):
    for name in NAMES:
        (out / name / "trainer_state.json").unlink()
    with pytest.raises(ConfigError, match=r"is not complete: trainer_state\.json is missing"):
        located(out)
    for name in NAMES:  # as copied without them
        (out / name / "optimizer.pt").unlink()
    suite = located(out).suite
    assert suite.revisions == NAMES
    assert tuple(checkpoint.step for checkpoint in suite.checkpoints()) == STEPS

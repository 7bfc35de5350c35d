"""Damage to the files of a run: bytes that flip, files that are cut or lost, disks that are full.

Small by default; ``DASKMETRICS_FAULTS=full`` hurts every file of the store in all four ways instead
of one.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from daskmetrics import store
from daskmetrics.cli import main
from daskmetrics.core.corpus import digest
from daskmetrics.core.errors import DataError, StorageError
from daskmetrics.core.files import RunFolder
from daskmetrics.domain.events import RunFinished, StoreCreated, StoreRepaired
from daskmetrics.domain.names import Suite
from daskmetrics.domain.plan import Plan
from daskmetrics.domain.results import Measured, Scored
from daskmetrics.execution import Journal, Record
from daskmetrics.execution.journal import read, scan
from daskmetrics.experiment import maintenance as maintain
from daskmetrics.store import DamageKind
from daskmetrics.store._zarr import Reader
from tests.events import metric, planned, started, task

FULL = os.environ.get("DASKMETRICS_FAULTS") == "full"
COUNT = 3000 if FULL else 500
SUITES = (
    Suite("a", ("step0", "step1", "step2"), (0, 1, 2), 2),
    Suite("b", ("step0", "main"), (1, 2), 2),
)
TASKS = ("t", "u")
METRICS = ("x", "y", "z")


def plan() -> Plan:
    metrics = [metric(name) for name in METRICS]
    tasks = [task(name) for name in TASKS]
    return planned(SUITES, tasks, metrics, prompts=digest([]))


def records(asked: Plan) -> Iterator[Record]:
    """Every checkpoint measured but one, which was quarantined; every second cell scored, and one
    of them failed.
    """
    rng = np.random.default_rng(0)
    for checkpoint, key in asked.measure_keys.items():
        name = str(checkpoint)
        if name == "a@step1":
            yield Record(key, name, "measure", "quarantined", reason="its worker died")
            continue
        layers = asked.by_model[checkpoint.model].layers
        values = rng.normal(size=(len(layers), 3))
        values[0, 1] = np.nan
        status = np.where(np.isnan(values), store.Status.NAN, store.Status.OK).astype(np.uint8)
        numbers = [np.where(np.isnan(rows), None, rows).tolist() for rows in (values, abs(values))]
        value = Measured(layers, METRICS, *numbers, status.tolist())
        yield Record(key, name, "measure", "ok", value=value)
    for number, arm in enumerate(asked.arms):
        about = asked.tasks[number % 2]
        key = asked.score_key(arm, about)
        name = f"{arm}:{about.name}"
        if number == 2:
            yield Record(key, name, "score", "nan", reason="not finite")
        elif arm.checkpoint.revision != "main":
            yield Record(key, name, "score", "ok", value=Scored(number / 7, 0.1))


def make(folder: RunFolder, ends: bool = True) -> RunFolder:
    """A run as a driver leaves it, without the computing."""
    folder.create()
    asked = plan()
    maintain.write_files(folder, asked.config, [])
    with Journal(folder.journal, folder.lock) as journal:
        journal.append(asked, started(python="3"))
        store.create(folder.store, asked, {"python": "3"})
        journal.append(StoreCreated(asked.store_key, store.files_of(folder.store)))
        blocks = store.metric_blocks(asked, list(records(asked)))
        for record in records(asked):
            if record.kind == "measure" and record.ok:
                (checkpoint,) = (c for c in blocks if str(c) == record.name)
                store.write(folder.store, "metrics", checkpoint, blocks[checkpoint])
            journal.append(record)
        if ends:
            journal.append(RunFinished(asked.key, 1.0))
    if ends:
        maintain.repair(folder)  # writes the scores, as the end of a run does
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> RunFolder:
    """A finished run; tests put back what they damage."""
    return make(RunFolder(tmp_path_factory.mktemp("runs") / "run"))


def contents(path: Path) -> dict[Path, bytes]:
    return {file: file.read_bytes() for file in sorted(path.rglob("*")) if file.is_file()}


def put_back(folder: RunFolder, before: dict[Path, bytes]) -> None:
    for file, content in before.items():
        if not file.is_file() or file.read_bytes() != content:
            file.write_bytes(content)


def damaged(content: bytes, how: str, rng: random.Random) -> bytes:
    """The content with one byte flipped in one bit, cut, or with bytes put in between."""
    if how == "flip":
        at, bit = rng.randrange(len(content)), 1 << rng.randrange(8)
        return content[:at] + bytes([content[at] ^ bit]) + content[at + 1 :]
    if how == "cut":
        return content[: rng.randrange(len(content))]
    at, many = rng.randrange(len(content) + 1), rng.randrange(1, 9)
    return content[:at] + rng.randbytes(many) + content[at:]


@pytest.mark.parametrize("marked", [True, False])
def test_no_damage_to_a_journal_is_silent(folder, tmp_path, marked):
    """Flips, cuts and insertions: each is refused, or every committed entry is read as it was.

    Of a journal that was copied without its mark, what was cut off its end cannot be known.
    """
    whole, entries = folder.journal.read_bytes(), list(read(folder.journal))
    victim = tmp_path / "journal.jsonl"
    if marked:
        victim.with_suffix(".mark").write_bytes(folder.journal.with_suffix(".mark").read_bytes())
    rng, count = random.Random(0), Counter()
    for number in range(COUNT):
        how = ("flip", "flip", "insert", "cut" if marked else "insert")[number % 4]
        victim.write_bytes(damaged(whole, how, rng))
        try:
            same = list(read(victim)) == entries
        except DataError as error:
            assert "damaged" in str(error) or "cut" in str(error)
            count["refused"] += 1
        else:
            # bytes after the last line feed that could be the beginning of a line: never committed
            count["half a line dropped" if same and scan(victim).torn else "silent"] += 1
    print(dict(count))
    assert count["silent"] == 0 and count["refused"] > 0.95 * COUNT


def test_a_damaged_mark_is_made_again_and_changes_nothing(folder):
    entries, mark = list(read(folder.journal)), folder.journal.with_suffix(".mark")
    before, rng = mark.read_bytes(), random.Random(2)
    for _ in range(50):
        mark.write_bytes(damaged(before, "flip", rng))
        assert list(read(folder.journal)) == entries
    Journal(folder.journal, folder.lock).close()
    assert mark.read_bytes() == before


HURTS = ("flip", "cut", "lose", "insert")


def test_any_damage_to_a_store_is_found_and_repaired_bit_for_bit(folder):
    """Every file of the store: metadata, coordinates, values, standard errors, status."""
    sound = maintain.verify(folder)
    assert sound.damages == () and sound.cells == 3 * (9 * 5 + 4 * 5)
    before, rng = contents(folder.store), random.Random(3)
    journal, hurts = contents(folder.path), Counter()
    for number, file in enumerate(before):
        if number % 3 and not FULL:
            continue
        for how in HURTS if FULL else HURTS[number % 4 :][:1]:
            _hurt(file, how, rng)
            found = maintain.verify(folder)
            assert found.damaged, f"{how} of {file} went unseen"
            if file.parent.name == "0":  # a chunk of values: its checkpoint is named
                named = {str(damage.checkpoint) for damage in found.damaged}
                assert _checkpoint_of(folder, file) in named
            maintain.repair(folder)
            assert contents(folder.store) == before, f"{how} of {file} was not repaired"
            hurts[how] += 1
            put_back(folder, journal)  # the lines that `repair` wrote
    print(dict(hurts))
    shutil.rmtree(folder.store)
    assert maintain.verify(folder).damaged
    maintain.repair(folder)
    assert contents(folder.store) == before
    assert maintain.verify(folder).damages == ()


def test_every_bit_of_a_chunk_counts(folder):
    """Compressed data has bits that mean nothing; those too are seen, by every reader."""
    checkpoint = SUITES[0].checkpoints()[2]
    reader = Reader(folder.store, checkpoint.model)
    files = reader.files("metrics", checkpoint)
    (file,) = (file for file in files if "metrics_status" in file.parts)
    content = file.read_bytes()
    for at, bit in itertools.product(range(len(content)), range(8)):
        file.write_bytes(content[:at] + bytes([content[at] ^ 1 << bit]) + content[at + 1 :])
        with pytest.raises(DataError, match="cannot be read"):
            reader.block("metrics", checkpoint)
    file.write_bytes(content)


def _hurt(file: Path, how: str, rng: random.Random) -> None:
    content = file.read_bytes()
    if how == "lose":
        file.unlink()
    else:
        file.write_bytes(damaged(content, how, rng))


def _checkpoint_of(folder: RunFolder, file: Path) -> str:
    model, _, _, row, *_ = file.relative_to(folder.store).parts
    suite = next(suite for suite in SUITES if suite.model == model)
    return f"{model}@{suite.revisions[int(row)]}"


def test_an_unfinished_run_is_sound_and_unvouched_data_is_named(tmp_path):
    folder = make(RunFolder(tmp_path / "run"), ends=False)
    assert not maintain.verify(folder).damages
    main = SUITES[1].checkpoints()[1]
    block = store.Block.empty(2, 2, store.Status.OK)
    store.write(folder.store, "scores", main, block)  # by a worker whose driver was killed
    found = maintain.verify(folder)
    unvouched = [each for each in found.damages if each.kind is DamageKind.UNVOUCHED]
    assert [damage.checkpoint for damage in unvouched] == [main] and not found.damaged
    maintain.repair(folder)
    assert maintain.verify(folder).damages == ()


@pytest.fixture
def small_disk(tmp_path) -> Iterator[Path]:
    """A file system of 4 MiB: the store has some 100 small files, each of which takes a page."""
    place = tmp_path / "disk"
    place.mkdir()
    if os.geteuid():
        pytest.skip("needs root, to mount a small file system")
    mount = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", place]
    done = subprocess.run(mount, capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"a small file system cannot be mounted here: {done.stderr.strip()}")
    yield place
    subprocess.run(["umount", place], check=True)


def fill(disk: Path, left: int = 0) -> Path:
    """A file that takes all room, or all but some bytes."""
    ballast = disk / "ballast"
    with pytest.raises(OSError, match="No space"), ballast.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))
    os.truncate(ballast, ballast.stat().st_size - left)
    return ballast


def test_a_full_disk_takes_nothing_until_there_is_room_again(small_disk):
    path, note = small_disk / "journal.jsonl", StoreRepaired(["x" * 1000])
    with Journal(path, small_disk / "lock") as journal:
        ballast = fill(small_disk, left=20_000)
        committed = 0
        with pytest.raises(StorageError, match="No space left on device"):
            for committed in range(100):  # noqa: B007 - how many were committed
                journal.append(note)
        assert 0 < committed < 60 and len(list(read(path))) == committed
        for _ in range(3):
            with pytest.raises(StorageError):
                journal.append(note)
        ballast.unlink()
        journal.append(note)
    assert len(list(read(path))) == committed + 1


def test_a_store_that_finds_no_room_is_whole_after_a_repair(small_disk):
    folder = make(RunFolder(small_disk / "run"), ends=False)
    ballast = fill(small_disk)
    with pytest.raises((OSError, StorageError), match="No space"):
        maintain.repair(folder)
    assert not maintain.verify(folder).damaged  # nothing false stands there
    ballast.unlink()
    maintain.repair(folder)
    assert maintain.verify(folder).damages == ()


def test_the_verbs_name_what_is_damaged_and_rebuild_it(folder):
    def call(verb: str) -> tuple[int, str]:
        done = CliRunner().invoke(main, ["runs", verb, str(folder.path)])
        return done.exit_code, done.output

    before = contents(folder.path)
    code, out = call("verify")
    assert code == 0 and out.startswith("No damage: ")
    (folder.store / "a" / "scores" / "c" / "2" / "0" / "0").unlink()
    code, out = call("verify")
    assert code == 1
    assert "a@step2 scores" in out and "1 damaged" in out and "daskmetrics runs repair" in out
    assert call("repair")[0] == 0 and call("verify")[0] == 0
    folder.journal.write_bytes(folder.journal.read_bytes().replace(b"quarantined", b"quarantjned"))
    for verb in ("verify", "repair", "journal"):
        code, out = call(verb)
        assert code == 1 and re.match(r"Error: Line \d+ of .* is damaged", out)
    put_back(folder, before)


@pytest.mark.parametrize("name", ["checkpoint", "metrics", "scores"])
def test_a_shape_of_a_trillion_is_damage_that_takes_no_memory(folder, tmp_path, name):
    copy = RunFolder(tmp_path / "run")
    shutil.copytree(folder.path, copy.path)
    file = copy.store / "a" / name / "zarr.json"
    metadata = json.loads(file.read_text())
    metadata["shape"][-1] = 10**12
    file.write_text(json.dumps(metadata))
    assert any(damage.kind is DamageKind.METADATA for damage in maintain.verify(copy).damages)
    maintain.repair(copy)
    assert not maintain.verify(copy).damages

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, get_args, get_origin, get_type_hints

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from daskmetrics.core.errors import NO_ROOM, DataError, DiskFullError, LockedError, StorageError
from daskmetrics.core.events import (
    _JOURNAL,
    RunFinished,
    UnitsRetried,
    from_json,
    is_finished,
    kind_of,
    records,
    standing,
    to_json,
)
from daskmetrics.execution import Journal, Record
from daskmetrics.execution.journal import FORMAT, decode, encode, holder, kept_of, read
from tests.events import started

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


def numbered(i: int) -> RunFinished:
    return RunFinished("k", i)


@pytest.fixture
def paths(tmp_path: Path) -> tuple[Path, Path]:
    return tmp_path / "journal.jsonl", tmp_path / "lock"


@settings(max_examples=30)
@given(st.dictionaries(st.text(), json_values))
def test_an_entry_survives_its_line(entry):
    assert decode(encode(entry)) == entry


@settings(max_examples=30)
@given(st.dictionaries(st.text(), json_values), st.data())
def test_any_flipped_bit_is_seen(entry, data):
    line = bytearray(encode(entry)[:-1])
    position = data.draw(st.integers(0, len(line) - 1))
    line[position] ^= 1 << data.draw(st.integers(0, 7))
    found = decode(bytes(line))
    assert found is None


def test_nan_is_refused():
    with pytest.raises(ValueError, match="JSON"):
        encode({"value": float("nan")})


def test_entries_that_are_written_together_wait_for_the_disk_once(paths, monkeypatch):
    waits = []
    with Journal(*paths) as journal:
        fsync = os.fsync
        monkeypatch.setattr(os, "fsync", lambda file: waits.append(file) or fsync(file))
        journal.append(*map(numbered, range(100)))
        monkeypatch.undo()
        journal.append(numbered(100))
    assert len(waits) == 1
    assert [entry.at for entry in read(paths[0])] == list(range(101))


@pytest.mark.parametrize("length", range(1, 12))
def test_half_a_line_at_the_end_is_dropped_and_said(paths, length):
    with Journal(*paths) as journal:
        journal.append(numbered(0))
    with paths[0].open("ab") as file:
        file.write(encode(to_json(numbered(1)))[:length])
    assert [entry.at for entry in read(paths[0])] == [0]
    with Journal(*paths) as journal:
        assert f"half a line ({length} bytes)" in " ".join(journal.notices)
        journal.append(numbered(2))
    assert [entry.at for entry in read(paths[0])] == [0, 2]


@pytest.mark.parametrize("cut", [1, 5, 46, 50])
def test_a_journal_that_was_cut_is_refused_until_its_mark_is_deleted(paths, cut):
    with Journal(*paths) as journal:
        for i in range(3):
            journal.append(numbered(i))
    os.truncate(paths[0], paths[0].stat().st_size - cut)
    with pytest.raises(DataError, match="it was cut"):
        list(read(paths[0]))
    paths[0].with_suffix(".mark").unlink()
    assert [entry.at for entry in read(paths[0])] == list(range(1 if cut > 46 else 2))


@pytest.mark.parametrize("order", [[0, 2], [0, 1, 1, 2], [1, 0, 2]])
def test_whole_lines_lost_doubled_or_out_of_place_are_seen(paths, order):
    with Journal(*paths) as journal:
        journal.append(*map(numbered, range(3)))
    lines = paths[0].read_bytes().splitlines(keepends=True)
    paths[0].write_bytes(b"".join(lines[i] for i in order))
    with pytest.raises(DataError, match="damaged"):
        list(read(paths[0]))


@pytest.mark.parametrize("number", sorted(NO_ROOM))
def test_a_line_that_finds_no_room_leaves_nothing_behind(paths, monkeypatch, number):
    """The real thing, on a full file system, is in tests/faults."""
    with Journal(*paths) as journal:
        journal.append(numbered(0))
        write = os.write
        monkeypatch.setattr(
            os, "write", lambda file, line: _half_then_fail(write, file, line, number)
        )
        with pytest.raises(DiskFullError, match="free some space"):
            journal.append(numbered(1))
        monkeypatch.undo()
        assert [entry.at for entry in read(paths[0])] == [0]
        journal.append(numbered(2))
        monkeypatch.setattr(
            os, "write", lambda file, line: _half_then_fail(write, file, line, number)
        )
        with pytest.raises(DiskFullError, match="free some space"):
            journal.append(numbered(3), numbered(4))
        monkeypatch.undo()
        assert (
            [entry.at for entry in read(paths[0])]
            == [entry.at for entry in journal.entries]
            == [0, 2]
        )
    assert [entry.at for entry in read(paths[0])] == [0, 2]


def _half_then_fail(write, file, line, number):
    if len(line) > 20:
        return write(file, line[:20])
    raise OSError(number, os.strerror(number))


def test_a_failed_record_that_is_to_be_tried_again_is_gone_and_a_success_stays(paths):
    with Journal(*paths) as journal:
        journal.append(Record("a", "a", "demo", "error", reason="x"))
        journal.append(Record("b", "b", "demo", "ok", value=1))
        journal.append(RunFinished("k", 1.0))
        journal.append(UnitsRetried(["a", "b"]))
        assert [record.key for record in journal.records()] == ["b"]
        assert list(map(type, standing(journal.entries))) == [Record, UnitsRetried]
        journal.append(Record("a", "a", "demo", "error", reason="again"))
        assert [(record.key, record.reason) for record in journal.records()] == [
            ("b", None),
            ("a", "again"),
        ]


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: content.replace(b'"at":0', b'"at":7'),
        lambda content: content.splitlines(keepends=True)[0] + content.splitlines()[1] + b" ",
    ],
    ids=["a digit", "a line feed that is lost"],
)
def test_damage_is_refused_with_its_line(paths, damage):
    with Journal(*paths) as journal:
        journal.append(*map(numbered, range(3)))
    paths[0].with_suffix(".mark").unlink()
    paths[0].write_bytes(damage(paths[0].read_bytes()))
    for attempt in (lambda: list(read(paths[0])), lambda: Journal(*paths)):
        with pytest.raises(DataError, match="Line 2"):
            attempt()


def test_a_second_driver_is_refused_and_told_who(paths):
    hold = (
        "import sys; from pathlib import Path; from daskmetrics.execution.journal import Journal\n"
        f"journal = Journal(Path({str(paths[0])!r}), Path({str(paths[1])!r}))\n"
        "print('held', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", hold], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout is not None and other.stdout.readline() == b"held\n"
        with pytest.raises(LockedError, match=f"process {other.pid} on "):
            Journal(*paths)
        assert f"process {other.pid} " in str(holder(paths[1]))
        other.kill()
        other.wait()
    assert holder(paths[1]) is None  # a dead driver holds nothing
    with Journal(*paths) as journal:
        assert f"from process {other.pid} on " in " ".join(journal.notices)
    assert holder(paths[1]) is None


def test_a_journal_of_an_earlier_version_is_told_as_such(tmp_path):
    path = tmp_path / "journal.jsonl"
    # no line knew of the one before it
    path.write_bytes(encode({"type": "start"}) + encode({"type": "note"}))
    with pytest.raises(DataError, match="earlier version"):
        list(read(path))


def test_a_newer_format_is_refused_with_what_to_do(paths):
    paths[0].write_bytes(encode({"type": "format", "number": FORMAT + 1}))
    for attempt in (lambda: list(read(paths[0])), lambda: Journal(*paths)):
        with pytest.raises(
            DataError, match=f"format {FORMAT + 1}.*upgrade daskmetrics, or use another folder"
        ):
            attempt()
    assert holder(paths[1]) is None


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        ({"type": "of tomorrow", "key": "k"}, "unknown kind of entry 'of tomorrow'"),
        ({"key": "k"}, "unknown kind of entry None"),
        (
            {"type": "finished", "key": "k", "at": 1.0, "mood": "good"},
            "the field 'mood' is not known",
        ),
        ({"type": "finished", "key": "k"}, "the field 'at' is missing"),
        ({"type": "finished", "key": "k", "at": "noon"}, "the field 'at' is 'noon'"),
        ({"type": "usage", "workers": {"w": 1}}, "the field 'workers.w' is 1 "),
    ],
)
def test_an_unknown_entry_is_refused_with_its_line_and_what_to_do(paths, entry, reason):
    with Journal(*paths) as journal:
        journal.append(numbered(0))
    last = paths[0].read_bytes().splitlines()[-1]
    with paths[0].open("ab") as file:
        file.write(encode(entry, int(last[:8], 16)))
    with pytest.raises(
        DataError, match=f"line 3 .*{reason}.*upgrade daskmetrics, or use another folder"
    ):
        list(read(paths[0]))


def example(hint):
    """A value of the type of a field."""
    inner = [example(each) for each in get_args(hint)]
    by_type = {
        Mapping: lambda: {"a": inner[1]},
        Sequence: lambda: inner,
        UnionType: lambda: inner[0],
    }
    by_type |= {Any: lambda: {"a": [1.5]}, object: lambda: {"a": [1.5]}, NoneType: lambda: None}
    return by_type.get(get_origin(hint) or hint, lambda: hint(1))()


def test_every_kind_of_entry_survives_its_line_and_has_the_types_of_its_fields():
    for kind, cls in _JOURNAL.items():
        hints = get_type_hints(cls)
        entry = cls(**{name: example(hint) for name, hint in hints.items()})
        assert from_json(decode(encode(to_json(entry)))) == entry
        assert kind_of(entry) == kind and not isinstance(entry, dict)
        for name in (name for name, hint in hints.items() if hint not in (Any, object)):
            with pytest.raises(ValueError, match=f"'{kind}': the field '{name}' is "):
                from_json({**to_json(entry), name: 1j})


def test_what_earlier_versions_wrote_beside_is_left_out():
    plain = to_json(started("small"))
    assert from_json({**plain, "likeness": [[1.0]]}) == started("small")
    with pytest.raises(ValueError, match="'future' is not known"):
        from_json({**plain, "future": 1})


def test_a_run_that_was_enlarged_and_interrupted_is_not_finished():
    small, large = started("small"), started("large")
    ended = RunFinished("small", 1.0)
    assert is_finished([small, ended])
    assert not is_finished([small, ended, large])
    assert is_finished([small, ended, large], "small") and not is_finished(
        [small, ended, large], "large"
    )
    assert is_finished([small, ended, large, RunFinished("large", 2.0)])
    assert not is_finished([]) and not is_finished([small])


def test_a_run_with_failures_taken_back_is_not_finished_until_it_ends_again():
    failed = Record("a", "a", "demo", "error", reason="x")
    entries = [started(), failed, RunFinished("k", 1.0), UnitsRetried(["a"])]
    assert is_finished(entries[:-1]) and not is_finished(entries)
    assert list(records(entries[:-1])) == [failed] and not list(records(entries))
    again = Record("a", "a", "demo", "ok", value=1)
    assert list(records([*entries, again])) == [again]
    assert is_finished([*entries, started(), again, RunFinished("k", 2.0)])


def test_of_two_records_of_one_key_the_first_with_a_value_counts():
    failed, good, later = (
        Record("a", "a", "demo", status, value=value)
        for status, value in (("error", None), ("ok", 1), ("ok", 2))
    )  # fmt: skip
    assert list(records([failed, good, later])) == [good]
    assert list(records([good, failed])) == [good]
    assert list(records([failed, replace(failed, reason="again")])) == [failed]


@pytest.mark.parametrize("how", ["deleted", "replaced", "with its folder"])
@pytest.mark.parametrize("last", [False, True])
def test_a_journal_that_is_taken_away_ends_the_run_and_nothing_is_lost(tmp_path, how, last):
    folder = tmp_path / "run"
    folder.mkdir()
    path, lock = folder / "journal.jsonl", folder / "lock"
    with pytest.raises(DataError, match=r"was (replaced|deleted or moved) while.*mv ") as raised:  # noqa: SIM117
        with Journal(path, lock) as journal:
            journal.append(numbered(0), numbered(1))
            if how == "with its folder":
                shutil.rmtree(folder)
            else:
                path.unlink()
            if how == "replaced":
                path.write_bytes(b"")
            if not last:  # otherwise it is noticed at the end
                journal.append(numbered(2))
    kept = folder / "journal.kept.jsonl"
    assert str(kept) in str(raised.value)
    if how == "deleted":
        with pytest.raises(
            DataError, match=f"is missing, but .* were committed.*mv '{kept}' '{path}'"
        ):
            Journal(path, lock)
    kept.replace(path)
    with Journal(path, lock) as journal:
        assert [entry.at for entry in journal.entries] == [0, 1]
        journal.append(numbered(2))
    assert [entry.at for entry in read(path)] == [0, 1, 2]


def test_a_mark_without_a_journal_is_refused_until_it_is_deleted(paths):
    with Journal(*paths) as journal:
        journal.append(numbered(0))
    paths[0].unlink()
    with pytest.raises(
        DataError, match=r"restore it from a backup. To compute everything again, delete"
    ):
        Journal(*paths)
    assert holder(paths[1]) is None
    paths[0].with_suffix(".mark").unlink()
    with Journal(*paths) as journal:
        assert journal.entries == []


def test_a_journal_that_is_cut_while_it_is_written_ends_the_run_and_loses_nothing(paths):
    with (
        pytest.raises(DataError, match="was cut while this run wrote it"),
        Journal(*paths) as journal,
    ):
        journal.append(numbered(0))
        os.truncate(paths[0], 5)
        journal.append(numbered(1))
    kept_of(paths[0]).replace(paths[0])
    assert [entry.at for entry in read(paths[0])] == [0]


def test_what_did_not_wait_is_written_again_after_the_disk_has_failed(paths, monkeypatch):
    """A disk that fails may drop all that was written since the last wait, and reports it once."""
    with Journal(*paths) as journal:
        journal.append(numbered(0))
        journal.append(numbered(1), wait=False)
        safe, written = paths[0].stat().st_size, []
        write, fails = os.write, iter([True])

        def fsync(file):
            if next(fails, False):
                raise OSError(errno.EIO, os.strerror(errno.EIO))

        monkeypatch.setattr(os, "fsync", fsync)
        with pytest.raises(StorageError, match="make the place writable"):
            journal.append(numbered(2))
        assert paths[0].stat().st_size < safe
        monkeypatch.setattr(
            os, "write", lambda file, text: written.append(text) or write(file, text)
        )
        journal.append(numbered(2))
    assert b'"at":1' in written[0] and b'"at":2' in written[0]
    assert [entry.at for entry in read(paths[0])] == [0, 1, 2]

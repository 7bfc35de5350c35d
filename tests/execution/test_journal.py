from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import is_dataclass, replace
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, get_args, get_origin, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daskmetrics.core.errors import DataError, LockedError
from daskmetrics.domain.events import (
    JOURNAL,
    KINDS,
    RunFinished,
    UnitsRetried,
    from_json,
    is_finished,
    records,
    standing,
    to_json,
)
from daskmetrics.domain.names import Arm, Suite
from daskmetrics.execution import Journal, Record
from daskmetrics.execution.journal import FORMAT, decode, encode, holder, mark_of, read
from tests.events import planned, started

numbers_of_json = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
json_values = st.recursive(
    st.none() | st.booleans() | numbers_of_json | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


def numbered(i: int) -> RunFinished:
    return RunFinished("k", i)


def keep(paths: tuple[Path, Path], count: int) -> None:
    """A journal with so many entries."""
    with Journal(*paths) as journal:
        journal.append(*map(numbered, range(count)))


def numbers(path: Path) -> list[float]:
    return [entry.at for entry in read(path)]


@pytest.fixture
def paths(tmp_path: Path) -> tuple[Path, Path]:
    return tmp_path / "journal.jsonl", tmp_path / "lock"


@given(st.dictionaries(st.text(), json_values), st.data())
def test_an_entry_survives_its_line_and_any_flipped_bit_is_seen(entry, data):
    line = bytearray(encode(entry))
    assert decode(bytes(line)) == entry
    line[data.draw(st.integers(0, len(line) - 2))] ^= 1 << data.draw(st.integers(0, 7))
    assert decode(bytes(line)) is None
    with pytest.raises(ValueError, match="JSON"):
        encode({**entry, "value": float("nan")})


def test_entries_written_together_wait_for_the_disk_once(paths, monkeypatch):
    waits = []
    with Journal(*paths) as journal:
        fsync = os.fsync
        monkeypatch.setattr(os, "fsync", lambda file: waits.append(file) or fsync(file))
        journal.append(*map(numbered, range(100)))
        monkeypatch.undo()
        journal.append(numbered(100))
    assert len(waits) == 1 and numbers(paths[0]) == list(range(101))


@pytest.mark.parametrize("length", [1, 8, 9, 11])
def test_half_a_line_at_the_end_is_dropped_and_reported(paths, length):
    keep(paths, 1)
    with paths[0].open("ab") as file:
        file.write(encode(to_json(numbered(1)))[:length])
    assert numbers(paths[0]) == [0]
    with Journal(*paths) as journal:
        assert f"half a line ({length} bytes)" in " ".join(journal.notices)
        journal.append(numbered(2))
    assert numbers(paths[0]) == [0, 2]


def in_order(*order: int):
    def damage(content: bytes) -> bytes:
        lines = content.splitlines(keepends=True)
        return b"".join(lines[i] for i in order)

    return damage


DAMAGES = {
    "lost": in_order(0, 2),
    "doubled": in_order(0, 1, 1, 2),
    "out of place": in_order(1, 0, 2),
    "a digit": lambda content: content.replace(b'"at":0', b'"at":7'),
    "a line feed": lambda content: content.rsplit(b"\n", 2)[0] + b" ",
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_damage_is_refused_with_its_line(paths, damage):
    keep(paths, 3)
    mark_of(paths[0]).unlink()
    paths[0].write_bytes(damage(paths[0].read_bytes()))
    for attempt in (lambda: list(read(paths[0])), lambda: Journal(*paths)):
        with pytest.raises(DataError, match=r"Line [123] of .* damaged"):
            attempt()


def test_a_second_driver_is_refused_and_told_who_the_first_is(paths):
    hold = (
        "import sys; from pathlib import Path; from daskmetrics.execution.journal import Journal\n"
        f"journal = Journal(Path({str(paths[0])!r}), Path({str(paths[1])!r}))\n"
        "print('held', flush=True); sys.stdin.read()"
    )
    pipe, command = subprocess.PIPE, [sys.executable, "-c", hold]
    with subprocess.Popen(command, stdin=pipe, stdout=pipe) as other:
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


@pytest.mark.parametrize("first", [{"type": "start"}, {"type": "format", "number": FORMAT + 1}])
def test_another_format_is_refused_with_what_to_do(paths, first):
    paths[0].write_bytes(encode(first))
    for attempt in (lambda: list(read(paths[0])), lambda: Journal(*paths)):
        with pytest.raises(
            DataError, match=f"reads format {FORMAT}. Another version wrote it: use"
        ):
            attempt()
    assert holder(paths[1]) is None


#: a suite with a readout that this version does not have
WHITENED = {"model": "m", "revisions": ["a"], "layers": [0], "depth": 1, "readouts": ["whiten"]}


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        ({"type": "of tomorrow", "key": "k"}, "unknown kind of entry 'of tomorrow'"),
        ({"key": "k"}, "unknown kind of entry None"),
        ({"type": "finished", "key": "k", "at": 1.0, "mood": "good"}, "'mood' is not known"),
        ({"type": "finished", "key": "k"}, "the field 'at' is missing"),
        ({"type": "finished", "key": "k", "at": "noon"}, "the field 'at' is 'noon'"),
        ({"type": "usage", "workers": {"w": 1}}, "the field 'workers.w' is 1 "),
        ({**to_json(planned()), "suites": [WHITENED]}, "'whiten' is not a readout"),
    ],
)
def test_an_unknown_entry_is_refused_with_its_line_and_remedy(paths, entry, reason):
    keep(paths, 1)
    last = paths[0].read_bytes().splitlines()[-1]
    with paths[0].open("ab") as file:
        file.write(encode(entry, int(last[:8], 16)))
    with pytest.raises(DataError, match=f"line 3 .*{reason}.*Another version wrote it: use"):
        list(read(paths[0]))


def example(hint):
    """A value of the type of a field."""
    if is_dataclass(hint):
        of_class = {Suite: lambda: Suite("m", ("a",), (0,), 1), Arm: lambda: Arm("m", "a", 0)}
        return of_class.get(hint, lambda: example_of(hint))()
    inner = [example(each) for each in get_args(hint) if each is not ...]
    by_type = {
        Mapping: lambda: {"a": inner[1]},
        Sequence: lambda: inner,
        tuple: lambda: tuple(inner),
        UnionType: lambda: inner[0],
    }
    by_type |= {Any: lambda: {"a": [1.5]}, object: lambda: {"a": [1.5]}, NoneType: lambda: None}
    return by_type.get(get_origin(hint) or hint, lambda: hint(1))()


def example_of(cls):
    hints = get_type_hints(cls)
    return cls(**{name: example(hint) for name, hint in hints.items()})


def test_every_kind_of_entry_survives_its_line_and_is_typed():
    for kind, cls in JOURNAL.items():
        hints = get_type_hints(cls)
        entry = example_of(cls)
        assert from_json(decode(encode(to_json(entry)))) == entry
        assert KINDS[type(entry)] == kind and not isinstance(entry, dict)
        for name in (name for name, hint in hints.items() if hint not in (Any, object)):
            with pytest.raises(ValueError, match=f"'{kind}': the field '{name}' is "):
                from_json({**to_json(entry), name: 1j})


@pytest.mark.parametrize(
    ("starts_and_ends", "finished"),
    [("", False), ("s", False), ("sS", True), ("sSl", False), ("sSlL", True), ("sSlLs", True)],
)
def test_only_the_configuration_of_the_latest_start_is_finished(starts_and_ends, finished):
    small, large = planned(search="small"), planned(search="large")
    kinds = {
        "s": small,
        "S": RunFinished(small.key, 1.0),
        "l": large,
        "L": RunFinished(large.key, 2.0),
    }
    entries = [kinds[letter] for letter in starts_and_ends]
    assert is_finished(entries) is finished
    is_large = "l" in starts_and_ends[-2:]
    assert is_finished(entries, small.key) is (finished and not is_large)
    assert is_finished(entries, large.key) is (finished and is_large)


FAILED = Record("a", "a", "demo", "error", reason="x")
GOOD = Record("a", "a", "demo", "ok", value=1)


def test_a_failure_taken_back_is_gone_and_a_success_stays():
    asked = planned()
    entries = [asked, FAILED, replace(GOOD, key="b"), RunFinished(asked.key, 1.0)]
    assert is_finished(entries)
    entries.append(UnitsRetried(["a", "b"]))
    assert not is_finished(entries)
    assert [record.key for record in records(entries)] == ["b"]
    assert [type(entry) for entry in standing(entries)][1:] == [Record, UnitsRetried]
    entries += [started(), GOOD, RunFinished(asked.key, 2.0)]
    assert is_finished(entries) and [record.key for record in records(entries)] == ["b", "a"]


def test_of_two_records_of_one_key_the_first_with_a_value_counts():
    assert list(records([FAILED, GOOD, replace(GOOD, value=2)])) == [GOOD]
    assert list(records([GOOD, FAILED])) == [GOOD]
    assert list(records([FAILED, replace(FAILED, reason="again")])) == [FAILED]


TAKEN = {
    "removed": (lambda path: path.unlink(), "was removed: stopped"),
    "removed with its folder": (lambda path: shutil.rmtree(path.parent), "was removed: stopped"),
    "replaced": (lambda path: (path.unlink(), path.write_bytes(b"")), "was replaced or cut"),
    "cut": (lambda path: os.truncate(path, 5), "was replaced or cut"),
}


@pytest.mark.parametrize("how", TAKEN)
@pytest.mark.parametrize("last", [False, True])
def test_a_journal_taken_away_ends_the_run_until_it_is_put_back(tmp_path, how, last):
    """What was committed to it before counts, and nothing else is written."""
    (tmp_path / "run").mkdir()
    path, lock = tmp_path / "run" / "journal.jsonl", tmp_path / "run" / "lock"
    take, message = TAKEN[how]
    with (
        pytest.raises(DataError, match=f"{message}.*Put it back.*backup"),
        Journal(path, lock) as journal,
    ):
        journal.append(numbered(0), numbered(1))
        backup = path.read_bytes()
        take(path)
        if not last:  # otherwise it is noticed at the end
            journal.append(numbered(2))
    if how != "removed with its folder":
        with pytest.raises(DataError, match=r"were committed|was cut"):
            Journal(path, lock)
        assert holder(lock) is None
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(backup)
    with Journal(path, lock) as journal:
        assert [entry.at for entry in journal.entries] == [0, 1]
        journal.append(numbered(2))
    assert numbers(path) == [0, 1, 2]

from __future__ import annotations

import pytest

from benchmarks.nemesis import Broken, recorded
from daskmetrics.domain.record import Record
from daskmetrics.domain.results import ItemOutcome, Mapped
from daskmetrics.execution import Journal


def record(*indices: int) -> Record:
    items = tuple(
        ItemOutcome(f"{i}", "ok", {"index": i, "value": 7 * i}, seconds=0.1) for i in indices
    )
    return Record(f"unit {indices}", "batch", "batch", "ok", Mapped(items))


@pytest.mark.parametrize("line", [0, 1])
def test_the_checker_sees_damage_and_doubled_items_by_itself(tmp_path, line):
    path = tmp_path / "journal.jsonl"
    assert recorded(path) == {}
    with Journal(path, tmp_path / "lock") as journal:
        journal.append(record(0, 1), record(2))
    whole = path.read_bytes()
    assert recorded(path) == {0: 0, 1: 7, 2: 14}
    lines = whole.splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:line] + lines[line + 1 :]))
    with pytest.raises(Broken, match="damaged"):
        recorded(path)
    path.write_bytes(whole.replace(b'"value":7}', b'"value":8}'))
    with pytest.raises(Broken, match="damaged"):
        recorded(path)
    path.write_bytes(whole)
    with Journal(path, tmp_path / "lock") as journal:
        journal.append(record(1))
    with pytest.raises(Broken, match="again"):
        recorded(path)

from __future__ import annotations

import random
from contextlib import suppress

import pytest

from daskmetrics.answer import map_status
from daskmetrics.answer.map_status import MapStatus
from daskmetrics.core.errors import DataError
from daskmetrics.core.events import UnitAsked, UnitsRetried
from daskmetrics.core.files import RunFolder
from daskmetrics.core.results import ItemOutcome, Mapped
from daskmetrics.execution import Record
from daskmetrics.execution.map.api import open_journal, run
from daskmetrics.execution.map.folder import begin, read_map, retry_failed
from daskmetrics.execution.map.source import MapOptions, MapSource, make_spec


def twice(item: int) -> int:
    return 2 * item


@pytest.fixture
def look(tmp_path, monkeypatch):
    """Looks at the map, and checks whether its whole journal was read."""
    computed = []
    monkeypatch.setattr(
        map_status, "read_map", lambda *given: computed.append(1) or read_map(*given)
    )

    def look(new: int) -> MapStatus:
        computed.clear()
        seen = MapStatus.of(RunFolder(tmp_path))
        assert len(computed) == new and MapStatus.of(RunFolder(tmp_path)) == seen
        return seen

    return look


def test_a_summary_is_kept_until_a_byte_of_the_map_changes(tmp_path, look):
    """A kept one needs no reading of entries, and cannot be of another state of the map."""

    with open_journal(tmp_path) as journal:
        run(make_spec(twice, range(4)), None, journal)
    assert (look(new=1).counts, look(new=0).finished) == ({"ok": 4}, True)
    with open_journal(tmp_path) as journal:
        run(make_spec(twice, range(6)), None, journal)
    assert (look(new=1).counts, look(new=0).items) == ({"ok": 6}, 6)
    lines = tmp_path / "journal.jsonl"
    content = lines.read_bytes()
    lines.write_bytes(content.replace(b'"value":2,', b'"value":3,'))
    with pytest.raises(DataError, match="is damaged"):
        MapStatus.of(RunFolder(tmp_path))
    lines.write_bytes(content)
    assert look(new=0).counts == {"ok": 6}
    mark = tmp_path / "journal.mark"
    whole = mark.read_bytes()
    mark.write_bytes(b"0")
    assert look(new=0).counts == {"ok": 6}
    mark.write_bytes(whole)
    lines.write_bytes(content[:-1])
    with pytest.raises(DataError, match="it was cut"):
        MapStatus.of(RunFolder(tmp_path))
    lines.write_bytes(content)
    (tmp_path / "summary.json").write_text('{"items": 9}')
    assert look(new=1).items == 6
    (tmp_path / "items.jsonl").unlink()
    (tmp_path / "items.jsonl").mkdir()
    with pytest.raises(DataError, match="is missing"):
        MapStatus.of(RunFolder(tmp_path))


VALUES = [0.5, 3, True, None, "text", {"a": 1}, {"a": 2.5, "b": "x"}, {"b": 4}, [1, 2]]
LARGE = [2**70, 2**63, -1]


def outcome(rng: random.Random, key: str) -> ItemOutcome:
    status = rng.choice(["ok", "ok", "ok", "nan", "oom", "error"])
    value = None
    if status == "ok":
        value = rng.choice(VALUES[: rng.choice([3, 9])] + LARGE[: rng.choice([0, 0, 3])])
    reason = None if status == "ok" else f"ValueError: no {rng.randrange(9)}"
    permanent = rng.random() < 0.5
    return ItemOutcome(key, status, value, reason, None, permanent, rng.random())


@pytest.mark.parametrize("seed", range(12))
def test_the_status_of_a_growing_map_is_that_of_its_whole_journal(tmp_path, seed):
    """Batches that wait, fail, are halved, and are retried, between any two looks."""
    rng = random.Random(seed)
    spec = make_spec(twice, range(40), MapOptions(batch_size=3, retries=1))
    folder = RunFolder(tmp_path)
    with open_journal(tmp_path) as journal:
        source = MapSource(spec, clock=lambda: 0.0)
        begin(source, journal)
        running = []
        while source.tracker.unfinished():
            for unit in source.ask(rng.randrange(1, 4)):
                running.append(unit)
                journal.append(UnitAsked(unit.key, unit.name, dict(unit.note)))
            for unit in [running.pop(rng.randrange(len(running))) for _ in running[1:] or running]:
                record = Record(unit.key, unit.name, "batch", "timeout", reason="slow")
                if rng.random() < 0.8:
                    outcomes = tuple(outcome(rng, key) for key in unit.note["items"])
                    record = Record(unit.key, unit.name, "batch", "ok", Mapped(outcomes))
                journal.append(record)
                source.tell(record)
            if rng.random() < 0.2:
                journal.append(UnitsRetried([]))
            grown = MapStatus.of(folder)
            with suppress(FileNotFoundError):  # integers of more than 64 bits: nothing is kept
                folder.summary.rename(tmp_path / "kept")
            assert MapStatus.of(folder) == grown
            with suppress(FileNotFoundError):
                (tmp_path / "kept").replace(folder.summary)
            assert grown.counts.get("ok", 0) == sum(r.ok for r in source.tracker.results())
        retry_failed(spec, journal)
        assert MapStatus.of(folder).finished == (grown.counts == {"ok": 40})


def test_what_is_added_to_a_journal_is_read_alone(tmp_path, look):
    spec = make_spec(twice, range(9))
    with open_journal(tmp_path) as journal:
        source = MapSource(spec)
        begin(source, journal)
        units = source.ask(9)
        journal.append(*(UnitAsked(unit.key, unit.name, dict(unit.note)) for unit in units))
        for i, unit in enumerate(units):
            [key] = unit.note["items"]
            value = Mapped((ItemOutcome(key, "ok", i),))
            record = Record(unit.key, unit.name, "batch", "ok", value)
            journal.append(record)
            assert look(new=not i).counts == {"ok": i + 1}
    content = (tmp_path / "journal.jsonl").read_bytes()
    (tmp_path / "journal.jsonl").write_bytes(content.replace(b'"value":2,', b'"value":3,'))
    with pytest.raises(DataError, match="is damaged"):
        MapStatus.of(RunFolder(tmp_path))


@pytest.mark.parametrize("values", [({"b": 1, "a": 2}, {"a": 3}), (-1, 2**63)], ids=str)
def test_results_in_another_order_than_that_of_the_items_make_the_same_status(tmp_path, values):
    spec = make_spec(twice, range(2))
    folder = RunFolder(tmp_path)
    with open_journal(tmp_path) as journal:
        source = MapSource(spec)
        begin(source, journal)
        for unit, value in reversed(list(zip(source.ask(2), values, strict=True))):
            [key] = unit.note["items"]
            asked = UnitAsked(unit.key, unit.name, dict(unit.note))
            done = Mapped((ItemOutcome(key, "ok", value, seconds=0.5),))
            journal.append(asked, Record(unit.key, unit.name, "batch", "ok", done))
            grown = MapStatus.of(folder)
    folder.summary.unlink(missing_ok=True)
    assert MapStatus.of(folder) == grown

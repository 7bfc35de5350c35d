from __future__ import annotations

import random
import zlib
from dataclasses import replace

import pytest

from daskmetrics.core.errors import DataError
from daskmetrics.core.files import RunFolder
from daskmetrics.domain.events import AttemptFailed, UnitAsked
from daskmetrics.domain.record import Record
from daskmetrics.domain.results import ItemOutcome, Mapped
from daskmetrics.execution.journal import JournalReading, mark_of, read
from daskmetrics.execution.map import status
from daskmetrics.execution.map.api import open_journal, run
from daskmetrics.execution.map.folder import begin, retry_failed
from daskmetrics.execution.map.source import MapOptions, MapSource, make_spec


def twice(item: int) -> int:
    return 2 * item


@pytest.fixture
def lengths(monkeypatch) -> list[int]:
    """How many bytes of the journal each reading passed over."""
    passed: list[int] = []

    def counted(path, length=0, *rest, **options):
        passed.append(length)
        return JournalReading(path, length, *rest, **options)

    monkeypatch.setattr(status, "JournalReading", counted)
    return passed


def test_a_summary_is_kept_until_a_byte_of_the_map_changes(tmp_path, lengths):
    folder = RunFolder(tmp_path)

    def look(whole: bool) -> status.MapStatus:
        """Whether the whole journal is read; after it, nothing is."""
        lengths.clear()
        seen = status.MapStatus.of(folder)
        assert (lengths[-1] == 0) is whole and status.MapStatus.of(folder) == seen
        assert lengths[-1] == folder.journal.stat().st_size
        return seen

    for count in (4, 6):
        with open_journal(tmp_path) as journal:
            run(make_spec(twice, range(count), MapOptions()), None, journal)
        assert look(whole=True).counts == {"ok": count} and look(whole=False).finished
    content = folder.journal.read_bytes()
    folder.journal.write_bytes(content.replace(b'"value":2,', b'"value":3,'))
    with pytest.raises(DataError, match=r"Line 6 .* is damaged"):
        status.MapStatus.of(folder)
    folder.journal.write_bytes(content)
    assert look(whole=False).counts == {"ok": 6}
    folder.summary.write_text('{"items": 9}')
    assert look(whole=True).items == 6
    # the mark is compared with a line that would not be read
    mark = b"%016x %08x" % (len(content), 7)
    mark_of(folder.journal).write_bytes(b"%s %08x\n" % (mark, zlib.crc32(mark)))
    with pytest.raises(DataError, match="is damaged"):
        status.MapStatus.of(folder)
    mark_of(folder.journal).unlink()
    folder.items.unlink()
    folder.items.mkdir()
    with pytest.raises(DataError, match="is missing"):
        status.MapStatus.of(folder)


VALUES = (
    lambda x: {"loss": x / 3, "n": x},
    lambda x: {"loss": x / 3, "name": f"a{x}"},
    lambda x: x % 2 == 0,
    lambda x: 2**70 + x,
    lambda x: {"loss": "none", "index": x},
    lambda x: [x],
)


@pytest.mark.parametrize("seed", range(8))
def test_what_a_journal_gained_is_added_as_if_all_were_read(tmp_path, lengths, seed):
    """Whatever items return, however they fail, and whatever was tried again in between."""
    chance = random.Random(seed)
    folder = RunFolder(tmp_path)
    values = chance.sample(VALUES, 2)
    options = MapOptions(batch_size=chance.choice([1, 3]), retries=1)
    spec = make_spec(twice, range(40), options)
    passed_over = 0
    with open_journal(tmp_path) as journal:
        source = MapSource(spec, read(journal.path), clock=lambda: 0.0)
        begin(source, journal)
        while units := source.ask(chance.randint(1, 4)):
            for unit in units:
                journal.append(UnitAsked(unit.key, unit.name, dict(unit.note)))
            for unit in units:
                outcomes = [
                    ItemOutcome(key, "ok", chance.choice(values)(chance.randint(0, 9)), seconds=0.5)
                    for key in unit.note["items"]
                ]
                spoiled = chance.choice(["", "", "error", "oom", "nan", "died"])
                record = Record(unit.key, unit.name, "batch", "ok", Mapped(tuple(outcomes)))
                if spoiled == "died":
                    attempt = unit.key, unit.name, "batch", "w", 1
                    journal.append(AttemptFailed(*attempt, "death", True, "it died", ""))
                    record = replace(record, status="quarantined", value=None, reason="it died")
                elif spoiled:
                    outcomes[0] = ItemOutcome(outcomes[0].key, spoiled, reason=f"no {seed}")
                    record = replace(record, value=Mapped(tuple(outcomes)))
                journal.append(record)
                source.tell(record)
            if chance.random() < 0.1:
                retry_failed(spec, journal)
                source = MapSource(spec, read(journal.path), clock=lambda: 0.0)
            if chance.random() < 0.5:
                seen = status.MapStatus.of(folder)
                passed_over += lengths[-1] > 0
                kept = folder.summary.read_bytes()
                folder.summary.unlink()
                again = status.MapStatus.of(folder)
                assert replace(again, text="") == replace(seen, text="")
                # fields are in the order in which they were first read
                assert sorted(again.text.splitlines()) == sorted(seen.text.splitlines())
                folder.summary.write_bytes(kept)
    assert passed_over

from __future__ import annotations

import pytest

from daskmetrics.answer import status
from daskmetrics.core.errors import DataError
from daskmetrics.core.files import RunFolder
from daskmetrics.execution.map.api import open_journal, run
from daskmetrics.execution.map.folder import read_map
from daskmetrics.execution.map.source import make_spec


def twice(item: int) -> int:
    return 2 * item


def test_a_summary_is_kept_until_a_byte_of_the_map_changes(tmp_path, monkeypatch):
    computed = []
    monkeypatch.setattr(status, "read_map", lambda path: computed.append(1) or read_map(path))

    def look(new: int) -> status.MapStatus:
        computed.clear()
        seen = status.MapStatus.of(RunFolder(tmp_path))
        assert len(computed) == new and status.MapStatus.of(RunFolder(tmp_path)) == seen
        return seen

    for count in (4, 6):
        with open_journal(tmp_path) as journal:
            run(make_spec(twice, range(count)), None, journal)
        assert look(new=1).counts == {"ok": count} and look(new=0).finished
    lines = tmp_path / "journal.jsonl"
    content = lines.read_bytes()
    lines.write_bytes(content.replace(b'"value":2,', b'"value":3,'))
    with pytest.raises(DataError, match="is damaged"):
        status.MapStatus.of(RunFolder(tmp_path))
    lines.write_bytes(content)
    assert look(new=0).counts == {"ok": 6}
    (tmp_path / "journal.mark").write_bytes(b"0")
    assert look(new=1).counts == {"ok": 6}
    (tmp_path / "summary.json").write_text('{"items": 9}')
    assert look(new=1).items == 6
    (tmp_path / "items.jsonl").unlink()
    (tmp_path / "items.jsonl").mkdir()
    with pytest.raises(DataError, match="is missing"):
        status.MapStatus.of(RunFolder(tmp_path))

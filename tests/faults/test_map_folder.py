"""The folder of a map on real workers, while someone deletes, replaces or changes its files."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest

import daskmetrics as dm
from daskmetrics.core.errors import DataError
from daskmetrics.core.files import RunFolder
from daskmetrics.execution.journal import kept_of


@pytest.mark.parametrize("replace", [False, True])
def test_a_map_whose_journal_is_taken_away_ends_and_loses_nothing(client, tmp_path, replace):
    folder, once = RunFolder(tmp_path / "run"), tmp_path / "once"

    def square(item: int) -> int:
        with suppress(FileExistsError):
            if item == 5:
                once.touch(exist_ok=False)
                folder.journal.unlink()
                if replace:
                    folder.journal.write_bytes(b"")
        return item * item

    def run() -> dict[int, int]:
        options = {"client": client, "journal": folder.path, "version": "1", "batch_size": 2}
        return {result.index: result.value for result in dm.map(square, range(12), **options)}

    with pytest.raises(DataError, match=r"while this run wrote it.*mv "):
        run()
    kept_of(Path(folder.journal)).replace(folder.journal)
    assert run() == {i: i * i for i in range(12)}

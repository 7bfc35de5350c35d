from __future__ import annotations

import pytest

from daskmetrics.answer.recorded import RecordedRun
from daskmetrics.core.errors import DataError
from daskmetrics.core.files import RunFolder
from daskmetrics.core.holder import Holder
from daskmetrics.domain.training import TrainingStatus
from daskmetrics.execution import Journal


def test_a_run_that_is_prepared_says_why_its_training_waits(tmp_path):
    folder = RunFolder(tmp_path / "mine").create()
    notice = "mine has reported no step for 60 s."
    (folder.training / "mine").mkdir(parents=True)
    TrainingStatus("mine", 2, 0.0, Holder.this_process(), notice=notice).write(
        folder.training / "mine"
    )
    (folder.training / "other").mkdir()
    (folder.training / "other" / "status.json").write_text("[]")  # of another program
    with (
        Journal(folder.journal, folder.lock),
        pytest.raises(DataError, match=f"being prepared by .*{notice} Try again"),
    ):
        RecordedRun(folder.path)

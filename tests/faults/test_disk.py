"""A whole run whose files cannot grow, disappear or change, and a second driver; all as a user
meets them.
"""

from __future__ import annotations

import resource
import signal
from collections import Counter
from pathlib import Path

import pytest
import yaml

from daskmetrics import training
from daskmetrics.core.files import RunFolder
from daskmetrics.domain.record import Record
from daskmetrics.execution import Journal
from daskmetrics.execution.journal import read
from daskmetrics.experiment import maintenance as maintain
from tests.cli.calling import process, start, wait_until
from tests.faults.conftest import RECIPE

RUN = "run x.yaml"


@pytest.fixture
def place(tmp_path, suite) -> Path:
    """A folder with a configuration that measures them."""
    wanted = {
        "name": "x",
        "models": [{"name": "a", "source": str(suite)}],
        "corpus": {"prompts": 12},
        "metrics": ["effective_rank"],
        "cluster": {"workers": 1},
    }
    (tmp_path / "x.yaml").write_text(yaml.safe_dump(wanted))
    return tmp_path


def has_started(folder: RunFolder) -> bool:
    """Whether the journal knows a worker of this run."""
    return folder.journal.exists() and b'"type":"worker"' in folder.journal.read_bytes()


def test_a_run_without_room_says_so_and_a_repeat_finishes_it(place):
    folder = RunFolder(place / "runs" / "x")
    with process(place, "-m", "daskmetrics", *RUN.split()) as driver:
        wait_until(lambda: has_started(folder), driver)
        # less than its journal and its store need from here on
        resource.prlimit(driver.pid, resource.RLIMIT_FSIZE, (3000, 3000))
        message = next(line for line in driver.stderr if "The run pauses" in line)
        driver.send_signal(signal.SIGINT)
        said = message + driver.communicate(timeout=120)[1]
    assert driver.returncode != 0 and "Traceback" not in said, said
    before = list(read(folder.journal))
    again = start(place, RUN)
    assert again.returncode == 0, again.stderr
    entries = list(read(folder.journal))
    assert entries[: len(before)] == before
    recorded = Counter(entry.name for entry in entries if isinstance(entry, Record) and entry.ok)
    assert recorded == {f"a@{revision}": 1 for revision in training.revisions(RECIPE)}
    assert maintain.verify(folder).damages == ()


def test_a_deleted_journal_ends_the_run_until_it_is_put_back(place):
    folder = RunFolder(place / "runs" / "x")
    with process(place, "-m", "daskmetrics", *RUN.split()) as driver:
        wait_until(lambda: has_started(folder), driver)  # then its start is committed
        folder.journal.rename(place / "moved")
        said = driver.communicate(timeout=120)[1]
    assert driver.returncode != 0 and "was removed: stopped" in said, said
    assert "Traceback" not in said, said
    before = list(read(place / "moved"))
    refused = start(place, RUN)
    assert refused.returncode != 0 and "is missing, but" in refused.stderr
    (place / "moved").rename(folder.journal)
    assert start(place, RUN).returncode == 0
    entries = list(read(folder.journal))
    assert entries[: len(before)] == before and maintain.verify(folder).damages == ()
    check_config_and_prompts(place, folder)


def check_config_and_prompts(place: Path, folder: RunFolder) -> None:
    """That they were deleted or changed is seen, and `repair` and the same command write them
    again.
    """
    files = (folder.config, folder.corpus)
    before = [file.read_bytes() for file in files]
    for is_deleted in (True, False):
        for file in files:
            file.write_text("[]")
            if is_deleted:
                file.unlink()
        damaged = {damage.where for damage in maintain.verify(folder).damaged}
        assert damaged == {file.name for file in files}
        if is_deleted:
            maintain.repair(folder)
        else:
            start(place, RUN)
        assert [file.read_bytes() for file in files] == before
        assert not maintain.verify(folder).damages


def test_a_second_driver_is_told_who_drives_and_since_when(place):
    folder = RunFolder(place / "runs" / "x").create()
    with Journal(folder.journal, folder.lock):
        done = start(place, RUN)
    assert done.returncode == 2
    assert "is being driven by process" in done.stderr and " since 2" in done.stderr
    assert list(read(folder.journal)) == []

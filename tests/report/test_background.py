from __future__ import annotations

import threading

import pytest

from daskmetrics.core.errors import DataError
from daskmetrics.core.files import RunFolder
from daskmetrics.execution.stopping import stop_signals
from daskmetrics.report import BackgroundRun


def test_the_notebook_goes_on_and_leaving_the_block_waits(finished):
    go_on, begun = threading.Event(), threading.Event()

    def drive(display):
        display.phase("search", 3)
        display.advance("search", "a cell")
        begun.set()
        assert go_on.wait(60)

    with BackgroundRun(drive, finished.folder) as run:
        assert begun.wait(60) and run.running
        with pytest.raises(TimeoutError, match="still goes on: running"):
            run.wait(0.05)
        threading.Timer(0.2, go_on.set).start()
    assert run.state == "finished" and run.progress == {"search": "1 of 3"}
    assert run.wait().best().arm == finished.best().arm
    assert "1 of 3" in run._repr_html_()


def test_an_error_of_the_run_is_raised_on_leaving_the_block(tmp_path):
    def drive(display):
        display.message("[yellow]careful[/]")
        raise DataError("the texts are damaged")

    run = BackgroundRun(drive, RunFolder(tmp_path))
    with pytest.raises(DataError, match="the texts are damaged"), run:
        pass
    assert run.state == "failed: the texts are damaged" and "careful" in run._repr_html_()


def test_a_block_that_fails_stops_the_run(tmp_path):
    stopped = threading.Event()

    def drive(display):
        with stop_signals(lambda by_hand: stopped.set()):
            assert stopped.wait(60)
            raise KeyboardInterrupt

    with pytest.raises(ZeroDivisionError), BackgroundRun(drive, RunFolder(tmp_path)) as run:
        1 / 0  # noqa: B018
    assert not run.running and run.state == "stopped; the same call resumes it"

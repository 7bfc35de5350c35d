from __future__ import annotations

import faulthandler
import json
import subprocess
import sys

import pytest

from daskmetrics.execution._worker import Deadlines, last_words, trace_file

HANG = """
import ctypes, sys
from pathlib import Path
from daskmetrics.execution._worker import DEADLINES
with DEADLINES.within("slow", 60, Path(sys.argv[1])), DEADLINES.within("late", 0.5, Path(sys.argv[1])):
    ctypes.PyDLL(None).sleep(1000)
"""


@pytest.fixture
def armed(monkeypatch) -> list:
    """What the one timer of the process was armed for, lastly; empty if it is not."""
    calls: list = []
    monkeypatch.setattr(faulthandler, "cancel_dump_traceback_later", calls.clear)
    monkeypatch.setattr(
        faulthandler, "dump_traceback_later", lambda seconds, **_: calls.append(seconds)
    )
    return calls


def test_the_timer_is_armed_for_the_earliest_deadline(tmp_path, armed):
    now = 100.0
    deadlines, path = Deadlines(lambda: now), tmp_path / "scratch" / "trace"
    with deadlines.within("a", 10, path):
        assert armed == [10]
        now += 4
        with deadlines.within("b", 3, path):
            assert armed == [3] and json.loads(path.read_text()) == "b"
            with deadlines.within("c", None, path):
                assert armed == [3]
        assert armed == [6] and json.loads(path.read_text()) == "a"
        with deadlines.within("d", 60, path):
            assert armed == [6] and json.loads(path.read_text()) == "a"
    assert armed == []


def test_a_process_that_keeps_the_lock_is_ended_and_says_where(tmp_path):
    path = trace_file(tmp_path, "tcp://w")
    with Deadlines().within("kept", 60, path):
        pass
    assert last_words(tmp_path, "tcp://w") == last_words(tmp_path, "tcp://another") == {}
    done = subprocess.run([sys.executable, "-c", HANG, str(path)], timeout=60, check=False)
    assert done.returncode == 1
    words = last_words(tmp_path, "tcp://w")
    assert list(words) == ["late"] and 'File "<string>", line 6' in words["late"]
    assert not path.exists()

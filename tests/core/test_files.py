from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from daskmetrics.core import _files as files

WRITER = """
import sys, time
from pathlib import Path
from daskmetrics.core import _files as parts
folder = Path(sys.argv[1])
with parts.atomic_folder(folder / "step8") as part, parts.atomic_file(folder / "state.pt") as file:
    (part / "half").write_bytes(b"half")
    print("writing", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def writer(tmp_path):
    process = subprocess.Popen([sys.executable, "-c", WRITER, tmp_path], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "writing\n"
    yield process
    process.kill()
    process.communicate()


def test_partial_files_of_a_living_process_stay(writer, tmp_path):
    before = sorted(path.name for path in tmp_path.iterdir())
    files.remove_partial(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == before
    assert len(before) == 2


def test_partial_files_of_a_killed_process_are_removed(writer, tmp_path):
    os.kill(writer.pid, signal.SIGKILL)
    writer.wait()
    files.remove_partial(tmp_path)
    assert not list(tmp_path.iterdir())


def test_the_first_process_to_finish_wins(tmp_path):
    with files.atomic_folder(tmp_path / "a") as part:
        (part / "x").write_text("late")
        (tmp_path / "a").mkdir()
        (tmp_path / "a" / "x").write_text("early")
    assert (tmp_path / "a" / "x").read_text() == "early"
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_an_error_leaves_nothing(tmp_path):
    with pytest.raises(ValueError, match="half way"), files.atomic_file(tmp_path / "a") as file:
        file.write(b"half")
        raise ValueError("half way")
    assert not list(tmp_path.iterdir())

"""A second user of this machine: what one plants is neither run nor followed.

The second user is a real one, so that only root can run these tests.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from daskmetrics.cluster._certificates import PREFIX, KeyFolder, cluster_security
from daskmetrics.core.errors import ConfigError
from daskmetrics.core.files import OwnFolder, atomic_write

pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="only root can act as a second user")

# libraries import each of these, if there is one
MODULES = "cupy lz4 numpy pynvml snappy yaml"
PLANT = """
for name in {modules}; do
    echo 'open("{marks}/" + __name__, "a").close(); raise ImportError' > {folder}/$name.py
done
"""


def as_nobody(command: str) -> None:
    subprocess.run(["su", "nobody", "-s", "/bin/sh", "-c", command], check=True)


@pytest.fixture
def shared(tmp_path) -> Path:
    """A folder like ``/tmp``, which a second user reaches."""
    for folder in (tmp_path, *tmp_path.parents):
        if folder != Path("/tmp") and Path("/tmp") in folder.parents:
            folder.chmod(folder.stat().st_mode | 0o011)
    folder = tmp_path / "shared"
    folder.mkdir()
    folder.chmod(0o1777)
    return folder


def run_map(tmp_path: Path, cwd: Path, **variables: str) -> str:
    """Run a map of the first user, and return where its worker has temporary files."""
    (tmp_path / "step.py").write_text(
        "import tempfile\ndef step(item):\n    return tempfile.gettempdir()\n"
    )
    output = tmp_path / "out.json"
    command = (
        f"map {tmp_path}/step.py:step --iterations 1 --folder {tmp_path}/run --output {output}"
    )
    subprocess.run(
        # -P: otherwise Python itself puts the present folder first
        [sys.executable, "-P", "-m", "daskmetrics", *command.split(), "--workers", "1"],
        cwd=cwd,
        env={**os.environ, **variables},
        check=True,
        capture_output=True,
    )
    return output.read_text()


def plant_modules(shared: Path, folder: Path) -> Path:
    marks = shared / "marks"
    marks.mkdir()
    marks.chmod(0o777)
    as_nobody(PLANT.format(modules=MODULES, marks=marks, folder=folder))
    return marks


def test_modules_in_the_folder_of_dask_are_not_imported(tmp_path, shared):
    scratch = shared / "dask-scratch-space"
    as_nobody(f"mkdir -m 777 {scratch}")
    marks = plant_modules(shared, scratch)
    answer = run_map(tmp_path, tmp_path, TMPDIR=str(shared))
    assert f"{shared}/daskmetrics-run-" in answer
    assert not [*marks.iterdir()]
    assert {path.name for path in shared.iterdir()} == {"dask-scratch-space", "marks"}


def test_modules_in_a_shared_working_folder_are_not_imported(tmp_path, shared):
    marks = plant_modules(shared, shared)
    run_map(tmp_path, shared)
    assert not [*marks.iterdir()]


def test_temporary_files_need_a_folder_that_no_other_user_owns(shared):
    as_nobody(f"mkdir -m 1777 {shared}/theirs {shared}/open")
    with pytest.raises(ConfigError, match="Other users of this machine can replace files"):
        OwnFolder(shared / "theirs", "daskmetrics-run-")
    os.chown(shared / "open", 0, 0)
    OwnFolder(shared / "open", "daskmetrics-run-").remove()
    (shared / "open").chmod(0o777)
    with pytest.raises(ConfigError, match="chmod 700"):
        OwnFolder(shared / "open", "daskmetrics-run-")


def test_a_planted_lock_neither_empties_a_file_nor_is_waited_for(shared, tmp_path):
    (tmp_path / "precious").write_text("kept")
    as_nobody(
        f"mkdir -m 777 {shared}/{PREFIX}link {shared}/{PREFIX}pipe;"
        f"ln -s {tmp_path}/precious {shared}/{PREFIX}link/lock;"
        f"mkfifo -m 666 {shared}/{PREFIX}pipe/lock; ln -s {tmp_path} {shared}/{PREFIX}folder"
    )
    KeyFolder(shared, cluster_security()).remove()
    assert (tmp_path / "precious").read_text() == "kept"
    assert len([*shared.iterdir()]) == 3


def test_a_planted_partial_file_is_not_written_through(shared, tmp_path):
    (tmp_path / "precious").write_text("kept")
    shared.chmod(0o777)
    as_nobody(f"ln -s {tmp_path}/precious {shared}/.x.csv.{os.getpid()}.part")
    atomic_write(shared / "x.csv", "numbers")
    assert (tmp_path / "precious").read_text() == "kept"
    assert (shared / "x.csv").read_text() == "numbers"

from __future__ import annotations

import errno
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from daskmetrics.core import files as files
from daskmetrics.core.errors import ConfigError, DataError, StorageError, room_for

WRITER = """
import sys, time
from pathlib import Path
from daskmetrics.core import files as parts
folder = Path(sys.argv[1])
with parts.atomic_folder(folder / "step8") as part, parts.atomic_file(folder / "state.pt") as file:
    (part / "half").write_bytes(b"half")
    print("writing", flush=True)
    time.sleep(60)
"""


@pytest.mark.parametrize("place", ["/dev/null", "/dev/null/run", "/proc/run"])
def test_a_run_folder_that_cannot_be_created_is_reported(place):
    with pytest.raises(ConfigError, match=f"run folder '{place}' cannot .* another --folder"):
        files.RunFolder(Path(place)).create()


def test_a_folder_with_other_files_is_not_taken_over_for_a_run(tmp_path):
    folder = files.RunFolder(tmp_path / "mine")
    folder.path.mkdir(mode=0o755)
    (folder.path / "notes.txt").touch()
    with pytest.raises(ConfigError, match=r"mine' holds other files and no run\. Choose a new"):
        folder.create()
    assert folder.path.stat().st_mode & 0o777 == 0o755 and not folder.lock.exists()
    (folder.path / "notes.txt").unlink()
    folder.create()
    (folder.path / "data").mkdir()  # before there is a journal
    assert folder.create().path.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize(
    "number", [errno.EROFS, errno.EACCES, errno.EIO, errno.ESTALE, errno.ENOSPC]
)
def test_a_place_that_takes_no_writing_is_reported(number):
    with (
        pytest.raises(StorageError, match=r"Cannot write the journal .* Recorded results are safe"),
        room_for("the journal"),
    ):
        raise OSError(number, os.strerror(number))
    with pytest.raises(FileNotFoundError), room_for("the journal"):
        raise FileNotFoundError(errno.ENOENT, "gone")


def test_only_the_main_thread_changes_the_mask_of_the_process(tmp_path):
    before = os.umask(0o022)
    try:
        with files.private():
            (tmp_path / "own").touch()
        entered, left = threading.Event(), threading.Event()

        def work():
            with files.private():
                entered.set()
                left.wait()

        thread = threading.Thread(target=work)
        thread.start()
        entered.wait()
        (tmp_path / "of the user").touch()
        left.set()
        thread.join()
    finally:
        os.umask(before)
    assert (tmp_path / "own").stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "of the user").stat().st_mode & 0o777 == 0o644


def test_partial_files_stay_while_their_process_lives(tmp_path):
    command = [sys.executable, "-c", WRITER, tmp_path]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout.readline() == "writing\n"
        files.remove_partial(tmp_path)
        assert len(list(tmp_path.iterdir())) == 2
        writer.kill()
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


def _link(path: Path) -> None:
    path.symlink_to(path.with_name("precious"))


@pytest.mark.parametrize("plant", [_link, os.mkfifo], ids=["link", "pipe"])
@pytest.mark.parametrize("mode", ["ab", "wb"])
def test_what_stands_in_the_place_of_our_file_is_not_opened(tmp_path, plant, mode):
    (tmp_path / "precious").write_text("kept")
    plant(tmp_path / "log")
    with pytest.raises(DataError, match="in the place of a file of ours"):
        files.open_own(tmp_path / "log", mode)
    assert (tmp_path / "precious").read_text() == "kept"


def test_a_link_is_replaced_and_a_device_is_not(tmp_path):
    (tmp_path / "precious").write_text("kept")
    _link(tmp_path / "a")
    files.atomic_write(tmp_path / "a", "new")
    assert (tmp_path / "a").read_text() == "new" and not (tmp_path / "a").is_symlink()
    assert (tmp_path / "precious").read_text() == "kept"
    (tmp_path / "b").symlink_to("/dev/null")
    with pytest.raises(DataError, match="pipe, a socket or a device"):
        files.atomic_write(tmp_path / "b", "new")


def test_a_folder_that_cannot_get_its_name_is_an_error(tmp_path):
    (tmp_path / "a").write_text("a file")
    with pytest.raises(NotADirectoryError), files.atomic_folder(tmp_path / "a") as part:
        (part / "x").touch()
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


HOLDER = """
import sys, time
from pathlib import Path
from daskmetrics.core.files import OwnFolder
print(OwnFolder(Path(sys.argv[1]), "own-").path, flush=True)
time.sleep(60)
"""


def test_the_folder_of_a_killed_process_is_removed(tmp_path):
    command = [sys.executable, "-c", HOLDER, tmp_path]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        first = Path(process.stdout.readline().strip())
        second = files.OwnFolder(tmp_path, "own-")
        assert first.is_dir() and second.path.stat().st_mode & 0o777 == 0o700
        process.kill()
        process.wait()
    third = files.OwnFolder(tmp_path, "own-")
    assert {*tmp_path.iterdir()} == {second.path, third.path}
    second.remove()
    third.remove()
    assert not [*tmp_path.iterdir()]


def test_a_user_without_a_home_is_told_how_to_name_one(monkeypatch):
    for name in ("HOME", "DASKMETRICS_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os, "getuid", lambda: 54321)
    with pytest.raises(ConfigError, match="export HOME=FOLDER"):
        files.cache_folder()


def test_an_own_folder_is_removed_twice_without_harm(tmp_path):
    folder = files.OwnFolder(tmp_path, "own-")
    folder.remove()
    other = os.open(tmp_path / "other", os.O_WRONLY | os.O_CREAT)  # has the number of the lock
    folder.remove()
    os.close(other)
    assert [path.name for path in tmp_path.iterdir()] == ["other"]


def test_folders_of_others_may_go_while_they_are_listed(tmp_path):
    def come_and_go(_: int) -> None:
        for _ in range(50):
            files.OwnFolder(tmp_path, "own-").remove()

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(come_and_go, range(8)))
    assert not list(tmp_path.iterdir())

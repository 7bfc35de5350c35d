from __future__ import annotations

import errno
import fcntl
import json
import os
import resource
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from daskmetrics.core.errors import LockedError, StorageError
from daskmetrics.core.holder import Holder, born_of
from daskmetrics.execution.journal import (
    Journal,
    RunLock,
    holder,
    owner_file,
    unlock,
)

SLEEP = [sys.executable, "-c", "import sys; sys.stdin.read()"]


@pytest.fixture
def lock(tmp_path):
    return tmp_path / "lock"


def leave(lock, **changes) -> Holder:
    """A lock as another process left it."""
    left = replace(Holder.this_process(), **changes)
    owner_file(lock).write_text(json.dumps(asdict(left)))
    return left


def test_a_private_owner_file_keeps_the_lock_until_its_release(lock):
    run_lock = RunLock(lock)
    assert run_lock.notices == []
    assert owner_file(lock).stat().st_mode & 0o777 == 0o600
    assert str(os.getpid()) in str(holder(lock))
    with pytest.raises(LockedError, match="is alive"):
        unlock(lock)
    run_lock.check()
    run_lock.close()
    assert holder(lock) is None and not owner_file(lock).exists()


def test_the_lock_of_a_dead_process_is_taken_over_with_a_notice(lock):
    """Also of one that was killed and not yet waited for."""
    process = subprocess.Popen(SLEEP, stdin=subprocess.PIPE)
    leave(lock, pid=process.pid, born=born_of(process.pid))
    with pytest.raises(LockedError):
        RunLock(lock)
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # it has ended and stays a zombie
    RunLock(lock).close()
    process.communicate()
    # a later process may have the same number
    for changes in ({"pid": process.pid}, {"born": "another boot 17"}):
        left = leave(lock, **changes)
        run_lock = RunLock(lock)
        assert run_lock.notices == [f"Took the run over from {left}, which has ended."]
        run_lock.close()


@pytest.mark.parametrize("readable", [True, False])
def test_the_lock_of_another_machine_is_refused_until_unlocked(lock, readable):
    """So is one that cannot be read."""
    leave(lock, host="login2", pid=1)
    name = "process 1 on login2 since"
    if not readable:
        owner_file(lock).write_text("{")
        name = "an unknown machine"
    with pytest.raises(LockedError, match=f"{name} (?s:.*)daskmetrics runs unlock"):
        RunLock(lock)
    assert name in str(holder(lock)) and name in str(unlock(lock))
    assert unlock(lock) is None
    RunLock(lock).close()


def refuse(number: int):
    def call(*_):
        raise OSError(number, os.strerror(number))

    return call


def test_without_flock_the_owner_file_alone_keeps_others_out(lock, monkeypatch):
    monkeypatch.setattr(fcntl, "flock", refuse(errno.ENOSYS))
    run_lock = RunLock(lock)
    message = rf"process {os.getpid()} on .* That is this process: call stop\(\) or wait\(\)"
    with pytest.raises(LockedError, match=message):
        RunLock(lock)
    run_lock.close()
    RunLock(lock).close()


def test_the_owner_file_is_created_without_hard_links(lock, monkeypatch):
    monkeypatch.setattr(os, "link", refuse(errno.EPERM))
    run_lock = RunLock(lock)
    run_lock.check()
    run_lock.close()
    assert [path.name for path in lock.parent.iterdir()] == ["lock"]


def test_a_journal_that_may_open_no_file_frees_the_run_and_files(tmp_path):
    path, lock = tmp_path / "journal.jsonl", tmp_path / "lock"
    Journal(path, lock).close()
    most, hardest = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = os.open(os.devnull, os.O_RDONLY)  # every lower number is taken
    before = len(list(Path("/proc/self/fd").iterdir()))
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 2, hardest))
    try:
        with pytest.raises(StorageError, match="ulimit -n"):
            Journal(path, lock)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hardest))
        os.close(highest)
    assert len(list(Path("/proc/self/fd").iterdir())) == before - 1
    Journal(path, lock).close()

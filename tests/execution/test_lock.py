from __future__ import annotations

import errno
import fcntl
import json
import os
import subprocess
import sys
from dataclasses import asdict, replace

import pytest

from daskmetrics.core.errors import LockedError
from daskmetrics.execution._lock import Holder, Lease, holder, lease_of, unlock

SLEEP = [sys.executable, "-c", "import sys; sys.stdin.read()"]


@pytest.fixture
def lock(tmp_path):
    return tmp_path / "lock"


def leave(lock, **changes) -> Holder:
    """A lease as somebody else left it."""
    left = replace(Holder.this_process(), **changes)
    lease_of(lock).write_text(json.dumps(asdict(left)))
    return left


def dead_pid() -> int:
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    return process.pid


def test_a_lease_is_private_and_gone_when_it_is_released(lock):
    lease = Lease(lock)
    assert lease.notice is None
    assert lease_of(lock).stat().st_mode & 0o777 == 0o600
    assert str(os.getpid()) in str(holder(lock))
    lease.release()
    assert holder(lock) is None and not lease_of(lock).exists()


def test_the_lease_of_a_dead_process_is_taken_over_and_said(lock):
    left = leave(lock, pid=dead_pid())
    lease = Lease(lock)
    assert lease.notice == f"Took the run over from {left}, which has ended."
    lease.release()


def test_a_process_that_was_killed_and_not_yet_waited_for_is_dead(lock):
    process = subprocess.Popen(SLEEP, stdin=subprocess.PIPE)
    leave(lock, pid=process.pid, born=None)
    with pytest.raises(LockedError):
        Lease(lock)
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # it has ended and stays a zombie
    Lease(lock).release()
    process.communicate()


def test_a_later_process_of_the_same_number_is_not_the_holder(lock):
    leave(lock, born="another boot 17")
    Lease(lock).release()


def test_another_machines_lease_is_refused_until_unlock_removes_it(lock):
    left = leave(lock, host="login2", pid=1)
    with pytest.raises(LockedError, match=r"process 1 on login2 since .*\n?.*daskmetrics unlock"):
        Lease(lock)
    assert holder(lock) == str(left)
    assert unlock(lock) == str(left)
    assert unlock(lock) is None
    Lease(lock).release()


def test_a_lease_that_cannot_be_read_is_refused_until_unlock_removes_it(lock):
    lease_of(lock).write_text("{")
    with pytest.raises(LockedError, match="an unknown machine"):
        Lease(lock)
    assert "an unknown machine" in str(unlock(lock))
    Lease(lock).release()


def test_unlock_refuses_while_the_holder_lives(lock):
    lease = Lease(lock)
    with pytest.raises(LockedError, match="is alive"):
        unlock(lock)
    lease.check()
    lease.release()


def test_without_flock_the_lease_alone_keeps_others_out(lock, monkeypatch):
    def flock(*_):
        raise OSError(errno.ENOSYS, "no flock here")

    monkeypatch.setattr(fcntl, "flock", flock)
    lease = Lease(lock)
    with pytest.raises(LockedError, match=f"process {os.getpid()} on"):
        Lease(lock)
    lease.release()
    Lease(lock).release()


def test_without_hard_links_a_lease_is_made_all_the_same(lock, monkeypatch):
    def link(*_):
        raise PermissionError(errno.EPERM, "no hard links here")

    monkeypatch.setattr(os, "link", link)
    lease = Lease(lock)
    lease.check()
    lease.release()
    assert [path.name for path in lock.parent.iterdir()] == ["lock"]


def test_who_lost_the_lease_stops_and_leaves_the_new_one_alone(lock):
    lease = Lease(lock)
    lease_of(lock).unlink()
    with pytest.raises(LockedError, match="was removed"):
        lease.check()
    other = leave(lock, host="login2", nonce="other")
    with pytest.raises(LockedError, match="is held by"):
        lease.check()
    lease.release()
    assert holder(lock) == str(other)

from __future__ import annotations

import subprocess
import sys

import pytest

from daskmetrics.core.machine import oom_kills

LOST = """
import os, time
from distributed import Client
from daskmetrics.core.machine import thread_of
from daskmetrics.dashboard import Publisher

client = Client(processes=False, n_workers=1, dashboard_address=None)
try:
    with thread_of(client):
        raise RuntimeError("a fault of the program")
except RuntimeError as error:
    print(error)
client.loop.add_callback(client.loop.stop)
while not client.loop.asyncio_loop.is_closed():
    time.sleep(0.01)
try:
    with thread_of(client), Publisher(client, []):
        print("published")
except Exception as error:
    print(type(error).__name__, error, flush=True)
os._exit(0)
"""

ENDING = """
import asyncio, os, sys, threading
from distributed import Client
from daskmetrics.core.machine import workers

client = Client(processes=False, n_workers=1, dashboard_address=None)
begun, cancelled = threading.Event(), threading.Event()

async def takes_long_to_end():
    try:
        begun.set()
        await asyncio.sleep(600)
    finally:
        cancelled.set()
        await asyncio.sleep(2)

asyncio.run_coroutine_threadsafe(takes_long_to_end(), client.loop.asyncio_loop)
begun.wait()
print(len(workers(client)))
client.loop.add_callback(sys.exit)
cancelled.wait()
try:
    workers(client)
except Exception as error:
    print(type(error).__name__, error, flush=True)
os._exit(0)
"""


@pytest.mark.parametrize(
    ("line", "file", "text"),
    [
        ("0::/job_7", "job_7/memory.events", "oom 3\noom_kill 2\noom_group_kill 0\n"),
        ("4:memory:/job_7", "memory/job_7/memory.oom_control", "under_oom 0\noom_kill 2\n"),
        ("0::/job_7", "other/memory.events", "oom_kill 0\n"),
    ],
)
def test_the_kernel_counts_what_it_has_killed_for_memory(tmp_path, line, file, text):
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text(f"1:cpu:/\n{line}\n")
    counter = tmp_path / "sys/fs/cgroup" / file
    counter.parent.mkdir(parents=True)
    counter.write_text(text)
    assert oom_kills(tmp_path) == (0 if "other" in file else 2)


def test_a_client_whose_thread_has_ended_has_lost_its_scheduler():
    said = subprocess.run([sys.executable, "-c", LOST], capture_output=True, text=True, timeout=60)
    assert said.stdout.splitlines() == [
        "a fault of the program",
        "ClusterLostError The scheduler was lost. What was recorded is kept.",
    ]


def test_a_client_whose_thread_ends_is_not_waited_for():
    said = subprocess.run(
        [sys.executable, "-c", ENDING], capture_output=True, text=True, timeout=60
    )
    assert said.stdout.splitlines() == [
        "1",
        "ClusterLostError The scheduler does not answer (a thread of the client has ended).",
    ]

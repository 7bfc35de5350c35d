"""A map on real workers under a wall clock that jumps by three days either way.

libfaketime cannot do this: it also moves the sleeps of Python, which wait for the monotonic clock,
so that they fail after a step ahead of more than the uptime and last a day after a step back.
`jump.c` moves the wall clock alone.
"""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.cli.calling import a_worker

THREE_DAYS = 3 * 86_400
JOB = """
import time
def item(index):
    time.sleep(0.05)
    return index * index
"""


@pytest.mark.skipif(not shutil.which("cc"), reason="needs a C compiler")
def test_a_clock_that_jumps_stops_no_map_and_no_new_worker(tmp_path):
    clock, preload = tmp_path / "clock", tmp_path / "jump.so"
    journal = tmp_path / "run" / "journal.jsonl"
    source = Path(__file__).with_name("jump.c")
    subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-o", preload, source, "-ldl"], check=True)
    (tmp_path / "job.py").write_text(JOB)
    clock.write_bytes(struct.pack("q", 0))
    words = "map job.py:item --iterations 120 --batch-size 4 --folder run --output r.csv"
    command = [sys.executable, "-m", "daskmetrics", *words.split()]
    environment = {**os.environ, "LD_PRELOAD": str(preload), "JUMP": str(clock)}
    driver = subprocess.Popen(command, cwd=tmp_path, env=environment)
    for length, jump in ((3000, THREE_DAYS), (6000, -THREE_DAYS), (9000, 0)):
        while driver.poll() is None and not (journal.exists() and journal.stat().st_size > length):
            time.sleep(0.05)
        assert driver.poll() is None
        with clock.open("r+b") as file:
            file.write(struct.pack("q", jump))
        a_worker(driver).kill()  # the next one begins with the clock as it is now
    assert driver.wait(timeout=300) == 0
    rows = (tmp_path / "r.csv").read_text().splitlines()[1:]
    assert len(rows) == 120
    assert {row.split(",")[2] for row in rows} == {"ok"}

from __future__ import annotations

import pytest

from daskmetrics.core.machine import oom_kills


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

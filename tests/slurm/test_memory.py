"""Kills for memory on a real Slurm: further jobs get more, and the unit is done there."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from daskmetrics import config
from daskmetrics.cluster import connect
from daskmetrics.domain.events import AttemptFailed
from daskmetrics.domain.record import Record
from daskmetrics.execution import Journal, Settings, Sweep, WorkUnit, run
from daskmetrics.execution.map.api import run as run_map
from daskmetrics.execution.map.source import MapOptions, make_spec
from tests.slurm import units
from tests.slurm.site import command, needs_slurm, no_job_is_left, profile, site

GROUP = Path("/sys/fs/cgroup/memory/memory.oom_control")
enforced = pytest.mark.skipif(
    not os.access(GROUP, os.W_OK),
    reason="needs root and control groups (version 1) for Slurm to enforce memory",
)
pytestmark = needs_slurm


@pytest.fixture(scope="module")
def enforcing(tmp_path_factory) -> Iterator[Path]:
    """A Slurm that gives each job a control group, in which the kernel enforces the job's memory."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SLURM_TEST_TASKS", "task/cgroup")
        with site(tmp_path_factory.mktemp("enforcing")) as folder:
            yield folder


def grown(
    place: Path, folder: Path, **changes: object
) -> tuple[list[Record | AttemptFailed], list[str], set[str]]:
    """A run of a unit of 550 MiB where jobs begin with 500 MiB: what the journal holds, messages,
    memory of jobs.
    """
    cluster = config.cluster(
        profile(place, workers=1, memory="500MiB", max_memory="2GiB", **changes)
    )
    messages: list[str] = []
    unit = WorkUnit("u", "u", "fill", units.fill, (str(folder), 550, 7), resources={"GPU": 1})
    with (
        connect(cluster, "memory", messages.append) as client,
        Journal(folder / "journal.jsonl", folder / "lock") as journal,
    ):
        run(Sweep([unit]), client, journal, Settings(most_memory=cluster.most_memory))
        entries = [entry for entry in journal.entries if isinstance(entry, Record | AttemptFailed)]
        memory = set(
            command("squeue", "-h", "--states=all", "--name=daskmetrics-memory", "-o", "%m").split()
        )
    assert no_job_is_left()
    return entries, messages, memory


@pytest.mark.parametrize("killer", ["nanny", pytest.param("kernel", marks=enforced)])
def test_a_unit_that_needs_more_memory_runs_in_a_job_that_has_it(request, tmp_path, killer):
    place = request.getfixturevalue("slurm" if killer == "nanny" else "enforcing")
    exports = {} if killer == "nanny" else {"DASK_DISTRIBUTED__WORKER__MEMORY__TERMINATE": "False"}
    entries, messages, memory = grown(place, tmp_path, exports=exports)
    *failed, record = entries
    assert isinstance(record, Record) and record.ok and record.value == 7, (entries, messages)
    # where the report of the kill comes late, the worker seems to have died
    assert failed and {each.fault for each in failed} <= {"memory", "death"}
    assert [
        line for line in messages if "killed for its memory: further jobs get 1000MiB" in line
    ], messages
    assert memory == {"500M", "1000M"}


def test_an_item_of_a_map_waits_for_a_job_that_has_the_memory(slurm, tmp_path):
    cluster = config.cluster(profile(slurm, workers=1, memory="500MiB", max_memory="2GiB"))
    spec = make_spec(partial(units.fill, str(tmp_path), 550), [7], MapOptions(1, 1, None))
    with (
        connect(cluster, "memory") as client,
        Journal(tmp_path / "journal.jsonl", tmp_path / "lock") as journal,
    ):
        [result] = run_map(spec, client, journal, most_memory=cluster.most_memory)
        faults = {entry.fault for entry in journal.entries if isinstance(entry, AttemptFailed)}
    assert result.ok and result.value == 7 and (result.attempts == 1 or "death" in faults), (
        result,
        faults,
    )
    assert no_job_is_left()

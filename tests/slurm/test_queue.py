"""The output of Slurm's commands as values: of a real Slurm, and of recorded texts."""

from __future__ import annotations

import pytest

from daskmetrics import config
from daskmetrics.cluster.slurm.commands import (
    SlurmError,
    SlurmRefusal,
    parse_queue,
    queue,
    rehearse,
)
from daskmetrics.cluster.slurm.commands import slurm as ask
from daskmetrics.cluster.slurm.script import pools, script
from tests.slurm.site import command, needs_slurm, no_job_is_left, profile


@pytest.mark.parametrize(
    ("left", "seconds"),
    [
        ("1-02:03:04", 93784),
        ("2:03:04", 7384),
        ("9:59", 599),
        ("UNLIMITED", None),
        ("INVALID", None),
    ],
)
def test_the_time_left_is_parsed(left, seconds):
    assert parse_queue(f"7|RUNNING|N/A|{left}|gpu0|None")[0].left == seconds


def test_a_reason_may_contain_any_character():
    [row] = parse_queue("7|PENDING|N/A|1:00||ReqNodeNotAvail, UnavailableNodes:gpu[0-3]|x")
    assert (
        row.reason == "ReqNodeNotAvail, UnavailableNodes:gpu[0-3]|x" and row.pending and row.alive
    )


class TestReal:
    pytestmark = needs_slurm

    def test_pending_and_ended_jobs_are_shown(self, slurm):
        held = command(
            "sbatch", "--parsable", "--hold", "--job-name=daskmetrics-x", "--wrap=true"
        ).strip()
        [row] = queue("daskmetrics-x")
        assert (row.id, row.state, row.reason) == (held, "PENDING", "JobHeldUser")
        assert row.alive and queue("daskmetrics-y") == ()
        command("scancel", held)
        assert no_job_is_left()
        [row] = queue("daskmetrics-x")
        assert (row.state, row.alive) == ("CANCELLED", False)

    def test_a_job_is_rehearsed(self, slurm):
        start = rehearse(script(*pools(config.cluster(profile(slurm, gpus_per_job=4)))))
        assert start is not None
        long = config.cluster(profile(slurm, walltime="9-00:00:00"))
        with pytest.raises(SlurmRefusal, match="Requested time limit is invalid"):
            rehearse(script(*pools(long)))

    def test_a_refusal_is_reported_with_slurms_message(self, slurm):
        with pytest.raises(SlurmError, match="Invalid job id specified"):
            ask("scontrol", "show", "job", "999999")

"""Decisions about jobs, one snapshot after the other, without Slurm and clock; with a real Slurm in
tests/slurm.
"""

from __future__ import annotations

from dataclasses import replace

from daskmetrics.cluster.slurm._jobs import (
    Cancel,
    Drain,
    Job,
    JobSet,
    Report,
    Rules,
    Snapshot,
    Stop,
    SubmitJobs,
    decide,
)
from daskmetrics.cluster.slurm.batch import QueuedJob


class Bench:
    """A pool and a queue that carries out its actions."""

    def __init__(self, target: int = 2, **rules) -> None:
        self.rules, self.target = Rules(**rules), target
        self.jobs, self.now, self.number = JobSet(), 0.0, 0
        self.queue: dict[str, QueuedJob] = {}
        self.workers: dict[str, int] = {}
        self.draining: set[str] = set()
        self.killed: set[str] = set()

    def step(self, after: float = 30.0) -> list:
        self.now += after
        snapshot = Snapshot(
            self.now,
            dict(self.queue),
            dict(self.workers),
            frozenset(self.draining),
            frozenset(self.killed),
        )
        self.jobs, actions = decide(self.jobs, snapshot, self.rules, self.target)
        for action in actions:
            if isinstance(action, SubmitJobs):
                self.submit(action.count)
            if isinstance(action, Cancel):
                for job in action.jobs:
                    self.end(job.id, "CANCELLED")
        return list(actions)

    def submit(self, count: int) -> None:
        for _ in range(count):
            self.number += 1
            job = str(self.number)
            self.jobs = self.jobs.with_job(Job(job, f"gpu-{job}", self.now, step=self.jobs.step))
            self.queue[job] = QueuedJob(
                job, "daskmetrics-x", "PENDING", "Priority", None, 3600, "", "gpu"
            )

    def run(self, *jobs: str, arrive: bool = True) -> None:
        for job in jobs:
            self.queue[job] = replace(
                self.queue[job], state="RUNNING", nodes=f"node{job}", reason=""
            )
            if arrive:
                names = [f"gpu-{job}-{i}" for i in range(self.rules.processes)]
                self.workers |= dict.fromkeys(
                    names if self.rules.processes > 1 else [f"gpu-{job}"], 0
                )

    def end(self, job: str, state: str, reason: str = "") -> None:
        self.queue[job] = replace(self.queue[job], state=state, reason=reason)
        self.workers = {
            name: tasks for name, tasks in self.workers.items() if name.split("-")[1] != job
        }

    def kinds(self, after: float = 30.0) -> list[type]:
        return [type(action) for action in self.step(after)]

    def ids(self) -> list[str]:
        return [job.id for job in self.jobs.jobs]


def test_nothing_is_done_while_all_jobs_run():
    bench = Bench(target=3)
    assert bench.step() == [SubmitJobs(3)]
    assert bench.step() == []
    bench.run("1", "2", "3")
    assert bench.step() == [] and bench.jobs.failed == 0


def test_a_lost_job_is_replaced_and_its_end_reported():
    bench = Bench()
    bench.step()
    bench.run("1", "2")
    bench.step()
    bench.end("2", "NODE_FAIL")
    assert bench.step() == [Report("Job 2 ended as NODE_FAIL on node2."), SubmitJobs(1)]
    assert bench.ids() == ["1", "3"] and bench.jobs.failed == 0


def test_jobs_that_end_alike_are_reported_in_one_line():
    bench = Bench(target=12)
    bench.step()
    bench.run(*(str(i) for i in range(1, 13)))
    bench.step()
    for i in range(1, 13):
        del bench.queue[str(i)]
    (report, more) = bench.step()
    assert report == Report(
        "12 jobs, 1, 2, 3, 4, 5, 6, 7, 8 and 4 more: each is no longer in the queue."
    )
    assert more == SubmitJobs(12)


def test_a_job_submitted_after_the_snapshot_is_not_lost():
    bench = Bench(target=1)
    bench.step()
    bench.queue.clear()
    old = Snapshot(0.0, {})
    assert decide(bench.jobs, old, bench.rules, 1) == (bench.jobs, ())


def test_failing_jobs_are_retried_at_growing_intervals_and_then_the_cluster_stops():
    bench = Bench(target=1, failures=3, pause=10.0)
    bench.step()
    tries = []
    for _ in range(40):
        bench.end(str(bench.number), "FAILED", "NonZeroExitCode")
        actions = bench.step(after=5.0)
        tries += [bench.now] * (SubmitJobs(1) in actions)
        if actions and isinstance(actions[-1], Stop):
            break
    assert tries == [55.0, 100.0]
    assert actions[-1].reason.startswith(
        "3 jobs in a row failed; the last: job 3 ended as FAILED (NonZero"
    )
    assert actions[-1].job.id == "3"


def test_if_all_jobs_fail_at_once_the_cluster_stops_at_once():
    bench = Bench(target=8)
    bench.step()
    for i in range(1, 9):
        bench.end(str(i), "FAILED")
    assert bench.kinds() == [Report, Stop]


def test_while_other_jobs_work_single_jobs_are_retried_periodically():
    bench = Bench(target=8, failures=2, pause=10.0)
    bench.step()
    bench.run("1")
    bench.step()
    for i in range(2, 9):
        bench.end(str(i), "FAILED")
    assert bench.kinds() == [Report]
    assert bench.step(after=3600) == [SubmitJobs(1)]
    bench.run("9")
    assert bench.step() == [SubmitJobs(6)], "jobs start again"


def test_a_job_whose_worker_never_arrives_is_replaced():
    bench = Bench(target=1, connect_within=100.0)
    bench.step()
    bench.run("1", arrive=False)
    assert [bench.step() for _ in range(4)] == [[]] * 4
    report, cancelled = bench.step()
    assert report == Report("Job 1 on node1 has run for 100 s, but its worker did not arrive.")
    assert [job.id for job in cancelled.jobs] == ["1"] and bench.jobs.failed == 1
    assert bench.step() == [SubmitJobs(1)]


def test_a_requeued_job_is_kept():
    bench = Bench(target=1, connect_within=100.0)
    bench.step()
    bench.run("1")
    bench.step()
    bench.end("1", "PENDING", "BeginTime")
    assert [bench.step() for _ in range(5)] == [[]] * 5


def test_before_its_time_limit_a_job_is_replaced_then_drained_then_cancelled():
    bench = Bench(target=1, lead=600.0, early=60.0)
    bench.step()
    bench.run("1")
    bench.workers["gpu-1"] = 1
    bench.queue["1"] = replace(bench.queue["1"], left=500)
    assert bench.step() == [SubmitJobs(1)]
    bench.run("2")
    bench.queue["1"] = replace(bench.queue["1"], left=50)
    assert bench.kinds() == [Drain]
    assert bench.step() == [], "it has a unit to finish"
    bench.workers["gpu-1"] = 0
    (cancelled,) = bench.step()
    assert [job.id for job in cancelled.jobs] == ["1"]
    assert bench.step() == [] and bench.ids() == ["2"] and bench.jobs.failed == 0


def test_a_job_on_a_draining_node_is_cancelled_once_its_unit_is_done():
    bench = Bench(target=1)
    bench.step()
    bench.run("1")
    bench.workers["gpu-1"] = 1
    bench.draining.add("node1")
    assert bench.kinds() == [Drain, SubmitJobs]
    bench.workers["gpu-1"] = 0
    assert bench.kinds() == [Cancel]


def test_a_whole_node_job_that_lost_a_worker_is_replaced():
    bench = Bench(target=8, processes=4, connect_within=100.0)
    assert bench.step() == [SubmitJobs(2)]
    bench.run("1", "2")
    bench.step()
    del bench.workers["gpu-1-3"]
    bench.workers["gpu-1-0"] = 1
    assert [bench.step() for _ in range(4)] == [[]] * 4
    assert bench.kinds() == [Drain, SubmitJobs]
    assert bench.step() == []
    bench.workers["gpu-1-0"] = 0
    assert bench.kinds() == [Cancel]


def test_scaling_down_releases_idle_jobs_first():
    """Jobs in the queue are cancelled first, then idle ones; a busy one finishes its unit."""
    bench = Bench(target=4)
    bench.step()
    bench.run("1", "2", "3")
    bench.workers |= {"gpu-1": 2, "gpu-2": 0, "gpu-3": 1}
    bench.step()
    bench.target = 1
    cancelled, drained = bench.step()
    assert {job.id for job in cancelled.jobs} == {"4", "2"} and [
        job.id for job in drained.jobs
    ] == ["3"]
    assert bench.step() == []
    bench.workers["gpu-3"] = 0
    assert bench.kinds() == [Cancel] and bench.ids() == ["1"]


MEMORIES = ("4GiB", "8.00 GiB", "12GiB")
GROWN = "A worker was killed for its memory: further jobs get {} per worker."


def test_a_job_that_slurm_killed_for_memory_is_replaced_by_one_with_more():
    bench = Bench(target=2, memories=MEMORIES)
    bench.step()
    bench.run("1", "2")
    bench.step()
    bench.end("1", "OUT_OF_MEMORY")
    end = Report("Job 1 ended as OUT_OF_MEMORY on node1.")
    assert bench.step() == [end, Report(GROWN.format("8.00 GiB")), SubmitJobs(1)]
    assert bench.step() == [] and [job.step for job in bench.jobs.jobs] == [0, 1]


def test_a_job_whose_worker_was_killed_for_memory_ends_and_is_replaced_by_one_with_more():
    bench = Bench(target=2, memories=MEMORIES, processes=2)
    bench.target = 4
    bench.step()
    bench.run("1", "2")
    bench.workers["gpu-1-1"] = 1
    bench.step()
    bench.killed = {"gpu-1-0"}
    (report, drain, submit) = bench.step()
    assert report == Report(GROWN.format("8.00 GiB")) and submit == SubmitJobs(1)
    assert [job.id for job in drain.jobs] == ["1"] and bench.step() == []
    bench.workers["gpu-1-1"] = 0
    assert bench.kinds() == [Cancel] and bench.ids() == ["2", "3"]


def test_jobs_of_one_memory_that_are_killed_one_after_the_other_ask_for_more_once():
    bench = Bench(target=3, memories=MEMORIES)
    bench.step()
    bench.run("1", "2", "3")
    bench.step()
    for job in "123":
        bench.end(job, "OUT_OF_MEMORY")
        bench.step()
    assert [job.step for job in bench.jobs.jobs] == [1, 1, 1]
    bench.run("4", "5", "6")
    bench.step()
    bench.end("4", "OUT_OF_MEMORY")
    assert Report(GROWN.format("12GiB")) in bench.step()
    bench.run("7")
    bench.step()
    bench.end("7", "OUT_OF_MEMORY")
    assert bench.step() == [Report("Job 7 ended as OUT_OF_MEMORY on node7."), SubmitJobs(1)]
    assert bench.jobs.step == 2, "there is no more"


def test_surplus_jobs_with_less_memory_are_released_first():
    bench = Bench(target=2, memories=MEMORIES)
    bench.step()
    bench.run("1", "2")
    bench.step()
    bench.end("1", "OUT_OF_MEMORY")
    bench.step()
    bench.target = 1
    bench.step()
    assert bench.ids() == ["3"]

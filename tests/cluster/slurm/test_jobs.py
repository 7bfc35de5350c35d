"""Decisions about jobs, one snapshot after the other, without Slurm and clock; with a real Slurm in
tests/slurm.
"""

from __future__ import annotations

from dataclasses import replace

from daskmetrics.cluster.slurm._jobs import (
    Job,
    JobFailure,
    JobSet,
    PoolDecision,
    Rules,
    Snapshot,
    decide,
)
from daskmetrics.cluster.slurm.commands import QueuedJob


class Bench:
    """A pool and a queue that carries out its actions."""

    def __init__(self, target: int = 2, **rules) -> None:
        self.rules, self.target = Rules(**rules), target
        self.jobs, self.now, self.number = JobSet(), 0.0, 0
        self.queue: dict[str, QueuedJob] = {}
        self.workers: dict[str, int] = {}
        self.arrivals: set[str] = set()
        self.draining: set[str] = set()
        self.killed: set[str] = set()
        self.refused: set[str] = set()
        self.node: str | None = None  # where all jobs run

    def step(self, after: float = 30.0, queue: dict[str, QueuedJob] | None = None) -> PoolDecision:
        """The decision after some seconds; ``queue`` is what a queue that lies shows."""
        self.now += after
        snapshot = Snapshot(
            self.now,
            dict(self.queue if queue is None else queue),
            dict(self.workers),
            frozenset(self.arrivals | self.workers.keys()),
            frozenset(self.draining),
            frozenset(self.killed),
            frozenset(self.refused),
        )
        decision = decide(self.jobs, snapshot, self.rules, self.target)
        self.jobs = decision.jobs
        for job in decision.cancel:
            if job.id in self.queue:
                self.end(job.id, "CANCELLED")
        for _ in range(decision.submit):
            self.number += 1
            number = str(self.number)
            job = Job(number, f"gpu-{number}", self.now, step=self.jobs.step)
            self.jobs = replace(self.jobs, jobs=(*self.jobs.jobs, job))
            self.queue[number] = QueuedJob(number, "PENDING", "Priority", None, 3600, "")
        return decision

    def is_quiet(self, after: float = 30.0) -> bool:
        """Whether nothing is done and nothing said at the next step."""
        decision = self.step(after)
        return not (decision.submit or decision.cancel or decision.lines or decision.stop)

    def run(self, *jobs: str, arrive: bool = True) -> None:
        for job in jobs:
            self.queue[job] = replace(
                self.queue[job], state="RUNNING", nodes=self.node or f"node{job}", reason=""
            )
            names = [f"gpu-{job}"]
            if self.rules.processes > 1:
                names = [f"gpu-{job}-{i}" for i in range(self.rules.processes)]
            if arrive:
                self.workers |= dict.fromkeys(names, 0)

    def end(self, job: str, state: str, reason: str = "") -> None:
        self.queue[job] = replace(self.queue[job], state=state, reason=reason)
        self.arrivals |= self.workers.keys()
        self.workers = {
            name: tasks for name, tasks in self.workers.items() if name.split("-")[1] != job
        }

    def ids(self) -> list[str]:
        return [job.id for job in self.jobs.jobs]

    def drained(self) -> list[str]:
        return [job.id for job in self.jobs.jobs if job.drained]


def started(target: int = 2, **rules) -> Bench:
    """A pool all of whose jobs run, with their workers."""
    bench = Bench(target, **rules)
    bench.step()
    bench.run(*bench.ids())
    bench.step()
    return bench


def cancelled(decision: PoolDecision) -> list[str]:
    return [job.id for job in decision.cancel]


def test_jobs_that_end_alike_are_reported_in_one_line():
    bench = started(target=12)
    for i in range(1, 13):
        bench.end(str(i), "PREEMPTED")
        bench.queue[str(i)] = replace(bench.queue[str(i)], nodes="")
    decision = bench.step()
    assert decision.lines == (
        "12 jobs, 1, 2, 3, 4, 5, 6, 7, 8 and 4 more: each ended as PREEMPTED.",
    )
    assert decision.submit == 12


def test_a_worker_that_lived_between_two_readings_is_no_failure():
    bench = Bench(target=6, failures=5)
    bench.step()
    bench.run(*bench.ids())
    for job in bench.ids():
        bench.end(job, "CANCELLED")
    decision = bench.step()
    assert decision.stop is None and decision.submit == 6 and bench.jobs.failed == 0


def test_a_job_that_lost_its_worker_asks_for_a_reading_soon():
    bench = started(target=1)
    bench.arrivals |= bench.workers.keys()
    bench.workers.clear()
    assert bench.is_quiet() and bench.jobs.is_unsettled, "the queue still shows it as running"
    bench.end("1", "NODE_FAIL")
    assert bench.step().submit == 1 and not bench.jobs.is_unsettled


def test_a_connected_worker_outweighs_a_queue_without_its_job():
    bench = Bench(target=4)
    bench.step()
    for _ in range(2):  # a cached queue of before the submission
        assert bench.step(10, queue={}).submit == 0
    bench.run(*bench.ids())
    for _ in range(20):
        decision = bench.step(30, queue={})
        assert not (decision.submit or decision.lines) and not bench.jobs.is_unsettled
    assert bench.is_quiet() and len(bench.ids()) == 4


def test_a_workerless_job_missing_twice_after_a_minute_is_lost():
    bench = Bench(target=1, appear_within=60.0)
    bench.step()
    assert bench.step(20, queue={}).submit == 0 == bench.step(20, queue={}).submit
    assert bench.is_quiet(30), "it appeared"
    assert bench.step(30, queue={}).submit == 0
    decision = bench.step(30, queue={})
    assert decision.lines == ("Job 1 is no longer in the queue.",)
    assert bench.jobs.failed == 1


def test_failing_jobs_are_retried_ever_later_and_end_the_cluster():
    bench = Bench(target=1, failures=3, pause=10.0)
    bench.step()
    tries = []
    for _ in range(40):
        bench.end(str(bench.number), "FAILED", "NonZeroExitCode")
        decision = bench.step(after=5.0)
        tries += [bench.now] * decision.submit
        if decision.stop:
            break
    assert tries == [55.0, 100.0]
    assert decision.stop.reason.startswith(
        "3 jobs in a row failed; the last: job 3 ended as FAILED (NonZero"
    )
    assert decision.stop.job.id == "3"


def test_a_node_that_breaks_two_jobs_is_excluded_without_a_stop():
    bench = Bench(target=8)
    bench.step()
    bench.node = "bad"
    bench.run(*bench.ids(), arrive=False)
    bench.step()
    for job in bench.ids():
        bench.end(job, "FAILED")
    decision = bench.step()
    assert not decision.stop and bench.jobs.failed == 2
    assert bench.jobs.excluded == ("bad",)
    assert [job.node for job in decision.newly_excluded] == ["bad"]
    assert bench.step().submit == 8
    bench.end("9", "FAILED")  # it had been sent there before
    assert not bench.step().newly_excluded and bench.jobs.excluded == ("bad",)


def test_jobs_that_others_cancel_at_their_start_blame_no_node():
    bench = Bench(target=2)
    bench.node = "gpu0"
    bench.step()
    bench.run(*bench.ids(), arrive=False)
    bench.step()
    for state in ("COMPLETING", "CANCELLED"):
        for job in ("1", "2"):
            bench.end(job, state)
        assert not bench.step().newly_excluded
    assert bench.step().submit == 2 and bench.jobs.excluded == ()


def test_a_job_requeued_before_its_worker_came_is_not_replaced():
    bench = Bench(target=1)
    bench.step()
    bench.run("1", arrive=False)
    for state in ("COMPLETING", "PENDING", "RUNNING"):
        bench.end("1", state)
        assert bench.is_quiet()
    assert bench.ids() == ["1"]


def test_a_replaced_job_is_cancelled_since_slurm_may_requeue_it():
    bench = started(target=1)
    bench.end("1", "COMPLETING")
    decision = bench.step()
    assert cancelled(decision) == ["1"] and decision.submit == 1


def test_refusals_end_the_cluster_only_when_patience_ends():
    refused, rules = JobSet(), Rules(patience=600)
    for now in range(10):
        refused = refused.with_failures([JobFailure("Slurm refused it")], now, rules)
    assert decide(refused, Snapshot(599, {}), rules, 1).stop is None
    stop = decide(refused, Snapshot(600, {}), rules, 1).stop
    assert stop and "10 jobs in a row failed; the last: Slurm refused it." in stop.reason


def test_a_job_whose_worker_is_refused_ends_and_blames_its_node():
    bench = Bench(target=2)
    bench.step()
    bench.run("1")
    bench.node = "old"
    for number in (2, 3):
        bench.run(str(number))
        bench.step()
        bench.refused.add(f"gpu-{number}")
        decision = bench.step()
        line = f"Job {number} on old was refused: its worker has other versions than the driver."
        assert decision.lines == (line,) and cancelled(decision) == [str(number)]
        assert bench.step().submit == 1 and not decision.stop
    assert bench.jobs.excluded == ("old",)


def test_while_others_work_single_jobs_are_retried_periodically():
    bench = Bench(target=8, failures=2, pause=10.0)
    bench.step()
    bench.run("1")
    bench.step()
    for i in range(2, 9):
        bench.end(str(i), "FAILED")
    decision = bench.step()
    assert not decision.stop and not decision.submit
    assert bench.step(after=3600).submit == 1
    bench.run("9")
    assert bench.step().submit == 6, "jobs start again"


def test_a_job_whose_worker_never_arrives_is_replaced():
    bench = Bench(target=1, connect_within=100.0)
    bench.step()
    bench.run("1", arrive=False)
    assert all(bench.is_quiet() for _ in range(4))
    decision = bench.step()
    assert decision.lines == ("Job 1 on node1 has run for 100 s, but its worker did not arrive.",)
    assert cancelled(decision) == ["1"] and bench.jobs.failed == 1
    assert bench.step().submit == 1


def test_a_requeued_job_is_kept():
    bench = started(target=1, connect_within=100.0)
    bench.end("1", "PENDING", "BeginTime")
    assert all(bench.is_quiet() for _ in range(5))


def test_a_job_short_of_time_is_replaced_drained_then_cancelled():
    bench = Bench(target=1, lead=600.0, early=60.0)
    bench.step()
    bench.run("1")
    bench.workers["gpu-1"] = 1
    bench.queue["1"] = replace(bench.queue["1"], left=500)
    assert bench.step().submit == 1 and bench.drained() == []
    bench.run("2")
    bench.queue["1"] = replace(bench.queue["1"], left=50)
    assert bench.is_quiet() and bench.drained() == ["1"]
    assert bench.is_quiet(), "it has a unit to finish"
    bench.workers["gpu-1"] = 0
    assert cancelled(bench.step()) == ["1"]
    assert bench.is_quiet() and bench.ids() == ["2"] and bench.jobs.failed == 0


def test_a_job_on_a_draining_node_is_cancelled_after_its_unit():
    bench = Bench(target=1)
    bench.step()
    bench.run("1")
    bench.workers["gpu-1"] = 1
    bench.draining.add("node1")
    assert bench.step().submit == 1 and bench.drained() == ["1"]
    bench.workers["gpu-1"] = 0
    assert cancelled(bench.step()) == ["1"]


def test_a_whole_node_job_that_lost_a_worker_is_replaced():
    bench = Bench(target=8, processes=4, connect_within=100.0)
    assert bench.step().submit == 2
    bench.run("1", "2")
    bench.step()
    del bench.workers["gpu-1-3"]
    bench.workers["gpu-1-0"] = 1
    assert all(bench.is_quiet() for _ in range(4))
    assert bench.step().submit == 1 and bench.drained() == ["1"]
    assert bench.is_quiet() and not bench.jobs.is_unsettled
    bench.workers["gpu-1-0"] = 0
    assert cancelled(bench.step()) == ["1"]


def test_scaling_down_releases_idle_jobs_first():
    """Jobs in the queue are cancelled first, then idle ones; a busy one finishes its unit."""
    bench = Bench(target=4)
    bench.step()
    bench.run("1", "2", "3")
    bench.workers |= {"gpu-1": 2, "gpu-2": 0, "gpu-3": 1}
    bench.step()
    bench.target = 1
    assert set(cancelled(bench.step())) == {"4", "2"} and bench.drained() == ["3"]
    assert bench.is_quiet()
    bench.workers["gpu-3"] = 0
    assert cancelled(bench.step()) == ["3"] and bench.ids() == ["1"]


MEMORIES = ("4GiB", "8.00 GiB", "12GiB")
GROWN = "A worker was killed for its memory: further jobs get {} per worker."


def test_a_job_killed_for_memory_ends_and_one_with_more_follows():
    bench = started(target=4, memories=MEMORIES, processes=2)
    bench.workers["gpu-1-1"] = 1
    bench.killed = {"gpu-1-0"}
    decision = bench.step()
    assert decision.lines == (GROWN.format("8.00 GiB"),) and decision.submit == 1
    assert bench.drained() == ["1"] and bench.is_quiet()
    bench.workers["gpu-1-1"] = 0
    assert cancelled(bench.step()) == ["1"] and bench.ids() == ["2", "3"]


def test_jobs_of_one_memory_killed_in_turn_ask_for_more_once():
    bench = started(target=3, memories=MEMORIES)
    for job in "123":
        bench.end(job, "OUT_OF_MEMORY")
        bench.step()
    assert [job.step for job in bench.jobs.jobs] == [1, 1, 1]
    bench.run("4", "5", "6")
    bench.step()
    bench.end("4", "OUT_OF_MEMORY")
    assert GROWN.format("12GiB") in bench.step().lines
    bench.run("7")
    bench.step()
    bench.end("7", "OUT_OF_MEMORY")
    assert bench.step().lines == ("Job 7 ended as OUT_OF_MEMORY on node7.",)
    assert bench.jobs.step == 2, "there is no more"
    bench.target = 1
    bench.step()
    assert bench.ids() == ["8"], "surplus jobs with less memory are released first"

"""What is done about jobs, look by look: no Slurm, no clock. The same on a real Slurm is in tests/slurm."""

from __future__ import annotations

from dataclasses import replace

from daskmetrics.cluster.slurm._commands import QueuedJob
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


class Bench:
    """A pool and a queue that take each other's word."""

    def __init__(self, wanted: int = 2, **rules) -> None:
        self.rules, self.wanted = Rules(**rules), wanted
        self.fleet, self.now, self.number = JobSet(), 0.0, 0
        self.rows: dict[str, QueuedJob] = {}
        self.workers: dict[str, int] = {}
        self.draining: set[str] = set()

    def look(self, after: float = 30.0) -> list:
        self.now += after
        seen = Snapshot(self.now, dict(self.rows), dict(self.workers), frozenset(self.draining))
        self.fleet, actions = decide(self.fleet, seen, self.rules, self.wanted)
        for action in actions:
            if isinstance(action, SubmitJobs):
                self.take(action.count)
            if isinstance(action, Cancel):
                for job in action.jobs:
                    self.end(job.id, "CANCELLED")
        return list(actions)

    def take(self, count: int) -> None:
        for _ in range(count):
            self.number += 1
            job = str(self.number)
            self.fleet = self.fleet.took(Job(job, f"gpu-{job}", self.now))
            self.rows[job] = QueuedJob(job, "daskmetrics-x", "PENDING", "Priority", None, 3600, "", "gpu")

    def run(self, *jobs: str, come: bool = True) -> None:
        for job in jobs:
            self.rows[job] = replace(self.rows[job], state="RUNNING", nodes=f"node{job}", reason="")
            if come:
                names = [f"gpu-{job}-{i}" for i in range(self.rules.processes)]
                self.workers |= dict.fromkeys(names if self.rules.processes > 1 else [f"gpu-{job}"], 0)

    def end(self, job: str, state: str, reason: str = "") -> None:
        self.rows[job] = replace(self.rows[job], state=state, reason=reason)
        self.workers = {name: held for name, held in self.workers.items() if name.split("-")[1] != job}

    def kinds(self, after: float = 30.0) -> list[type]:
        return [type(action) for action in self.look(after)]

    def ids(self) -> list[str]:
        return [job.id for job in self.fleet.jobs]


def test_nothing_is_done_while_all_is_well():
    bench = Bench(wanted=3)
    assert bench.look() == [SubmitJobs(3)]
    assert bench.look() == []
    bench.run("1", "2", "3")
    assert bench.look() == [] and bench.fleet.failed == 0


def test_a_job_that_is_lost_in_mid_run_is_replaced_and_its_end_told():
    bench = Bench()
    bench.look()
    bench.run("1", "2")
    bench.look()
    bench.end("2", "NODE_FAIL")
    assert bench.look() == [Report("Job 2 ended as NODE_FAIL on node2."), SubmitJobs(1)]
    assert bench.ids() == ["1", "3"] and bench.fleet.failed == 0


def test_jobs_that_end_alike_are_told_in_one_line():
    bench = Bench(wanted=12)
    bench.look()
    bench.run(*(str(i) for i in range(1, 13)))
    bench.look()
    for i in range(1, 13):
        del bench.rows[str(i)]
    (told, more) = bench.look()
    assert told == Report("12 jobs, 1, 2, 3, 4, 5, 6, 7, 8 ...: each is not in the queue any more.")
    assert more == SubmitJobs(12)


def test_a_job_that_is_younger_than_the_look_is_not_lost():
    bench = Bench(wanted=1)
    bench.look()
    bench.rows.clear()
    seen = Snapshot(0.0, {})
    assert decide(bench.fleet, seen, bench.rules, 1) == (bench.fleet, ())


def test_what_fails_before_its_worker_came_is_tried_again_later_and_later_and_then_it_stops():
    bench = Bench(wanted=1, failures=3, pause=10.0)
    bench.look()
    tries = []
    for _ in range(40):
        bench.end(str(bench.number), "FAILED", "NonZeroExitCode")
        actions = bench.look(after=5.0)
        tries += [bench.now] * (SubmitJobs(1) in actions)
        if actions and isinstance(actions[-1], Stop):
            break
    assert tries == [55.0, 100.0]
    assert actions[-1].reason.startswith("3 jobs in a row came to nothing; the last: job 3 ended as FAILED (NonZero")
    assert actions[-1].job.id == "3"


def test_all_failing_at_once_stops_at_once():
    bench = Bench(wanted=8)
    bench.look()
    for i in range(1, 9):
        bench.end(str(i), "FAILED")
    assert bench.kinds() == [Report, Stop]


def test_while_some_work_one_job_now_and_then_tries_whether_it_is_well_again():
    bench = Bench(wanted=8, failures=2, pause=10.0)
    bench.look()
    bench.run("1")
    bench.look()
    for i in range(2, 9):
        bench.end(str(i), "FAILED")
    assert bench.kinds() == [Report]
    assert bench.look(after=3600) == [SubmitJobs(1)]
    bench.run("9")
    assert bench.look() == [SubmitJobs(6)], "it is"


def test_a_job_whose_worker_never_comes_is_replaced():
    bench = Bench(wanted=1, connect_within=100.0)
    bench.look()
    bench.run("1", come=False)
    assert [bench.look() for _ in range(4)] == [[]] * 4
    told, cancelled = bench.look()
    assert told == Report("Job 1 on node1 has run for 100 s without its worker.")
    assert [job.id for job in cancelled.jobs] == ["1"] and bench.fleet.failed == 1
    assert bench.look() == [SubmitJobs(1)]


def test_waiting_in_the_queue_is_no_failure():
    bench = Bench(wanted=1, connect_within=100.0)
    bench.look()
    assert [bench.look(after=10_000) for _ in range(5)] == [[]] * 5


def test_a_requeued_job_may_come_back():
    bench = Bench(wanted=1, connect_within=100.0)
    bench.look()
    bench.run("1")
    bench.look()
    bench.end("1", "PENDING", "BeginTime")
    assert [bench.look() for _ in range(5)] == [[]] * 5


def test_before_its_end_a_job_is_replaced_then_drained_then_ended():
    bench = Bench(wanted=1, lead=600.0, early=60.0)
    bench.look()
    bench.run("1")
    bench.workers["gpu-1"] = 1
    bench.rows["1"] = replace(bench.rows["1"], left=500)
    assert bench.look() == [SubmitJobs(1)]
    bench.run("2")
    bench.rows["1"] = replace(bench.rows["1"], left=50)
    assert bench.kinds() == [Drain]
    assert bench.look() == [], "it has a unit to finish"
    bench.workers["gpu-1"] = 0
    (cancelled,) = bench.look()
    assert [job.id for job in cancelled.jobs] == ["1"]
    assert bench.look() == [] and bench.ids() == ["2"] and bench.fleet.failed == 0


def test_a_node_that_drains_is_left_once_its_unit_is_done():
    bench = Bench(wanted=1)
    bench.look()
    bench.run("1")
    bench.workers["gpu-1"] = 1
    bench.draining.add("node1")
    assert bench.kinds() == [Drain, SubmitJobs]
    bench.workers["gpu-1"] = 0
    assert bench.kinds() == [Cancel]


def test_a_whole_node_job_that_lost_a_worker_for_good_is_replaced():
    bench = Bench(wanted=8, processes=4, connect_within=100.0)
    assert bench.look() == [SubmitJobs(2)]
    bench.run("1", "2")
    bench.look()
    del bench.workers["gpu-1-3"]
    bench.workers["gpu-1-0"] = 1
    assert [bench.look() for _ in range(4)] == [[]] * 4
    assert bench.kinds() == [Drain, SubmitJobs]
    assert bench.look() == []
    bench.workers["gpu-1-0"] = 0
    assert bench.kinds() == [Cancel]


def test_no_more_jobs_than_allowed_are_in_the_queue():
    bench = Bench(wanted=8, max_jobs=3)
    assert bench.look() == [SubmitJobs(3)]
    bench.run("1", "2", "3")
    bench.rows["1"] = replace(bench.rows["1"], left=10)
    assert SubmitJobs(1) not in bench.look()


def test_fewer_are_wanted():
    """Jobs in the queue go first, then idle ones; a busy one finishes what it runs."""
    bench = Bench(wanted=4)
    bench.look()
    bench.run("1", "2", "3")
    bench.workers |= {"gpu-1": 2, "gpu-2": 0, "gpu-3": 1}
    bench.look()
    bench.wanted = 1
    cancelled, drained = bench.look()
    assert {job.id for job in cancelled.jobs} == {"4", "2"} and [job.id for job in drained.jobs] == ["3"]
    assert bench.look() == []
    bench.workers["gpu-3"] = 0
    assert bench.kinds() == [Cancel] and bench.ids() == ["1"]


def test_names_that_begin_alike_are_different_jobs():
    assert Job("7", "gpu-1", 0.0).held({"gpu-1": 1, "gpu-11": 2, "gpu-12-0": 3, "gpu-1-0": 4}) == [1, 4]

"""The loop and its placement, message by message: cases that chance rarely brings up. `mutants` are
tried on them, too.
"""

from __future__ import annotations

import math
import re

import pytest

from daskmetrics.core.errors import ClusterLostError
from daskmetrics.domain.events import AttemptFailed, UnitAsked, UnitsRetried, WorkerJoined
from daskmetrics.domain.record import Record
from daskmetrics.domain.retry import Fault
from daskmetrics.execution import RetryPolicy, Settings, Sweep, WorkUnit
from daskmetrics.execution.loop import (
    Asked,
    Failed,
    Finished,
    Joined,
    Kill,
    Left,
    Loop,
    Notice,
    OfferChanged,
    Release,
    Started,
    StopRequested,
    Submit,
    Vanished,
)
from daskmetrics.execution.placement import Placement, QueuedUnit, WorkerState
from tests.events import joined
from tests.execution.truths import MemoryJournal

GPU = {"GPU": 1}
CASES = []


def case(check):
    """A check of any loop, to which mutants are put as well."""
    CASES.append(check)
    return check


class Bench:
    """A loop, and what it has asked for so far."""

    def __init__(
        self, units, loop=Loop, policy=RetryPolicy, journal=None, source=Sweep, **settings
    ) -> None:
        self.journal = journal or MemoryJournal()
        self.source = source(units)
        self.loop = loop(self.source, self.journal, Settings(retry=policy(), **settings))
        self.now = 0.0

    def step(self, *messages, after: float = 0.1) -> list:
        self.now += after
        return list(self.loop.step(self.now, messages))

    def submitted(self, *messages, after: float = 0.1) -> list[Submit]:
        return [
            action for action in self.step(*messages, after=after) if isinstance(action, Submit)
        ]

    def statuses(self) -> dict[str, str]:
        return {record.key: record.status for record in self.journal.records()}

    def attempts(self) -> list[AttemptFailed]:
        return [entry for entry in self.journal.entries if isinstance(entry, AttemptFailed)]

    def fail_twice(self, attempts: list[Submit]) -> list[Submit]:
        """Of three exceptions that a unit may raise; returns what is submitted then."""
        for _ in range(2):
            self.step(Failed(attempts[0].task, Fault.EXCEPTION, "no"))
            attempts = self.submitted(after=40)
        return attempts

    def placed_after_short_units(self, worker: str) -> list[Submit]:
        """The units on a worker that has joined and ended thirty of a millisecond."""
        placed = self.submitted(Joined(worker, worker))
        for _ in range(30):
            first = placed.pop(0)
            placed += self.submitted(Started(first.task), Finished(first.task, 1, 0.001))
        return placed


class Forgetful(Sweep):
    """Keeps no input for a later unit."""

    def __init__(self, units) -> None:
        super().__init__(units)
        self.input_keys = {unit.input.key for unit in units}

    def tell(self, record: Record) -> set[str]:
        super().tell(record)
        return self.input_keys


def unit(key: str, **options) -> WorkUnit:
    return WorkUnit(key, key, options.pop("kind", "demo"), print, **options)


def tasks(submits: list[Submit]) -> dict[str, str]:
    return {submit.unit.key: submit.task for submit in submits}


@case
def waiting_users_of_a_lost_input_are_called_back(loop, policy):
    """Not those that run: they have it already. And it is run again for the former only."""
    shared = unit("in", kind="encode")
    bench = Bench([unit(f"u{i}", input=shared) for i in range(4)], loop, policy, slots=4)
    (first,) = bench.submitted(Joined("a1", "a"))
    placed = bench.submitted(Started(first.task), Finished(first.task), Joined("b1", "b"), after=1)
    runs, waits = (submit for submit in placed if submit.worker == "b1")
    bench.step(Started(runs.task))
    actions = bench.step(Left("a1"))
    released = {action.task for action in actions if isinstance(action, Release)}
    assert first.task in released and runs.task not in released
    assert released >= {submit.task for submit in placed if submit.worker == "a1"}
    again = [action for action in actions if isinstance(action, Submit)]
    assert [submit.unit.key for submit in again] == ["in"]
    assert waits.task in released, "it would wait for ever"


@case
def a_running_user_outlives_its_input(loop, policy):
    """An input that was lost and cannot be computed again fails the units that wait for it, not one
    that has it.
    """
    shared = unit("in", kind="encode")
    bench = Bench([unit("runs", input=shared), unit("waits", input=shared)], loop, policy, slots=2)
    (first,) = bench.submitted(Joined("a1", "a", threads=1))
    placed = tasks(bench.submitted(Started(first.task), Finished(first.task), Joined("b1", "b")))
    runs = "runs" if bench.loop.units["runs"].worker == "b1" else "waits"
    bench.step(Started(placed[runs]))
    (again,) = bench.submitted(Left("a1"))
    bench.step(Failed(again.task, Fault.PERMANENT, "gone"))
    assert bench.statuses() == {"waits" if runs == "runs" else "runs": "error"}
    bench.step(Finished(placed[runs], 1))
    assert bench.statuses()[runs] == "ok"


@case
def faults_of_an_input_before_its_success_do_not_count(loop, policy):
    """It may run any number of times, in this life of the driver and in the next."""
    shared = unit("in", kind="encode")
    users = [unit(f"u{i}", input=shared) for i in range(4)]

    bench = Bench(users, loop, policy, slots=1, source=Forgetful)
    attempts = bench.submitted(Joined("w", "w"))
    for _ in range(2):
        (user,) = bench.submitted(Finished(bench.fail_twice(attempts)[0].task))
        attempts = bench.submitted(Finished(user.task, 1))
    bench.fail_twice(attempts)
    resumed = Bench(users, loop, policy, journal=bench.journal, slots=1, source=Forgetful)
    (user,) = resumed.submitted(Finished(resumed.submitted(Joined("w", "w"))[0].task))
    (attempt,) = resumed.fail_twice(resumed.submitted(Finished(user.task, 1)))
    resumed.submitted(Finished(attempt.task))
    (attempt,) = resumed.fail_twice(resumed.submitted(Left("w"), Joined("w2", "w")))
    (user,) = resumed.submitted(Finished(attempt.task))
    resumed.step(Finished(user.task, 1))
    assert resumed.statuses() == {user.key: "ok" for user in users}


@case
def faults_that_do_not_count_stay_so_after_a_restart(loop, policy):
    todo = [unit("u", input=unit("in", kind="encode"))]
    journal = MemoryJournal()
    for _ in range(2):
        bench = Bench(todo, loop, policy, journal)
        (attempt,) = bench.fail_twice(bench.submitted(Joined("w", "w")))
        (_user,) = bench.submitted(Finished(attempt.task))


@case
def an_input_that_all_its_users_have_is_not_run_again(loop, policy):
    shared = unit("in", kind="encode", resources=GPU)
    bench = Bench([unit("u", input=shared, resources={"CPU": 1})], loop, policy)
    (attempt,) = bench.submitted(
        Joined("a", "a", resources=GPU), Joined("b", "b", resources={"CPU": 1})
    )
    (user,) = bench.submitted(Finished(attempt.task))
    bench.step(Started(user.task))
    assert not bench.submitted(Left("a"), Joined("a2", "a", resources=GPU))
    bench.step(Finished(user.task, 1))
    assert bench.loop.done


@case
def a_worker_that_dies_while_the_run_stops_blames_nobody(loop, policy):
    bench = Bench([unit("u")], loop, policy)
    (attempt,) = bench.submitted(Joined("w", "w"))
    bench.step(Started(attempt.task))
    bench.step(StopRequested(math.inf))
    bench.step(Left("w"))
    assert bench.loop.done
    assert not bench.attempts()


@case
def memory_has_a_budget_of_its_own(loop, policy):
    bench = Bench([unit("u")], loop, policy)
    for messages in ([Joined("w", "w")], []):
        (attempt,) = bench.submitted(*messages, after=40)
        bench.step(Failed(attempt.task, Fault.MEMORY, "no"))
    assert bench.statuses() == {"u": "oom"}


@case
def a_worker_that_is_reported_twice_keeps_its_units(loop, policy):
    shared = unit("in", kind="encode")
    bench = Bench([unit("x", input=shared)], loop, policy, slots=1)
    (first,) = bench.submitted(Joined("w", "w"))
    assert not bench.submitted(Started(first.task), Joined("w", "w"))
    assert [submit.unit.key for submit in bench.submitted(Finished(first.task))] == ["x"]


@case
def a_worker_that_offers_nothing_any_more_finishes_what_it_runs_and_gets_no_more(loop, policy):
    bench = Bench(
        [unit("runs", resources=GPU), unit("waits", resources=GPU)], loop, policy, slots=2
    )
    placed = tasks(bench.submitted(Joined("w", "w", resources=GPU)))
    bench.step(Started(placed["runs"]))
    actions = bench.step(OfferChanged("w", {"GPU": 0}), OfferChanged("unknown", {}))
    assert actions == [Release(placed["waits"])]
    (elsewhere,) = bench.submitted(Joined("x", "x", resources=GPU))
    assert (elsewhere.unit.key, elsewhere.worker) == ("waits", "x")
    bench.step(Finished(placed["runs"], 1), Finished(elsewhere.task, 1))
    assert bench.statuses() == {"runs": "ok", "waits": "ok"}


@case
def the_records_of_a_step_are_committed_together(loop, policy):
    """And before the source receives the first of them."""
    groups = []

    class Grouped(MemoryJournal):
        def append(self, *entries, wait=True):
            groups.append((wait, [entry.key for entry in entries if isinstance(entry, Record)]))
            super().append(*entries, wait=wait)

    bench = Bench([unit(f"u{i}") for i in range(3)], loop, policy, Grouped(), slots=2)
    reported = []
    bench.source.tell = lambda record: reported.append((record.key, len(groups)))
    placed = bench.submitted(Joined("w", "w", threads=2))
    (last,) = bench.submitted(*(Finished(submit.task, 1) for submit in placed))
    bench.step(Joined("x", "x", event=joined("x")), Finished(last.task, 1))
    assert groups == [(True, ["u0", "u1"]), (True, ["u2"])]
    assert reported == [("u0", 1), ("u1", 1), ("u2", 2)]


@case
def a_decision_is_in_the_journal_soon_although_no_result_comes(loop, policy):
    bench = Bench([unit("u")], loop, policy)
    bench.step(Joined("w", "w"))
    assert bench.loop.wake <= bench.now + 0.05
    bench.step()
    assert [entry.key for entry in bench.journal.entries if isinstance(entry, UnitAsked)] == ["u"]
    assert bench.loop.wake > bench.now + 0.5


@case
def short_units_are_sent_several_at_once_and_longer_ones_are_not(loop, policy):
    """A worker has enough of them to be busy until the driver looks again, and no more."""
    bench = Bench([unit(f"u{i}") for i in range(300)], loop, policy)
    placed = bench.submitted(Joined("w", "w"))
    sizes = []
    while len(sizes) < 120:
        first = placed.pop(0)
        seconds = 0.004 if len(sizes) < 90 else 1.0
        new = bench.submitted(Started(first.task), Finished(first.task, 1, seconds))
        placed += new
        sizes.append(len(new))
    in_flight = [2 + sum(sizes[:i]) - i for i in range(len(sizes) + 1)]
    assert max(in_flight[:91]) == 1 + 12 and min(in_flight[60:91]) == 1 + 7
    assert {size for size in sizes[60:90] if size} == {6}
    assert sizes[-5:] == [1] * 5 and in_flight[-1] == 2


@case
def a_run_whose_workers_left_after_short_units_is_not_done(loop, policy):
    bench = Bench([unit(f"u{i}") for i in range(80)], loop, policy)
    placed = bench.placed_after_short_units("w")
    bench.step(*(Finished(submit.task, 1, 0.001) for submit in placed), Left("w"))
    assert not bench.loop.done
    assert bench.submitted(Joined("x", "x"))


@case
def a_stop_waits_for_what_runs_as_long_as_it_may(loop, policy):
    for grace, after, done in ((math.inf, 1e6, False), (15.0, 14.0, False), (15.0, 16.0, True)):
        bench = Bench([unit("runs"), unit("waits")], loop, policy, slots=2)
        placed = tasks(bench.submitted(Joined("w", "w")))
        bench.step(Started(placed["runs"]))
        assert bench.step(StopRequested(grace)) == [Release(placed["waits"])]
        assert not bench.loop.done
        bench.step(after=after)
        assert bench.loop.done is done
        if not done:
            bench.step(Finished(placed["runs"], 1))
            assert bench.loop.done and bench.statuses() == {"runs": "ok"}


@case
def a_retry_resets_all_faults_of_a_unit(loop, policy):
    journal = MemoryJournal()
    bench = Bench([unit("u")], loop, policy, journal)
    bench.fail_twice(bench.submitted(Joined("w", "w")))
    journal.append(UnitsRetried(["u"]))
    bench = Bench([unit("u")], loop, policy, journal)
    (attempt,) = bench.fail_twice(bench.submitted(Joined("w", "w")))
    bench.step(Failed(attempt.task, Fault.EXCEPTION, "no"))
    assert bench.statuses() == {"u": "error"}


@case
def a_suspect_gets_a_worker_of_its_own_in_the_end(loop, policy):
    """While there is other work for its worker without end."""
    bench = Bench([unit(f"u{i}") for i in range(40)], loop, policy, slots=6)
    placed = bench.submitted(Joined("a1", "a", threads=2))
    bench.step(*(Started(submit.task) for submit in placed[:2]))
    running = bench.submitted(Left("a1"), Joined("a2", "a", threads=2))
    assert bench.loop.units["u0"].suspect and bench.loop.units["u1"].suspect
    for _ in range(20):
        if any(submit.unit.key in ("u0", "u1") for submit in running):
            break
        first = running.pop(0)
        running += bench.submitted(Started(first.task), Finished(first.task, 1), after=1)
    else:
        raise AssertionError("it is never tried")


@case
def an_idle_worker_gets_what_waits_behind_stragglers_for_each_of_its_threads(loop, policy):
    units = [unit(f"u{i}") for i in range(10)]
    bench = Bench(units, loop, policy, slots=10, ahead=3)
    placed = bench.submitted(Joined("a", "a", threads=2), Joined("b", "b", threads=2))
    behind = [submit for submit in placed if submit.worker == "a"]
    quick = [submit for submit in placed if submit.worker == "b"]
    bench.step(*(Started(submit.task) for submit in behind[:2]))
    for submit in quick[:-1]:
        bench.step(Started(submit.task), Finished(submit.task, 1))
    last = quick[-1].task
    moved = bench.submitted(Started(last), Finished(last, 1), after=2)
    assert [submit.worker for submit in moved] == ["b", "b"]
    assert [submit.unit for submit in moved] == [submit.unit for submit in behind[2:4]]


@case
def no_queue_of_short_units_stays_behind_a_straggler(loop, policy):
    bench = Bench([unit(f"u{i}") for i in range(45)], loop, policy)
    placed = bench.placed_after_short_units("a")
    assert len(placed) == 15
    bench.step(Started(placed[0].task))
    moved = bench.submitted(Joined("b", "b"), after=2)
    assert [submit.worker for submit in moved].count("b") >= 7


@case
def what_began_while_it_was_taken_away_was_what_ran(loop, policy):
    """On one thread its start says that the unit before it has ended unheard; on other workers it
    says nothing.
    """
    bench = Bench([unit(f"u{i}") for i in range(3)], loop, policy, slots=3)
    before, quick, behind = bench.submitted(Joined("a", "a"), Joined("b", "b"))
    assert [submit.worker for submit in (before, quick, behind)] == ["a", "b", "a"]
    bench.step(Started(before.task), Started(quick.task))
    (moved,) = bench.submitted(Finished(quick.task, 1), after=2)
    assert (moved.unit.key, moved.worker) == (behind.unit.key, "b")
    bench.step(Started(moved.task), Started(behind.task))
    bench.step(Left("a"), Left("b"))
    assert [(attempt.key, attempt.blamed) for attempt in bench.attempts()] == [
        (behind.unit.key, True)
    ]


@case
def an_input_is_kept_until_its_last_unit_has_ended(loop, policy):
    shared = unit("in", kind="encode")
    users = [unit(f"u{i}", input=shared) for i in range(3)]
    bench = Bench(users, loop, policy, slots=1)
    (attempt,) = bench.submitted(Joined("w", "w"))
    actions = bench.step(Finished(attempt.task))
    for _ in users:
        assert Release(attempt.task) not in actions
        (user,) = (action for action in actions if isinstance(action, Submit))
        assert user.given == attempt.task
        actions = bench.step(Finished(user.task, 1))
    assert Release(attempt.task) in actions
    assert bench.loop.done


@case
def an_input_that_dask_computes_again_is_held_as_before(loop, policy):
    """Which it does where a worker could not fetch the result."""
    shared = unit("in", kind="encode", timeout=5.0)
    bench = Bench([unit(f"u{i}", input=shared) for i in range(2)], loop, policy, slots=2)
    (attempt,) = bench.submitted(Joined("w", "w"))
    done = Started(attempt.task), Finished(attempt.task)
    users = bench.submitted(*done)
    assert not bench.step(*done) and not bench.step(after=60)
    bench.step(*(Finished(user.task, 1) for user in users))
    assert bench.statuses() == {"u0": "ok", "u1": "ok"} and bench.loop.done


@case
def a_unit_goes_where_what_it_keeps_is_at_hand(loop, policy):
    """Else where nothing is driven out; but it waits for no worker."""
    units = [unit(f"{key}{i}", keeps=key) for i, key in enumerate("xyyxz")]
    bench = Bench(units, loop, policy, slots=2, ahead=0)
    x, y = bench.submitted(Joined("b", "b"), Joined("c", "c"))
    assert (x.worker, y.worker) == ("b", "c")
    again = bench.submitted(Joined("a", "a"), Finished(x.task, 1), Finished(y.task, 1))
    assert {submit.unit.key: submit.worker for submit in again} == {"y2": "c", "x3": "b"}
    (new,) = bench.submitted(Left("a"), Joined("d", "d"), Finished(again[0].task, 1))
    assert (new.unit.key, new.worker) == ("z4", "d")
    bench = Bench([unit(f"x{i}", keeps="x") for i in range(3)], loop, policy, slots=2, ahead=0)
    placed = bench.submitted(Joined("b", "b"), Joined("a", "a"))
    assert [submit.worker for submit in placed] == ["a", "b"]


@case
def a_lost_worker_that_is_done_with_its_time_blames_nobody(loop, policy):
    bench = Bench([unit("u")], loop, policy)
    (attempt,) = bench.submitted(Joined("w", "w", remaining=100))
    bench.step(Started(attempt.task))
    bench.step(Left("w"), Joined("v", "v"), after=101)
    assert not bench.attempts()


@case
def a_draining_worker_finishes_its_unit_and_gets_none_that_does_not_fit(loop, policy):
    bench = Bench([unit(f"u{i}") for i in range(4)], loop, policy, slots=4)
    (first,) = bench.submitted(Joined("old", "old", remaining=100))  # none waits behind it
    bench.step(Started(first.task))
    (second,) = bench.submitted(Finished(first.task, 1, seconds=30), after=30)
    assert second.worker == "old"  # 30 s with a margin of 1.5 fit into 70 s
    bench.step(Started(second.task))
    assert not bench.submitted(Finished(second.task, 1, seconds=30), after=30)
    assert {submit.worker for submit in bench.submitted(Joined("new", "new"))} == {"new"}
    assert bench.statuses() == {"u0": "ok", "u1": "ok"}


@pytest.mark.parametrize("check", CASES, ids=lambda check: check.__name__)
def test_that(check):
    check(Loop, RetryPolicy)


def test_a_late_result_is_dropped():
    bench = Bench([unit("u", timeout=10, delay=0.5)])
    (attempt,) = bench.submitted(Joined("w1", "w"))
    bench.step(Started(attempt.task))
    assert Kill("w1") in bench.step(after=16)
    bench.step(Finished(attempt.task, "late"), Vanished(attempt.task))
    assert bench.statuses() == {}
    (again,) = bench.submitted(Joined("w2", "w"), after=1)
    bench.step(Started(again.task), Finished(again.task, "in time"), after=1)
    assert [record.value for record in bench.journal.records()] == ["in time"]
    [stop] = bench.attempts()
    assert stop.reason == "It was stopped after its 9.5 s."


@pytest.mark.parametrize(
    ("joined", "message"),
    [
        ((), "No worker is left."),
        ((Asked(2), Asked(0)), "No worker is left."),
        ((Asked(2),), "Connected, but without an answer yet (starting or busy): 2 workers."),
        ((Joined("w", "w"),), "No worker offers what demo u occupies: {'GPU': 1}."),
    ],
)
def test_without_workers_it_says_so_and_gives_up_in_the_end(joined, message):
    bench = Bench([unit("u", resources=GPU)], patience=60)
    bench.step(*joined)
    assert bench.step(after=11) == [Notice(f"{message} Waiting for 60 s.")]
    assert bench.step(after=11) == []
    with pytest.raises(ClusterLostError, match=re.escape(message.partition(":")[0])):
        bench.step(after=60)


def test_a_worker_gets_no_unit_while_it_trains_which_is_said():
    bench = Bench([unit("u", resources=GPU)], patience=60)
    (submit,) = bench.submitted(Joined("w", "w", resources=GPU))
    assert bench.step(OfferChanged("w", GPU, trains=True)) == [Release(submit.task)]
    text = "Every worker for demo u trains. Waiting until the training ends."
    assert bench.step(after=11) == [Notice(text)]
    assert bench.step(Joined("x", "x", resources=GPU, trains=True), after=1000) == []
    (submit,) = bench.submitted(OfferChanged("w", GPU))
    assert submit.worker == "w"


def test_too_short_a_walltime_ends_the_run_at_once_with_a_remedy():
    bench = Bench([unit("long"), unit("other", kind="short")], slots=2)
    (long,) = bench.submitted(Joined("w", "w", remaining=57))
    bench.step(Started(long.task))
    (notice,) = [action for action in bench.step(Left("w"), after=57) if isinstance(action, Notice)]
    assert "demo long was cut off after 57 s by the walltime" in notice.text
    assert "Raise cluster.walltime, or limit a unit with cluster.unit_minutes" in notice.text
    (short,) = bench.submitted(Joined("v", "v", remaining=57))
    assert short.unit.key == "other"
    bench.step(Started(short.task))
    with pytest.raises(
        ClusterLostError, match=r"long may take 86 s, and no worker had more than 57 s"
    ):
        bench.step(Finished(short.task, 1, seconds=1))
    assert bench.statuses() == {"other": "ok"}


def test_a_worker_is_journaled_once_however_often_it_restarts():
    bench = Bench([unit("u")])
    for address in ("w1", "w2"):
        bench.step(Joined(address, "w", event=joined("w")))
    workers = [entry for entry in bench.journal.entries if isinstance(entry, WorkerJoined)]
    assert workers == [joined("w")]


def test_a_unit_without_a_worker_hides_none_from_other_units():
    """A round remembers for which resources it found no worker, and for how long."""
    workers = [
        WorkerState("a", "a", 1, {"GPU": 1}, ends=50.0),
        WorkerState("b", "b", 1, {"CPU": 1}, ends=math.inf),
    ]
    placement = Placement(workers, ahead=1, now=0.0)

    def chosen(resources: dict[str, float], seconds: float) -> str | None:
        worker = placement.choose(QueuedUnit(unit("u", resources=resources)), seconds)
        return worker.address if worker else None

    assert chosen({"GPU": 1}, 60.0) is None
    assert chosen({"GPU": 1}, 70.0) is None
    assert chosen({"CPU": 1}, 70.0) == "b"
    assert chosen({"GPU": 1}, 40.0) == "a"


def test_a_unit_killed_for_memory_waits_for_more_if_there_can_be():
    bench = Bench([unit("u")], most_memory=8)
    (attempt,) = bench.submitted(Joined("w", "w", memory=4))
    bench.step(Started(attempt.task))
    assert not bench.submitted(Left("w", memory=True), Joined("x", "x", memory=4), after=40)
    (attempt,) = bench.submitted(Joined("y", "y", memory=8), after=40)
    assert attempt.worker == "y"
    bench.step(Started(attempt.task))
    bench.step(Left("y", memory=True))  # there is no more, so that it counts
    (attempt,) = bench.submitted(Joined("z", "z", memory=8), after=40)
    bench.step(Started(attempt.task))
    bench.step(Left("z", memory=True))
    assert bench.statuses() == {"u": "oom"}
    assert [attempt.blamed for attempt in bench.attempts()] == [False, True, True]

"""However the work was scheduled, the search recommends the same."""

from __future__ import annotations

import heapq
import random

import numpy as np

from daskmetrics.bandit import Learner, Outcome, Problem, arm_features, policy_named
from daskmetrics.core.names import Suite
from daskmetrics.execution import Record, Settings, WorkUnit
from daskmetrics.execution.loop import Finished, Joined, Left, Loop, Started, Submit
from tests.execution.truths import MemoryJournal

WORKERS = 4


class Search:
    """A source of cells, each a unit."""

    def __init__(self, campaign: Learner) -> None:
        self.campaign = campaign
        self.running: dict[str, int] = {}

    def ask(self, n: int) -> list[WorkUnit]:
        picks = self.campaign.ask(n)
        self.running |= {str(pick.cell): pick.index for pick in picks}
        return [WorkUnit(str(pick.cell), str(pick.cell), "score", print) for pick in picks]

    def tell(self, record: Record) -> None:
        self.campaign.tell(self.running.pop(record.key), Outcome(record.value, 0.02))


def campaign() -> Learner:
    suite = Suite("m", tuple(f"step{2**i}" for i in range(6)), (0, 1, 2), 2)
    cost = np.ones((18, 3))
    problem = Problem(
        suite.arms(),
        ("s", "t", "u"),
        arm_features([suite]),
        cost,
        cost,
    )
    return Learner(problem, policy_named("race"), budget=0.6, window=8, seed=0)


def scored(key: str) -> float:
    """The score of a cell, whenever and wherever it is computed."""
    return 0.5 + 0.1 * random.Random(key).random()


def searched(seed: int | None) -> tuple[tuple[dict, list], list[str]]:
    """Recommendation and decisions, and the order of the results, after latencies and deaths drawn
    from a seed.
    """
    chance = random.Random(seed)
    found = campaign()
    order: list[str] = []
    loop = Loop(
        Search(found),
        MemoryJournal(),
        Settings(slots=2 * WORKERS),
        lambda record: order.append(record.key),
    )
    events = [(0.0, i, Joined(f"w{i}-0", f"w{i}")) for i in range(WORKERS)]
    now, number = 0.0, WORKERS
    while not loop.done:
        message = None
        if events and events[0][0] <= loop.wake:
            now, _, message = heapq.heappop(events)
        else:
            now = loop.wake
        for action in loop.step(now, [message] if message else []):
            if not isinstance(action, Submit):
                continue
            number += 1
            heapq.heappush(events, (now, number, Started(action.task)))
            latency = 1.0 if seed is None else chance.lognormvariate(0, 1.5)
            if seed is not None and chance.random() < 0.05:
                name = loop.workers[action.worker].name
                heapq.heappush(events, (now + latency, number, Left(action.worker)))
                heapq.heappush(
                    events, (now + latency + 1, number, Joined(f"{name}-{number}", name))
                )
            else:
                done = Finished(action.task, scored(action.unit.key), latency)
                heapq.heappush(events, (now + latency, number, done))
    return (found.recommendation().as_dict(), [pick.as_dict() for pick in found.picks]), order


def test_the_same_recommendation_in_any_order_of_completion():
    quiet, order = searched(None)
    for seed in range(10):
        disturbed, other_order = searched(seed)
        assert disturbed == quiet
        assert other_order != order and sorted(other_order) == sorted(order)

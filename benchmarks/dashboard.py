"""The cost of the dashboard's run page for the scheduler: the paper's grid, simulated records, one
viewer.

python -m benchmarks.dashboard                5,184 arms x 32 tasks, a record every 10 ms for 20 s
python -m benchmarks.dashboard --seconds 2    the same, smaller
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Any

import dask
import numpy as np

from daskmetrics.bandit import Pick
from daskmetrics.dashboard._pages import Page
from daskmetrics.domain.events import (
    HistorySent,
    LiveMessage,
    PosteriorUpdated,
    RunStarted,
    SearchStarted,
    UnitAsked,
    to_json,
)
from daskmetrics.domain.names import Cell, Suite, grid
from daskmetrics.domain.plan import MetricInfo, Plan, TaskInfo
from daskmetrics.domain.record import Record
from daskmetrics.domain.results import result_of

STEPS = tuple(f"step{step}" for step in range(0, 144_000, 1000))
SUITES = (
    Suite("pythia-14m", STEPS, tuple(range(1, 7)), 6),
    Suite("pythia-70m", STEPS, tuple(range(1, 7)), 6),
    Suite("pythia-410m", STEPS, tuple(range(1, 25)), 24),
)
METRICS = {
    "prompt_entropy": "nats",
    "curvature": "radians",
    "effective_rank": "dimensions",
    "infonce": "nats",
}
TASKS = tuple(f"task{i}" for i in range(32))
COST = 2.0  # assumed seconds of every cell


class History:
    """A simulated run: the messages that its driver would send, in order."""

    def __init__(
        self, suites: tuple[Suite, ...] = SUITES, tasks: tuple[str, ...] = TASKS, seed: int = 0
    ) -> None:
        self.suites, self.tasks, self.arms = suites, tasks, grid(suites)
        self.random = np.random.default_rng(seed)
        self.exhaustive = COST * len(self.arms) * len(tasks)

    def quality(self) -> np.ndarray:
        """Best in the middle layers of late checkpoints (A,)."""
        depths = {suite.model: suite.depth for suite in self.suites}
        last = {suite.model: max(1, len(suite.revisions) - 1) for suite in self.suites}
        place = {
            suite.model: {name: i for i, name in enumerate(suite.revisions)}
            for suite in self.suites
        }
        size = {suite.model: 0.04 * i for i, suite in enumerate(self.suites)}
        time_ = np.array([place[arm.model][arm.revision] / last[arm.model] for arm in self.arms])
        depth = np.array([arm.layer / depths[arm.model] for arm in self.arms])
        return (
            np.array([size[arm.model] for arm in self.arms])
            + 0.35
            + 0.25 * time_ * (1 - 1.5 * (depth - 0.6) ** 2)
        )

    def opening(self, budget: float = 0.2) -> list[LiveMessage]:
        """What is sent before the first record."""
        names = [str(c) for suite in self.suites for c in suite.checkpoints()]
        plan = Plan(
            suites=tuple(self.suites),
            tasks=tuple(TaskInfo(name, "", "accuracy", name, name, 1.0) for name in self.tasks),
            metrics=tuple(MetricInfo(name, units, name, name) for name, units in METRICS.items()),
            encodings={name: name for name in names},
            prompts="",
            search="",
            seed=0,
            window=8,
            widths={suite.model: 8 for suite in self.suites},
            config={"name": "made-up"},
        )
        return [plan, RunStarted(0.0, {}), HistorySent()]

    def measured(self) -> Iterator[Record]:
        """A record per checkpoint; one of forty has failed."""
        quality = dict(zip(self.arms, self.quality().tolist(), strict=True))
        for suite in self.suites:
            for number, checkpoint in enumerate(suite.checkpoints()):
                arms = suite.arms()[number * len(suite.layers) :][: len(suite.layers)]
                values = [[(i + 1) * quality[arm] for i, _ in enumerate(METRICS)] for arm in arms]
                value = {"layers": list(suite.layers), "names": list(METRICS), "values": values}
                value |= {"stderr": values, "status": [[1] * len(METRICS)] * len(values)}
                yield self._record(
                    f"m{checkpoint}", str(checkpoint), "measure", value, number % 40 == 17
                )

    def searched(self, budget: float = 0.2) -> Iterator[LiveMessage]:
        """Decisions and their records, best arms first and each on all tasks, and a posterior every
        200 cells.
        """
        quality = self.quality()
        yield SearchStarted(budget * self.exhaustive, self.exhaustive, spent=0.0)
        order = np.argsort(-(quality + self.random.normal(0, 0.05, len(quality))))
        index = 0
        for arm in order.tolist():
            for task in self.tasks:
                name = f"{self.arms[arm]}:{task}"
                pick = Pick(index, Cell(self.arms[arm], task), "search", COST, {"because": "rival"})
                yield UnitAsked(name, name, {"search": "s", "pick": pick.as_dict()})
                score = float(quality[arm] + self.random.normal(0, 0.01))
                yield self._record(
                    name, name, "score", {"score": score, "stderr": 0.01}, index % 97 == 31
                )
                if index % 200 == 0:
                    yield self.posterior(index)
                index += 1

    def posterior(self, known: int) -> PosteriorUpdated:
        """A posterior whose standard deviation falls with the number of known cells."""
        sd = np.full(len(self.arms), 0.3 / (1 + known / 500))
        mean = self.quality() + self.random.normal(0, 1, len(sd)) * sd * 0.2
        leader = int(mean.argmax())
        values = np.array([mean, sd], np.float32).tobytes()
        return PosteriorUpdated(values, str(self.arms[leader]), loss=float(0.4 * sd[0]))

    def _record(self, key: str, name: str, kind: str, value: Any, failed: bool) -> Record:
        how = (
            {"status": "oom", "reason": f"CUDA out of memory in {name}"}
            if failed
            else {"status": "ok", "reason": None}
        )
        return Record(key, name, kind, value=None if failed else result_of(kind, value), **how)


async def measure(seconds: float, rate: float) -> dict[str, float]:
    """Send records to a real scheduler at this rate, first without and then with a viewer's
    WebSocket.
    """
    from distributed import Scheduler

    settings = {
        "distributed.scheduler.preload": "daskmetrics.dashboard._preload",
        "distributed.scheduler.dashboard.bokeh-application.unused_session_lifetime_milliseconds": 1000,
    }
    history, updates, hearing = History(), list[float](), list[float]()
    with dask.config.set(settings), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a dashboard of another program on the usual port
        async with Scheduler(
            dashboard_address="127.0.0.1:0", port=0, host="127.0.0.1"
        ) as scheduler:
            plugin = scheduler.plugins["daskmetrics"]
            idle = await _cpu(seconds / 2, lambda: None)
            replayed = _timed(
                lambda: plugin.receive(map(to_json, [*history.opening(), *history.measured()]))
            )
            news = history.searched()

            def second() -> None:
                hearing.append(
                    _timed(lambda: plugin.receive(map(to_json, islice(news, int(rate)))))
                )

            unseen = await _cpu(seconds, second)
            page = f"http://127.0.0.1:{scheduler.http_server.port}/individual-daskmetrics"
            with _update_times(updates):
                viewer = await asyncio.create_subprocess_exec(
                    sys.executable, "-c", VIEWER, page, stdout=asyncio.subprocess.PIPE
                )
                assert viewer.stdout is not None and await viewer.stdout.readline()
                seen = await _cpu(seconds, second)
            viewer.kill()
            await viewer.wait()
    return {
        "arms": len(history.arms),
        "cells": len(history.arms) * len(TASKS),
        "receiving 432 measured checkpoints, ms": 1e3 * replayed,
        f"receiving {rate:.0f} entries, ms": 1e3 * float(np.median(hearing)),
        "one update of a page, ms (median)": 1e3 * float(np.median(updates)),
        "one update of a page, ms (greatest)": 1e3 * max(updates),
        "a scheduler without a run, % of a core": 100 * idle,
        "more with a run and no viewer, %": 100 * (unseen - idle),
        "more with a viewer, %": 100 * (seen - idle),
    }


VIEWER = """
import sys, time
from bokeh.client import pull_session
session = pull_session(url=sys.argv[1])
print("open", flush=True)
while True:
    session.force_roundtrip()
    time.sleep(1)
"""


@contextmanager
def _update_times(found: list[float]) -> Iterator[None]:
    """Time every update of every page."""
    plain = Page.update

    def timed(page: Page) -> None:
        found.append(_timed(lambda: plain(page)))

    Page.update = timed  # type: ignore[method-assign]
    try:
        yield
    finally:
        Page.update = plain  # type: ignore[method-assign]


def _timed(work: Callable[[], Any]) -> float:
    """CPU seconds of this process."""
    began = time.process_time()
    work()
    return time.process_time() - began


async def _cpu(seconds: float, each_second: Callable[[], None]) -> float:
    """Share of a core that this process uses while it does something once a second."""
    began, used = time.perf_counter(), time.process_time()
    while time.perf_counter() < began + seconds:
        each_second()
        await asyncio.sleep(1.0)
    return (time.process_time() - used) / (time.perf_counter() - began)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--rate", type=float, default=100.0, help="journal entries per second")
    wanted = parser.parse_args()
    for name, value in asyncio.run(measure(wanted.seconds, wanted.rate)).items():
        print(f"{name:<42} {value:10,.2f}")


if __name__ == "__main__":
    main()

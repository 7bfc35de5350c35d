"""Folders of runs with made-up values, for the report to read."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from click.testing import CliRunner, Result

from daskmetrics import config, store
from daskmetrics.bandit import (
    Learner,
    Outcome,
    Problem,
    arm_features,
    champions,
    policy_named,
    task_weights,
)
from daskmetrics.cli import main
from daskmetrics.core.files import RunFolder
from daskmetrics.core.table import Table
from daskmetrics.domain.events import RunFinished, RunStarted, SearchEnded, UnitAsked
from daskmetrics.domain.names import Arm, Cell, Checkpoint, Suite, grid, log_steps
from daskmetrics.domain.outcomes import pack
from daskmetrics.domain.plan import MetricInfo, Plan
from daskmetrics.domain.readouts import Readout
from daskmetrics.domain.results import Reading, Scored, result_of
from daskmetrics.execution import Journal, Record
from daskmetrics.metrics import catalogue
from daskmetrics.report import Run
from tests.events import planned, task

STEPS = tuple(f"step{step}" for step in log_steps(8))
SUITES = (Suite("tiny", STEPS, (0, 1, 2), 2), Suite("small", STEPS, (0, 1, 2, 3), 3))
TASKS = ("stdlib:order", "stdlib:package", "stdlib:retrieval")
LOST = {"last": 0.04, "16d": 0.01}  # by a readout
HOSTILE = "ValueError: <script>alert('x')</script> \x1b[2J"
ENVIRONMENT = {"python": "3.11.7", "daskmetrics": "0.1.0", "numpy": "2.0"}


@dataclass(frozen=True)
class Story:
    """What happens in a run.

    ``failing`` has the names of checkpoints and cells that fail; ``decisions`` is the number of
    decisions before the run is killed, or None for a run that finishes.
    """

    suites: tuple[Suite, ...] = SUITES
    tasks: tuple[str, ...] = TASKS
    failing: tuple[str, ...] = ()
    decisions: int | None = None
    budget: float = 0.5
    flat: bool = False
    key: str = "k" * 32  # of the search
    weights: str = "weights"  # of every checkpoint
    trained: bool = True
    # of tasks of mteb: names of languages, each 0.1 better than the one before
    subsets: tuple[str, ...] = ()
    aliases: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    outcomes: bool = False
    objective: str = "all"
    sized: bool = False  # whether weights are recorded, as of models whose blocks are known
    timed: bool = False  # whether the time of reading is, too

    # exact scores by task and layer
    merits: Mapping[str, Sequence[float]] = field(default_factory=dict)

    def detail(self, task: str, score: float) -> dict[str, Any]:
        """What mteb returns, with this score as the mean of the subsets."""
        parts, middle = [], (len(self.subsets) - 1) / 2
        for i, name in enumerate(self.subsets):
            shown = {"main_score": score + 0.1 * (i - middle), "hf_subset": name}
            parts.append({**shown, "languages": [f"{name}-Latn"]})
        name = task.removeprefix("mteb:").partition("(")[0]
        return {"task_name": name, "scores": {"test": parts}}

    def quality(self, arm: Arm) -> float:
        """Best in the middle layers of late checkpoints, unless all arms are equal."""
        suite = next(suite for suite in self.suites if suite.model == arm.model)
        last = len(suite.revisions) - 1
        time = suite.revisions.index(arm.revision) / last if last else 1.0
        depth = arm.layer / suite.depth
        lost = sum(LOST.get(part, 0.0) for part in arm.readout.split(","))
        return 0.5 if self.flat else 0.35 + 0.3 * time * (1 - 1.5 * (depth - 0.6) ** 2) - lost

    def score(self, cell: Cell) -> float:
        if self.merits:
            return self.merits[cell.task][cell.arm.layer]
        noise = np.random.default_rng(list(str(cell).encode())).normal(0, 0.005)
        return round(self.quality(cell.arm) + 0.05 * self.tasks.index(cell.task) + float(noise), 6)

    def value(self, cell: Cell) -> Scored:
        """What the journal holds of a score, by default without outcomes, as of a task of the user."""
        score = self.score(cell)
        value: dict[str, Any] = {"score": score, "stderr": 0.01, "n": 100, "encode_seconds": 2.0}
        if cell.task.startswith("mteb:"):
            value["detail"] = self.detail(cell.task, score)
        value["tokens"] = 10.0 * (1 + self.tasks.index(cell.task))
        value["dimensions"] = Readout.parse(cell.arm.readout).width(8 * len(cell.arm.model))
        if self.timed:
            suite = next(suite for suite in self.suites if suite.model == cell.arm.model)
            value["reading"] = Reading(50, max(suite.layers), 0.01 * value["tokens"])
        if self.outcomes:
            items, own = (np.random.default_rng(list(x.encode())) for x in (cell.task, str(cell)))
            # most of it is common to all arms
            noise = items.normal(0, 0.098, 100) + own.normal(0, 0.02, 100)
            value["outcomes"] = pack(score + noise - noise.mean(), score, cell.task)
        return Scored(**value)


#: of one small model: nine candidates and two tasks
SMALL = Story(suites=(Suite("tiny", ("step0", "step4", "step8"), (0, 1, 2), 2),), tasks=TASKS[:2])


def make_run(path: Path, story: Story) -> Run:
    """Write the folder of a run with the journal, the store and the learner that a real run uses."""
    folder = RunFolder(path).create()
    plain = config.parse(_settings(story)).as_dict()
    folder.config.write_text(yaml.safe_dump(plain, sort_keys=False), encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch, Journal(folder.journal, folder.lock) as journal:
        patch.setattr(os, "fsync", lambda file: None)  # it need not survive a power cut
        plan = plan_of(story, plain)
        journal.append(plan, RunStarted(0.0, ENVIRONMENT))
        store.create(folder.store, plan, ENVIRONMENT)
        measured = list(_measure(story, plan, folder, journal))
        if not story.tasks or _search(story, plan, folder, journal, measured):
            journal.append(RunFinished(plan.key, 100.0))
    return Run(path)


def _settings(story: Story) -> dict[str, Any]:
    models = [{"name": suite.model, "source": f"models/{suite.model}"} for suite in story.suites]
    search = {"budget": story.budget, "objective": story.objective}
    if story.budget == 1:  # no model need choose the order
        search["policy"] = "sweep"
    return {"name": "demo", "models": models, "tasks": list(story.tasks), "search": search}


def plan_of(story: Story, settings: Mapping[str, Any] | None = None) -> Plan:
    """The plan of a story, by default with its own settings."""
    search = config.parse(_settings(story)).search
    kinds = {name: kind(name) for name in story.tasks}
    weights = task_weights(kinds, search.objective) if kinds else []
    return planned(
        story.suites,
        [
            task(name, kinds[name], w, description="a question")
            for name, w in zip(kinds, weights, strict=True)
        ],
        [MetricInfo(m.name, m.units, m.description, m.name) for m in catalogue().values()],
        search=story.key,
        encodings={
            str(checkpoint): f"{story.weights} of {checkpoint}"
            for suite in story.suites
            for checkpoint in suite.checkpoints()
        },
        window=2,
        widths={suite.model: 32 * (i + 1) for i, suite in enumerate(story.suites)},
        config=settings or config.parse(_settings(story)).as_dict(),
        aliases=story.aliases,
        warnings=story.warnings,
    )


def kind(task: str) -> str:
    return "retrieval" if task.endswith("retrieval") else "classification"


def _measure(story: Story, plan: Plan, folder: RunFolder, journal: Journal) -> Iterator[Suite]:
    """Train and measure every checkpoint; yields the measured part of each suite."""
    for suite in story.suites:
        kept = []
        for number, checkpoint in enumerate(suite.checkpoints()):
            name = str(checkpoint)
            if story.trained:
                trained = {"loss": 7.0 - number / 3, "tokens": 1.0, "seconds": 0.5}
                _record(journal, f"train-{name}", name, "train", trained)
            key = plan.measure_key(checkpoint)
            if name in story.failing:
                _record(journal, key, name, "measure", None)
                continue
            block = _block(story, suite, checkpoint)
            undefined = [[0, "curvature", "Not defined for one token."]]
            value = {
                "layers": list(suite.layers),
                "names": list(catalogue()),
                "values": np.where(np.isnan(block.values), None, block.values).tolist(),
                "stderr": np.where(np.isnan(block.stderr), None, block.stderr).tolist(),
                "status": block.status.tolist(),
                "reasons": undefined if checkpoint.step == 0 else [],
            }
            if story.sized:  # embeddings have 1,000 weights and blocks 100
                value["size"] = {
                    "whole": 1000 + 100 * suite.depth,
                    "parameters": [1000 + 100 * layer for layer in suite.layers],
                    "computed": [100 * layer for layer in suite.layers],
                    "attention": 8,
                }
            _record(journal, key, name, "measure", value)
            store.write(folder.store, "metrics", checkpoint, block)
            kept.append(checkpoint.revision)
        if kept:
            yield replace(suite, revisions=tuple(kept))


def _block(story: Story, suite: Suite, checkpoint: Checkpoint) -> store.Block:
    """Metrics in proportion to the quality of a layer; one is undefined."""
    quality = [story.quality(Arm(*astuple(checkpoint), layer)) for layer in suite.layers]
    names = list(catalogue())
    values = np.outer(quality, np.arange(1, len(names) + 1))
    status = np.ones(values.shape, np.uint8)
    if checkpoint.step == 0:
        undefined = 0, names.index("curvature")
        values[undefined], status[undefined] = np.nan, 2
    return store.Block(values, values / 100, status)


def _search(
    story: Story, plan: Plan, folder: RunFolder, journal: Journal, suites: Sequence[Suite]
) -> bool:
    """Run the search; returns whether it finished."""
    arms, features = grid(suites), arm_features(suites)
    costs = np.ones((len(arms), len(story.tasks)))
    search = config.parse(_settings(story)).search
    kinds = {task: kind(task) for task in story.tasks}
    weights = tuple(task_weights(kinds, search.objective))
    of_tasks = {"weights": weights, "kinds": tuple(kinds.values())}
    problem = Problem(arms, story.tasks, features, 4 * costs, costs, **of_tasks)
    campaign = Learner(problem, policy_named(search.policy), budget=story.budget, window=2, seed=0)
    while not campaign.done:
        for pick in campaign.ask(1):
            key = plan.score_key(pick.cell.arm, plan.tasks_of["score"][pick.cell.task])
            note = {"search": plan.key, "pick": pick.as_dict()}
            journal.append(UnitAsked(key, str(pick.cell), note))
            if len(campaign.picks) == story.decisions:
                return False
            value, outcome = None, Outcome(None)
            if str(pick.cell) not in story.failing:
                value = story.value(pick.cell)
                outcome = Outcome(value.score, value.stderr)
            _record(journal, key, str(pick.cell), "score", value)
            campaign.tell(pick.index, outcome)
    best = campaign.recommendation()
    depth = next(suite.depth for suite in suites if suite.model == best.arm.model)
    location = {"path": "models/x", "revision": None, "depth": depth}
    ended = SearchEnded(
        key=plan.key,
        recommendation=best,
        location=location,
        order=campaign.outcome_order,
        kinds=champions(campaign.state, kinds),
        ending=campaign.ending,
    )
    journal.append(ended)
    store.restore(folder.store, "scores", store.score_blocks(plan, journal.records()))
    return True


def invoke(*words: object) -> Result:
    """What a command does."""
    return CliRunner().invoke(main, [str(word) for word in words])


def text_of(*tables: Table) -> str:
    """Tables as a terminal shows them."""
    return "\n\n".join(table.as_text(100) for table in tables)


def scores_of(run: Run) -> dict[Arm, dict[str, float]]:
    """Raw scores by arm and task."""
    return {
        arm: {task: result.score for task, result in by_task.items()}
        for arm, by_task in run.recorded.items()
    }


def mean_scores(run: Run) -> dict[Arm, float]:
    """The mean scores of a run without their errors."""
    return {arm: mean for arm, (mean, _) in run.means.items()}


def _record(journal: Journal, key: str, name: str, kind: str, value: Any) -> None:
    failure = {"status": "error", "reason": HOSTILE} if value is None else {"status": "ok"}
    journal.append(Record(key, name, kind, value=result_of(kind, value), seconds=1.0, **failure))


@pytest.fixture(scope="session")
def stories(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where runs are kept for the tests that tell the same story."""
    return tmp_path_factory.mktemp("stories")


@pytest.fixture
def a_run(tmp_path: Path, stories: Path) -> Callable[..., Run]:
    """Makes runs in folders of the test's own, whose store is a link to one that all tests of the
    same story share.
    """

    def make(**changes: Any) -> Run:
        story = Story(**changes)
        kept = stories / hashlib.sha256(repr(story).encode()).hexdigest()
        if not kept.exists():
            make_run(kept, story)
        path = tmp_path / kept.name / "demo"
        shutil.copytree(kept, path)
        return Run(path)

    return make


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A finished run with one failed checkpoint and one failed cell."""
    story = Story(failing=("tiny@step0", "small@step8/1:stdlib:package"))
    return make_run(tmp_path_factory.mktemp("runs") / "demo", story)

"""Folders of runs with made-up values, for the report to read."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import product
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
from daskmetrics.bandit.problem import Reward
from daskmetrics.cli import main
from daskmetrics.core.events import RunFinished, RunStarted, SearchEnded, StorePlan, UnitAsked
from daskmetrics.core.files import RunFolder
from daskmetrics.core.names import Arm, Cell, Checkpoint, Suite, grid, log_steps
from daskmetrics.core.outcomes import pack
from daskmetrics.core.readouts import Readout
from daskmetrics.core.results import Reading, Scored, result_of
from daskmetrics.core.table import Table
from daskmetrics.execution import Journal, Record
from daskmetrics.metrics import catalogue
from daskmetrics.report import Run
from tests.events import started

SWEEP = {"policy": "sweep"}
STEPS = tuple(f"step{step}" for step in log_steps(8))
SUITES = (Suite("tiny", STEPS, (0, 1, 2), 2), Suite("small", STEPS, (0, 1, 2, 3), 3))
TASKS = ("stdlib:order", "stdlib:package", "stdlib:retrieval")
LOST = {"last": 0.04, "16d": 0.01}  # by a readout
READOUTS = tuple(
    ",".join(filter(None, parts))
    for parts in product(("mean", "last"), ("", "mean1-3"), ("", "16d"))
)
HOSTILE = "ValueError: <script>alert('x')</script> \x1b[2J"
ENVIRONMENT = {
    "python": "3.11.7",
    "machine": "Linux x86_64, 2 CPUs",
    "daskmetrics": "0.1.0",
    "numpy": "2.0",
}


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
    key: str = "k" * 32
    trained: bool = True
    # of tasks of mteb: names of languages, each 0.1 better than the one before
    subsets: tuple[str, ...] = ()
    aliases: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    outcomes: bool = False
    reward: Reward = "mean"
    objective: str = "all"
    sized: bool = False  # whether weights, tokens and dimensions are recorded, as this version does
    timed: bool = False  # whether the time of reading is, too

    def size(self, suite: Suite) -> dict[str, Any]:
        """Weights of a suite whose embeddings have 1,000 and whose blocks have 100 weights."""
        kept = [1000 + 100 * layer for layer in suite.layers]
        computed = [100 * layer for layer in suite.layers]
        return {
            "whole": 1000 + 100 * suite.depth,
            "parameters": kept,
            "computed": computed,
            "attention": 8,
        }

    # exact scores by task and layer
    merits: Mapping[str, Sequence[float]] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)  # of the search, beside the budget
    n: int = 100  # items of a task

    def detail(self, task: str, score: float) -> dict[str, Any]:
        """What mteb returns, with this score as the mean of the subsets."""
        shift = 0.1 * (len(self.subsets) - 1) / 2
        parts = [
            {
                "main_score": score - shift + 0.1 * i,
                "hf_subset": name,
                "languages": [f"{name}-Latn"],
            }
            for i, name in enumerate(self.subsets)
        ]
        return {
            "task_name": task.removeprefix("mteb:").partition("(")[0],
            "scores": {"test": parts},
        }

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

    def value(self, cell: Cell) -> dict[str, Any]:
        """What the journal holds of a score, by default without outcomes, as of a task of the user."""
        score = self.score(cell)
        value: dict[str, Any] = {"score": score, "stderr": 0.01, "n": self.n, "encode_seconds": 2.0}
        if cell.task.startswith("mteb:"):
            value["detail"] = self.detail(cell.task, score)
        if self.sized:
            width = Readout.parse(cell.arm.readout).width(8 * len(cell.arm.model))
            value |= {"tokens": 10.0 * (1 + self.tasks.index(cell.task)), "dimensions": width}
        if self.timed:
            deepest = max(
                next(suite.layers for suite in self.suites if suite.model == cell.arm.model)
            )
            value["reading"] = Reading(50, deepest, 0.01 * value["tokens"])
        if not self.outcomes:
            return Scored(**value)
        items, own = (np.random.default_rng(list(seed.encode())) for seed in (cell.task, str(cell)))
        # most of it is common to all arms
        noise = items.normal(0, 0.098, self.n) + own.normal(0, 0.02, self.n)
        packed = pack(score + noise - noise.mean(), score, cell.task)
        return Scored(**value, outcomes=packed)


def make_run(path: Path, story: Story) -> Run:
    """Write the folder of a run with the journal, the store and the learner that a real run uses."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda file: None)  # it need not survive a power cut
        return _make_run(path, story)


def _make_run(path: Path, story: Story) -> Run:
    folder = RunFolder(path).create()
    plain = config.parse(_settings(story)).as_dict()
    folder.config.write_text(yaml.safe_dump(plain, sort_keys=False), encoding="utf-8")
    with Journal(folder.journal, folder.lock) as journal:
        journal.append(_start(story))
        store.create(folder.store, _template(story))
        if any(suite.has_readouts for suite in story.suites):
            journal.append(StorePlan(_template(story), 1, 0, {}, {}, {}))
        measured = list(_measure(story, folder, journal))
        if story.tasks and not _search(story, folder, journal, measured):
            return Run(path)
        journal.append(RunFinished(story.key, 100.0))
    return Run(path)


def _settings(story: Story) -> dict[str, Any]:
    return {
        "name": "demo",
        "models": [
            {"name": suite.model, "source": f"models/{suite.model}"} for suite in story.suites
        ],
        "tasks": list(story.tasks),
        "search": {
            "budget": story.budget,
            "reward": story.reward,
            "objective": story.objective,
            # where every score is paid for, no model need choose the order
            **({} if story.budget < 1 else SWEEP),
            **story.settings,
        },
    }


def _start(story: Story) -> RunStarted:
    return started(
        story.key,
        name="demo",
        arms=len(grid(story.suites)),
        checkpoints=sum(len(suite.revisions) for suite in story.suites),
        tasks={task: {"kind": kind(task), "main_score": "accuracy"} for task in story.tasks},
        widths={suite.model: 32 * (i + 1) for i, suite in enumerate(story.suites)},
        environment=ENVIRONMENT,
        aliases=story.aliases,
        warnings=story.warnings,
    )


def kind(task: str) -> str:
    return "retrieval" if task.endswith("retrieval") else "classification"


def _template(story: Story) -> store.Template:
    metrics = catalogue().values()
    measured = store.Axis(*zip(*((m.name, m.units, m.description) for m in metrics), strict=True))
    scored = store.Axis(
        story.tasks, ("accuracy",) * len(story.tasks), ("a question",) * len(story.tasks)
    )
    return store.Template(story.suites, measured, scored, "meaning", {"name": "demo"})


def _measure(story: Story, folder: RunFolder, journal: Journal) -> Iterator[Suite]:
    """Train and measure every checkpoint; yields the measured part of each suite."""
    for suite in story.suites:
        kept = []
        for checkpoint in suite.checkpoints():
            if story.trained:
                loss = {
                    "loss": 7.0 - suite.revisions.index(checkpoint.revision) / 3,
                    "tokens": 1.0,
                    "seconds": 0.5,
                }
                _record(journal, f"train-{checkpoint}", str(checkpoint), "train", loss)
            if str(checkpoint) in story.failing:
                _record(
                    journal, f"measure-{story.key}-{checkpoint}", str(checkpoint), "measure", None
                )
                continue
            block = _block(story, suite, checkpoint)
            reasons = (
                [[0, "curvature", "Not defined for one token."]] if checkpoint.step == 0 else []
            )
            value = {
                "layers": list(suite.layers),
                "names": list(catalogue()),
                "values": np.where(np.isnan(block.values), None, block.values).tolist(),
                "stderr": np.where(np.isnan(block.stderr), None, block.stderr).tolist(),
                "status": block.status.tolist(),
                "reasons": reasons,
            }
            value |= {"size": story.size(suite)} if story.sized else {}
            _record(journal, f"measure-{story.key}-{checkpoint}", str(checkpoint), "measure", value)
            store.write(folder.store, "metrics", checkpoint, block)
            kept.append(checkpoint.revision)
        if kept:
            yield replace(suite, revisions=tuple(kept))


def _block(story: Story, suite: Suite, checkpoint: Checkpoint) -> store.Block:
    arms = [Arm(*asdict(checkpoint).values(), layer) for layer in suite.layers]
    values = np.array(
        [[(i + 1) * story.quality(arm) for i, _ in enumerate(catalogue())] for arm in arms]
    )
    status = np.ones(values.shape, np.uint8)
    if checkpoint.step == 0:
        (
            values[0, list(catalogue()).index("curvature")],
            status[0, list(catalogue()).index("curvature")],
        ) = np.nan, 2
    return store.Block(values, values / 100, status)


def _search(story: Story, folder: RunFolder, journal: Journal, suites: Sequence[Suite]) -> bool:
    """Run the search; returns whether it finished."""
    arms = grid(suites)
    costs = np.ones((len(arms), len(story.tasks)))
    features = arm_features(suites)
    search, kinds = (
        config.parse(_settings(story)).search,
        {task: kind(task) for task in story.tasks},
    )
    weights = tuple(task_weights(kinds, search.objective))
    own = tuple(kinds.values())
    problem = Problem(
        arms, story.tasks, features, 4 * costs, costs, search.reward, weights, kinds=own
    )
    campaign = Learner(problem, policy_named(search.policy), budget=story.budget, window=2, seed=0)
    while not campaign.done:
        for pick in campaign.ask(1):
            key = f"score-{story.key}-{pick.cell}"
            note = {"search": story.key, "pick": pick.as_dict()}
            journal.append(UnitAsked(key, str(pick.cell), note))
            if len(campaign.picks) == story.decisions:
                return False
            failed = str(pick.cell) in story.failing
            value = story.value(pick.cell)
            _record(journal, key, str(pick.cell), "score", None if failed else value)
            campaign.tell(
                pick.index, Outcome(None) if failed else Outcome(value.score, value.stderr)
            )
    best = campaign.recommendation()
    depth = next(suite.depth for suite in suites if suite.model == best.arm.model)
    location = {"path": "models/x", "revision": None, "depth": depth}
    found = [asdict(each) for each in champions(campaign.state, kinds)]
    about = {"location": location, "order": campaign.outcome_order, "kinds": found}
    about["ending"] = campaign.ending
    journal.append(SearchEnded(key=story.key, **best.as_dict(), **about))
    _store_scores(story, folder, journal)
    return True


def _store_scores(story: Story, folder: RunFolder, journal: Journal) -> None:
    run = Run(folder.path)
    rows = {suite.model: suite.rows for suite in story.suites}
    blocks = {}
    for record in journal.records():
        if record.ok and (cell := run.cells.get(record.key)):
            arm_rows = rows[cell.arm.model]
            empty = store.Block.empty(len(arm_rows), len(story.tasks))
            block = blocks.setdefault(cell.arm.checkpoint, empty)
            at = arm_rows.index((cell.arm.layer, cell.arm.readout)), story.tasks.index(cell.task)
            block.values[at], block.stderr[at] = record.value.score, 0.01
            block.status[at] = store.Status.OK
    store.restore(folder.store, "scores", blocks)


def invoke(*words: object) -> Result:
    """What a command does."""
    return CliRunner().invoke(main, [str(word) for word in words])


def text_of(*tables: Table) -> str:
    """Tables as a terminal shows them."""
    return "\n\n".join(table.as_text(100) for table in tables)


def scores_of(run: Run) -> dict[Arm, dict[str, float]]:
    """Raw scores by arm and task."""
    by_arm = {}
    for arm, by_task in run.recorded.items():
        by_arm[arm] = {task: result.score for task, result in by_task.items()}
    return by_arm


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
    """Makes a run in ``tmp_path/demo``; a second call continues in the same folder.

    Its store is a link to the one that the tests of this story share.
    """

    def make(**changes: Any) -> Run:
        story, path = Story(**changes), tmp_path / "demo"
        if path.exists():
            shared = RunFolder(path).store.resolve()
            RunFolder(path).store.unlink()
            shutil.copytree(shared, RunFolder(path).store)
            return make_run(path, story)
        kept = stories / hashlib.sha256(repr(story).encode()).hexdigest()
        if not kept.exists():
            make_run(kept, story)
        shutil.copytree(kept, path, ignore=shutil.ignore_patterns(RunFolder(kept).store.name))
        RunFolder(path).store.symlink_to(RunFolder(kept).store)
        return Run(path)

    return make


@pytest.fixture(scope="session")
def read_out(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A finished sweep of one checkpoint with 8 readouts of each layer, and 8 more of three layers
    together.
    """
    suite = Suite("encoder", ("main",), (0, 1, 2, 3), 3, READOUTS)
    story = Story(
        (suite,), budget=1.0, outcomes=True, sized=True, timed=True, trained=False, settings=SWEEP
    )
    return make_run(tmp_path_factory.mktemp("runs") / "demo", story)


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A finished run with one failed checkpoint and one failed cell."""
    story = Story(failing=("tiny@step0", "small@step8/1:stdlib:package"))
    return make_run(tmp_path_factory.mktemp("runs") / "demo", story)

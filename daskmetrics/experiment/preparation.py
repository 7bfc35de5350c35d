"""A configuration with all its names resolved and checked, before anything starts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from daskmetrics import metrics, tasks
from daskmetrics.bandit import Policy, policy_named, policy_path, task_weights
from daskmetrics.bandit.costs import useful_workers
from daskmetrics.checkpoints import locations as checkpoints
from daskmetrics.checkpoints.locations import LocatedSuite, Location
from daskmetrics.checkpoints.shipped import ModelProtocol, protocol_of
from daskmetrics.config import Config, Corpus, Model, Protocol, Search
from daskmetrics.config.prompts import check_names
from daskmetrics.core import corpus
from daskmetrics.core.errors import ConfigError, unknown
from daskmetrics.core.keys import Key, content_key
from daskmetrics.core.text import OnMessage
from daskmetrics.core.user_code import callee_of, own_code
from daskmetrics.domain.names import Checkpoint, Suite
from daskmetrics.domain.outcomes import FRESH_SHARE
from daskmetrics.domain.plan import Plan, TaskInfo
from daskmetrics.experiment import encoders, train
from daskmetrics.experiment._worker import ItemReader, TextReader
from daskmetrics.experiment.items import tasks_of_items
from daskmetrics.experiment.train import TrainedSuite
from daskmetrics.metrics import Metric
from daskmetrics.tasks import Task
from daskmetrics.tasks.examples import KINDS, divide

MIN_OPEN = 8  # decisions; a few workers more or less do not change the search


@dataclass(frozen=True)
class Experiment:
    """A plan, with what only this machine has to run it."""

    plan: Plan
    config: Config
    readers: Mapping[Checkpoint, ItemReader]
    trainings: Mapping[str, TrainedSuite]  # the suites that this run trains, by model
    metrics: tuple[Metric, ...]
    tasks: tuple[Task, ...]
    prompts: tuple[str, ...]  # the texts whose states are measured
    policy: Policy  # chooses the cells of the search
    # the same tasks on the items that `search.confirm: fresh` keeps back from the search
    fresh: tuple[Task, ...]
    baseline: Checkpoint | None  # whose last layer candidates are compared with, as configured
    scored_on: str = "CPU"  # the resource of a worker that scoring occupies

    @cached_property
    def locations(self) -> Mapping[Checkpoint, Location]:
        """Where each checkpoint is."""
        return {checkpoint: reader.location for checkpoint, reader in self.readers.items()}

    @property
    def missing(self) -> Mapping[Checkpoint, Location]:
        """The checkpoints that are not on this machine."""
        return {name: place for name, place in self.locations.items() if place.is_missing}

    @cached_property
    def by_task(self) -> Mapping[str, Task]:
        """The tasks by name."""
        return {task.name: task for task in self.tasks}

    @property
    def finals(self) -> list[Task]:
        """The tasks of the objective, with the items that are kept back."""
        return [task for task in self.fresh if task.name in self.plan.weights]


def prepare(
    config: Config, policy: Policy | None = None, on_message: OnMessage | None = None
) -> Experiment:
    """Resolve and check all names, folders and files, without starting anything.

    A user's own ``policy`` replaces the configured one; the journal records its import path.
    ``on_message`` is called with a line of text before something that takes long. What does not
    exist is a `ConfigError` with the nearest match.
    """
    if policy is None:
        policy = policy_named(config.search.policy)
    else:
        search = config.search.model_copy(update={"policy": policy_path(policy)})
        config = config.model_copy(update={"search": search})
    chosen_metrics = metrics.resolve(config.metrics)
    chosen_tasks = tasks_of_items(
        tasks.resolve(config.tasks), {model.items for model in config.models}
    )
    fresh: tuple[Task, ...] = ()
    if config.search.confirm == "fresh":
        chosen_tasks, fresh = divide(chosen_tasks, FRESH_SHARE)
    trainings = train.suites_to_train(config)
    located, readers = _located(config, trainings, chosen_tasks, on_message)
    trainings = {
        name: suite.up_to(located[name].suite.revisions) for name, suite in trainings.items()
    }
    prompts: tuple[str, ...] = ()
    if chosen_metrics:
        prompts = prompts_of(config.corpus, config.seed)
    warnings: list[str] = []
    for model in config.models:
        warnings += located[model.name].warnings
        check_names(
            model.prompts or {},
            [task.benchmark_name for task in chosen_tasks],
            (*KINDS, *(task.kind for task in chosen_tasks)),
        )
    for task in chosen_tasks:
        warnings += [f"{task.name}: {text}" for text in task.warnings]
    # enough for the workers that the policy can use
    used = min(config.cluster.workers, useful_workers(config.search.policy))
    plan = Plan(
        suites=tuple(located_suite.suite for located_suite in located.values()),
        tasks=_with_weights(chosen_tasks, config.search),
        metrics=tuple(metric.info(config.seed) for metric in chosen_metrics),
        encodings={
            str(checkpoint): content_key(reader.location.identity, reader.protocol.key)
            for checkpoint, reader in readers.items()
        },
        prompts=corpus.digest(prompts),
        search=content_key(config.search.model_dump(mode="json"), *own_code(callee_of(policy))),
        seed=config.seed,
        window=config.search.window or max(MIN_OPEN, int(used)),
        widths={name: located_suite.width for name, located_suite in located.items()},
        config=config.as_dict(),
        fresh=_with_weights(fresh, config.search),
        protocols=_by_model(readers),
        aliases={
            str(checkpoint): reader.location.aliases
            for checkpoint, reader in readers.items()
            if reader.location.aliases
        },
        warnings=tuple(warnings),
    )
    return Experiment(
        plan=plan,
        config=config,
        readers=readers,
        trainings=trainings,
        metrics=chosen_metrics,
        tasks=chosen_tasks,
        prompts=prompts,
        policy=policy,
        fresh=fresh,
        baseline=_baseline(config.search.baseline, plan),
    )


def _baseline(name: str | None, plan: Plan) -> Checkpoint | None:
    if name is None:
        return None
    names = {str(checkpoint): checkpoint for checkpoint in plan.checkpoints}
    names |= {alias: names[measured] for alias, measured in plan.measured_as.items()}
    if name not in names:
        raise unknown("baseline checkpoint", name, names)
    return names[name]


def task_key(task: Task) -> Key:
    """The content key of a task.

    That of a user's own class follows from its code too.
    """
    if code := own_code(type(task)):
        return content_key(task.key, *code)
    return task.key


def _with_weights(chosen: Sequence[Task], search: Search) -> tuple[TaskInfo, ...]:
    if not chosen:
        return ()
    kinds = {task.name: task.kind for task in chosen}
    weights = task_weights(kinds, search.objective, search.weights)
    return tuple(
        TaskInfo(
            name=task.name,
            kind=task.kind,
            main_score=task.main_score,
            description=task.description,
            key=task_key(task),
            weight=weight,
            floor=task.floor,
        )
        for task, weight in zip(chosen, weights, strict=True)
    )


def _by_model(readers: Mapping[Checkpoint, ItemReader]) -> dict[str, Any]:
    """How each model is read; by revision where its revisions differ."""
    by_model: dict[str, dict[str, Any]] = {}
    for checkpoint, reader in readers.items():
        protocol = reader.protocol.as_dict()
        by_model.setdefault(checkpoint.model, {})[checkpoint.revision] = protocol
    shared = {}
    for model, by_revision in by_model.items():
        first, *others = by_revision.values()
        shared[model] = first if all(other == first for other in others) else by_revision
    return shared


def _located(
    config: Config,
    trainings: Mapping[str, TrainedSuite],
    tasks: Sequence[Task],
    on_message: OnMessage | None,
) -> tuple[dict[str, LocatedSuite], dict[Checkpoint, ItemReader]]:
    """The suite of each model, and what reads each checkpoint."""
    suites: dict[str, LocatedSuite] = {}
    readers: dict[Checkpoint, ItemReader] = {}
    errors = []  # one error says what is wrong with all models
    for model in config.models:
        readouts = (model.readouts or config.readouts).names
        of_checkpoints: Sequence[ItemReader]
        try:
            if model.encoder:
                suite, of_checkpoints = encoders.located(model, readouts, tasks)
            else:
                if model.recipe:
                    suite = trainings[model.name].located(model)
                else:
                    suite = checkpoints.locate(model, on_message)
                suite, of_checkpoints = _read_as_texts(suite, config.protocol, model, readouts)
        except ConfigError as error:
            errors.append(str(error))
        else:
            suites[model.name] = suite
            readers |= zip(suite.suite.checkpoints(), of_checkpoints, strict=True)
    if errors:
        raise ConfigError("\n".join(errors))
    return suites, readers


def _read_as_texts(
    located: LocatedSuite, protocol: Protocol, model: Model, readouts: tuple[str, ...]
) -> tuple[LocatedSuite, list[TextReader]]:
    suite = replace(located.suite, readouts=readouts)
    readers = []
    for location in located.locations:
        read = protocol_of(protocol, model, checkpoints.shipped_folder(location))
        check_readouts(suite, read, located.width)
        readers.append(TextReader(location, read))
    return replace(located, suite=suite), readers


def check_readouts(suite: Suite, protocol: ModelProtocol, hidden: int) -> None:
    """Check that the readouts of a suite fit its protocol and its hidden size."""
    for readout in suite.reads:
        if readout.pooling == "as_shipped" and not protocol.shipped:
            raise ConfigError(
                f"Model '{suite.model}': It is to be read with 'pooling: as_shipped', but ships no"
                " pooling: it is no folder of sentence-transformers, or the protocol does not read"
                " it as one. Set the protocol's 'pooling: as_shipped', or give the model 'readouts'"
                " of its own without it."
            )
        width = hidden
        if protocol.shipped and readout.pooling in ("", "as_shipped"):
            width = protocol.shipped.width(hidden)
        try:
            readout.check(width)
        except ConfigError as error:
            raise ConfigError(f"Model '{suite.model}': {error}") from None


def prompts_of(section: Corpus, seed: int) -> tuple[str, ...]:
    """The texts that this section draws with a seed."""
    source = section.source
    count = section.prompts
    if not source.startswith("task:"):
        return corpus.prompts(source, count, seed)
    (task,) = tasks.resolve([source.removeprefix("task:")])
    return corpus.draw(task.texts(), count, seed, source)

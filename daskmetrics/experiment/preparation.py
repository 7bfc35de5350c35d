"""A configuration with all its names resolved and checked, before anything starts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain

from daskmetrics import metrics, tasks
from daskmetrics.bandit import Policy, policy_named, policy_path, task_weights
from daskmetrics.checkpoints import locations as checkpoints
from daskmetrics.checkpoints.locations import LocatedSuite, Location
from daskmetrics.checkpoints.shipped import ModelProtocol, protocol_of
from daskmetrics.config import Config, Corpus, Readouts
from daskmetrics.config.prompts import check_names
from daskmetrics.core import corpus
from daskmetrics.core.errors import ConfigError, unknown
from daskmetrics.core.names import Arm, Checkpoint, Key, Suite, content_key, grid
from daskmetrics.core.outcomes import FRESH_SHARE
from daskmetrics.core.text import OnMessage
from daskmetrics.core.user_code import callee_of, own_code
from daskmetrics.experiment import train
from daskmetrics.experiment.train import TrainedSuite
from daskmetrics.metrics import Metric
from daskmetrics.metrics.views import AUGMENTATION
from daskmetrics.store import Axis, Template, score_key
from daskmetrics.tasks import Task
from daskmetrics.tasks.examples import KINDS, ExampleTask, divide

VERSION = 3  # of the computation: increase it when equal inputs no longer give equal numbers


@dataclass(frozen=True)
class Experiment:
    """A configuration with all its names resolved."""

    config: Config
    suites: tuple[Suite, ...]
    locations: Mapping[Checkpoint, Location]
    protocols: Mapping[Checkpoint, ModelProtocol]  # how the texts of each checkpoint become vectors
    widths: Mapping[str, int]  # hidden size of each model
    trainings: Mapping[str, TrainedSuite]  # the suites that this run trains, by model
    metrics: tuple[Metric, ...]
    tasks: tuple[Task, ...]
    prompts: tuple[str, ...]  # the texts whose states are measured
    policy: Policy  # chooses the cells of the search
    # the same tasks on the items that `search.confirm: fresh` keeps back from the search
    fresh: tuple[Task, ...]
    # looks at the tasks, of which a search takes those that pay (`search.build_problem`)
    looks: tuple[ExampleTask, ...]
    # what is doubtful about weights or data; each begins with the model or task
    warnings: tuple[str, ...]
    scored_on: str = "CPU"  # the resource of a worker that scoring occupies

    @cached_property
    def arms(self) -> tuple[Arm, ...]:
        return grid(self.suites)

    @cached_property
    def checkpoints(self) -> tuple[Checkpoint, ...]:
        return tuple(chain.from_iterable(suite.checkpoints() for suite in self.suites))

    @cached_property
    def baseline(self) -> Checkpoint | None:
        """The checkpoint with whose last layer every candidate is compared, if one is configured;
        `ConfigError` if it does not exist.
        """
        configured = self.config.search.baseline
        if configured is None:
            return None
        by_text = {str(name): checkpoint for name, checkpoint in self.by_name.items()}
        if configured not in by_text:
            raise unknown("baseline checkpoint", configured, by_text)
        return by_text[configured]

    @cached_property
    def by_name(self) -> Mapping[Checkpoint, Checkpoint]:
        """The checkpoint that is measured, by its own name and by those of revisions of equal
        content.
        """
        by_name = {}
        for checkpoint, location in self.locations.items():
            for name in (checkpoint.revision, *location.aliases):
                by_name[Checkpoint(checkpoint.model, name)] = checkpoint
        return by_name

    @property
    def missing(self) -> Mapping[Checkpoint, Location]:
        """The checkpoints that are not on this machine."""
        return {name: place for name, place in self.locations.items() if place.is_missing}

    @cached_property
    def by_task(self) -> Mapping[str, Task]:
        """The tasks and the looks at them, by name."""
        return {task.name: task for task in (*self.tasks, *self.looks)}

    @cached_property
    def by_model(self) -> Mapping[str, Suite]:
        return {suite.model: suite for suite in self.suites}

    @cached_property
    def kinds(self) -> Mapping[str, str]:
        return {task.name: task.kind for task in self.tasks}

    @cached_property
    def task_weights(self) -> Mapping[str, float]:
        """Weights of the tasks in the search's objective; `ConfigError` for an unknown name, or if
        all are zero.
        """
        if not self.tasks:
            return {}
        search = self.config.search
        weights = task_weights(self.kinds, search.objective, search.weights)
        return dict(zip(self.kinds, weights, strict=True))

    @cached_property
    def prompts_key(self) -> Key:
        return corpus.digest(self.prompts)

    @cached_property
    def numbers_key(self) -> Key:
        """Content key of everything that determines metrics and scores."""
        measuring = content_key("measuring", list(self.measure_keys.values()))
        scoring = [task_key(task) for task in self.tasks]
        return content_key("numbers", measuring, scoring, self.config.seed)

    @cached_property
    def key(self) -> Key:
        """Content key of everything that determines the recommendation; the cluster is not part of
        it.
        """
        search = self.config.search.model_dump(mode="json")
        looks = [look.key for look in self.looks]
        readouts = []
        if any(suite.has_readouts for suite in self.suites):
            readouts.append([suite.readouts for suite in self.suites])
        policy = own_code(callee_of(self.policy))
        return content_key("run", self.numbers_key, search, *looks, *readouts, *policy)

    @cached_property
    def metric_keys(self) -> tuple[Key, ...]:
        views = [AUGMENTATION, self.config.seed]
        return tuple(
            content_key("metric", metric.identity, views if metric.views > 1 else None)
            for metric in self.metrics
        )

    def states_key(self, checkpoint: Checkpoint) -> Key:
        """Content key of the states of a checkpoint from which metrics are computed."""
        return content_key(
            "states",
            VERSION,
            self.locations[checkpoint].identity,
            self.by_model[checkpoint.model].layers,
            self.prompts_key,
            self.protocols[checkpoint].key,
        )

    @cached_property
    def measure_keys(self) -> Mapping[Checkpoint, Key]:
        keys = {}
        for checkpoint in self.checkpoints:
            states = self.states_key(checkpoint)
            keys[checkpoint] = content_key("measure", str(checkpoint), states, self.metric_keys)
        return keys

    def encode_key(self, checkpoint: Checkpoint, task: Task) -> Key:
        protocol = self.protocols[checkpoint].key
        return content_key(
            "encode", VERSION, self.locations[checkpoint].identity, task_key(task), protocol
        )

    def score_key(self, arm: Arm, task: Task) -> Key:
        return score_key(
            VERSION, self.encode_key(arm.checkpoint, task), arm, self.config.seed, self.prompts_key
        )

    def template(self, attributes: Mapping[str, object]) -> Template:
        """The layout of the store that this experiment fills."""
        measured = Axis(
            tuple(metric.name for metric in self.metrics),
            tuple(metric.units for metric in self.metrics),
            tuple(metric.description for metric in self.metrics),
        )
        scored = Axis(
            tuple(task.name for task in self.tasks),
            tuple(task.main_score for task in self.tasks),
            tuple(task.description for task in self.tasks),
        )
        return Template(self.suites, measured, scored, self.numbers_key, attributes)


def task_key(task: Task) -> Key:
    """The content key of a task; that of a user's own class follows from its code too."""
    if code := own_code(type(task)):
        return content_key(task.key, *code)
    return task.key


def prepare(
    config: Config, policy: Policy | None = None, on_message: OnMessage | None = None
) -> Experiment:
    """Resolve and check every name, folder and file of a configuration; nothing is started.

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
    chosen_tasks = tasks.resolve(config.tasks)
    fresh: tuple[Task, ...] = ()
    if config.search.confirm == "fresh":
        chosen_tasks, fresh = divide(chosen_tasks, FRESH_SHARE)
    own: list[ExampleTask] = []
    if config.search.items == "adaptive":
        own += (task for task in chosen_tasks if isinstance(task, ExampleTask))
    trainings = train.suites_to_train(config)
    located = _located(config, trainings, on_message)
    prompts = draw_prompts(config)
    suites: list[Suite] = []
    locations: dict[Checkpoint, Location] = {}
    protocols: dict[Checkpoint, ModelProtocol] = {}
    warnings: list[str] = []
    for model in config.models:
        located_suite = located[model.name]
        names = located_suite.suite.checkpoints()
        for checkpoint, location in zip(names, located_suite.locations, strict=True):
            locations[checkpoint] = location
            folder = checkpoints.shipped_folder(location)
            protocols[checkpoint] = protocol_of(config.protocol, model, folder)
        warnings += located_suite.warnings
        readouts = model.readouts or config.readouts
        suites.append(_with_readouts(located_suite, readouts, protocols, len(prompts)))
        check_names(
            model.prompts or {},
            [getattr(task, "benchmark_name", task.name) for task in chosen_tasks],
            (*KINDS, *(task.kind for task in chosen_tasks)),
        )
    for task in chosen_tasks:
        warnings += [f"{task.name}: {text}" for text in getattr(task, "warnings", ())]
    experiment = Experiment(
        config=config,
        suites=tuple(suites),
        locations=locations,
        protocols=protocols,
        widths={name: suite.width for name, suite in located.items()},
        trainings=trainings,
        metrics=chosen_metrics,
        tasks=chosen_tasks,
        prompts=prompts,
        policy=policy,
        fresh=fresh,
        looks=tuple(filter(None, (task.look() for task in own))),
        warnings=tuple(warnings),
    )
    # unknown names are an error now, not during the run
    _ = experiment.baseline, experiment.task_weights
    return experiment


def _located(
    config: Config, trainings: Mapping[str, TrainedSuite], on_message: OnMessage | None
) -> dict[str, LocatedSuite]:
    """The suite of each model, by its name; one error says what is wrong with all of them."""
    located = {}
    errors = []
    for model in config.models:
        try:
            if model.recipe:
                located[model.name] = trainings[model.name].located(model)
            else:
                located[model.name] = checkpoints.locate(model, on_message)
        except ConfigError as error:
            errors.append(str(error))
    if errors:
        raise ConfigError("\n".join(errors))
    return located


def _with_readouts(
    located: LocatedSuite,
    readouts: Readouts,
    protocols: Mapping[Checkpoint, ModelProtocol],
    corpus: int,
) -> Suite:
    """The suite with these readouts, which must be possible for the model and the corpus."""
    suite = located.suite
    try:
        suite = replace(suite, readouts=readouts.names(suite.depth))
        if suite.has_readouts:
            for checkpoint in suite.checkpoints():
                check_readouts(suite, protocols[checkpoint], located.width, corpus)
    except ConfigError as error:
        raise ConfigError(f"Model '{suite.model}': {error}") from None
    return suite


def check_readouts(suite: Suite, protocol: ModelProtocol, hidden: int, corpus: int) -> None:
    """Check that the readouts of a suite fit its protocol, its hidden size and a corpus of so many
    texts.
    """
    for readout in suite.reads:
        if readout.pooling == "as_shipped" and not protocol.shipped:
            raise ConfigError(
                "It is to be read with 'pooling: as_shipped', but ships no pooling: it is no folder"
                " of sentence-transformers, or the protocol does not read it as one. Set the"
                " protocol's 'pooling: as_shipped', or give the model 'readouts' of its own without"
                " it."
            )
        width = hidden
        if protocol.shipped and readout.pooling in ("", "as_shipped"):
            width = protocol.shipped.width(hidden)
        readout.check(width, corpus)


def draw_prompts(config: Config) -> tuple[str, ...]:
    """The texts that are measured, or on which readouts are fitted; none if the configuration needs
    none.
    """
    readouts = [model.readouts or config.readouts for model in config.models]
    if not config.metrics and not any(section.is_fitted for section in readouts):
        return ()
    return prompts_of(config.corpus, config.seed)


def prompts_of(section: Corpus, seed: int) -> tuple[str, ...]:
    """The texts that this section draws with a seed."""
    source = section.source
    count = section.prompts
    if not source.startswith("task:"):
        return corpus.prompts(source, count, seed)
    (task,) = tasks.resolve([source.removeprefix("task:")])
    return corpus.draw(task.texts(), count, seed, source)

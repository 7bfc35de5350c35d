"""The entries of a journal and the messages to the live pages: one frozen class for each kind, and
their JSON.

A line of a journal holds the object that `to_json` returns, and `from_json` reads it back. All
other code tells the kinds apart by their classes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, TypeAlias, TypeVar

from daskmetrics.core.errors import ConfigError, DataError
from daskmetrics.core.names import Arm, Cell, Key, Suite, content_key, without_default
from daskmetrics.core.results import Measured, Scored, result_as_json, result_of
from daskmetrics.core.serialization import build

Plain: TypeAlias = Mapping[str, Any]
M = TypeVar("M")
E = TypeVar("E")
R = TypeVar("R")


@dataclass(frozen=True)
class RunStarted:
    """An experiment begins, or goes on."""

    key: Key  # of the configuration: a changed one has another key
    at: float  # seconds since 1970
    name: str
    arms: int  # planned, as are the checkpoints
    checkpoints: int
    tasks: Mapping[str, Mapping[str, str]]  # kind and main score of each task
    widths: Mapping[str, int]  # of each model's hidden states
    window: int  # how many decisions of the search may be open at once
    environment: Mapping[str, str]  # versions and machine
    # revisions of equal content, which are measured as one, by the name of that checkpoint
    aliases: Mapping[str, Sequence[str]] = field(default_factory=dict)
    # what is doubtful about the weights of a model or the data of a task
    warnings: Sequence[str] = ()
    config: Plain = field(default_factory=dict)  # the whole configuration
    # the task that each look is at, by the name of the look; a search uses those that pay
    looks: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Axis:
    """The names along one dimension, with the unit and description of each."""

    names: tuple[str, ...]
    units: tuple[str, ...]
    descriptions: tuple[str, ...]


@dataclass(frozen=True)
class Template:
    """The shape and meaning of a store.

    Attributes
    ----------
    suites : tuple of Suite
    metrics, tasks : Axis
    meaning : str
        Key of everything that decides the numbers: weights, prompts, protocol, tasks, seed.
    attributes : mapping
        Protocol, versions and the like; kept at the root of the store.
    """

    suites: tuple[Suite, ...]
    metrics: Axis
    tasks: Axis
    meaning: Key
    attributes: Mapping[str, Any]

    @property
    def key(self) -> Key:
        """Names shape and meaning of the store: numbers of different keys must not be in one
        store.
        """
        # a suite of default readouts has the key that it had before there were others
        suites = [[*asdict(s, dict_factory=without_default).values()] for s in self.suites]
        return content_key("store", 1, suites, self.metrics.names, self.tasks.names, self.meaning)


@dataclass(frozen=True)
class StorePlan:
    """What the store is to hold, and the keys of the units that fill it: enough to build it from
    the journal alone.

    Attributes
    ----------
    template : Template
    version : int
        Of the computation.
    seed : int
        The run's.
    measure : mapping of str to Key
        Of each checkpoint.
    encode : mapping of str to tuple of Key
        Of each checkpoint, one for each task.
    files : mapping of str to str
        Digests of the metadata and coordinate files (`daskmetrics.store.files_of`).
    """

    template: Template
    version: int
    seed: int
    measure: Mapping[str, Key]
    encode: Mapping[str, tuple[Key, ...]]
    files: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class WorkerJoined:
    """A worker has answered the handshake."""

    name: str
    host: str
    versions: Mapping[str, str]
    gpus: Sequence[str]


@dataclass(frozen=True)
class UnitAsked:
    """The source has asked for a unit; `note` says why, for a score with the decision of the search
    as ``pick``.
    """

    key: Key
    name: str
    note: Plain

    @property
    def pick(self) -> Plain | None:
        """The decision of the search, if the unit is one."""
        return self.note.get("pick")


@dataclass(frozen=True)
class Record:
    """What the journal holds of a finished or failed work unit.

    The value of a unit that knows metrics, tasks or items is one of `core.results`; other units
    give any value of JSON. A unit without a value has a `status` other than ``ok`` and a `reason`;
    it is never a number.
    `seconds` is the time of the last attempt on its worker, without that of its input; `at` is the
    driver's clock when the record was written, in seconds since 1970.
    """

    key: Key
    name: str
    kind: str
    status: str
    value: object = None
    reason: str | None = None
    attempts: int = 1
    seconds: float = 0.0
    worker: str | None = None
    at: float = 0.0

    @property
    def ok(self) -> bool:
        return self.status == "ok"


@dataclass(frozen=True)
class AttemptFailed:
    """One attempt of a unit failed; `blamed` says whether the fault counts against the unit."""

    key: Key
    name: str
    kind: str
    worker: str | None
    attempt: int
    fault: str
    blamed: bool
    reason: str
    trace: str


@dataclass(frozen=True)
class InputRecovered:
    """A shared input succeeded after faults, which no longer count."""

    key: Key
    name: str


@dataclass(frozen=True)
class UnitsRetried:
    """The user has the failures of these units taken back, so that they are tried again."""

    keys: Sequence[Key]


@dataclass(frozen=True)
class StoreRepaired:
    """Parts of the store were written again from the journal."""

    parts: Sequence[str]


@dataclass(frozen=True)
class UsageMeasured:
    """CPU seconds and memory that each worker has used, by its name."""

    workers: Mapping[str, Plain]


@dataclass(frozen=True)
class SearchEnded:
    """The recommendation of the search, as `bandit.Recommendation.as_dict` gives it, and what it
    rests on.
    """

    key: Key  # of the configuration
    location: Plain  # where a reader loads the best arm from
    best: Plain
    default: Plain
    confirmed: bool
    probability_best: float
    probability_within: float
    within: float
    credible: Sequence[Plain]
    top: Sequence[Plain]
    cells: int
    failed: int
    spent: float
    budget: float
    exhaustive: float
    # of the observations, from which the posterior is computed again to the last bit
    order: Sequence[Any]
    kinds: Sequence[Plain]  # the best arm of every kind of task
    expected_loss: float  # of the recommended arm against the best one
    ending: str  # why it ended (`bandit.Learner.ending`)
    # the arms that were scored on items kept back from the search, the best arm first
    fresh: Sequence[str] = ()
    looks: int = 0  # scores of a share of a task's items, beside the cells

    @property
    def best_arm(self) -> Arm:
        return Arm(**self.best["arm"])

    @property
    def default_arm(self) -> Arm:
        return Arm(**self.default["arm"])


@dataclass(frozen=True)
class RunFinished:
    """An experiment has nothing left to do."""

    key: Key
    at: float


@dataclass(frozen=True)
class MapStarted:
    """A map begins, or goes on: its function, the number of its items, and its options."""

    function: str
    version: str
    stated: bool
    reference: str | None
    items: int
    seed: int
    batch_size: int
    retries: int
    timeout: float | None
    environment: Mapping[str, str]
    digest: str = ""  # SHA-256 of the file of its items
    code: str = ""  # the version of the code that ran, if `version` is that of an earlier one


@dataclass(frozen=True)
class ItemsRetried:
    """The user has the failures of these items of a map taken back, so that they are tried
    again.
    """

    items: Sequence[Key]


Event: TypeAlias = (
    RunStarted | StorePlan | WorkerJoined | UnitAsked | Record | AttemptFailed | InputRecovered | UnitsRetried
    | StoreRepaired | UsageMeasured | SearchEnded | RunFinished | MapStarted | ItemsRetried
)  # fmt: skip


def standing(entries: Iterable[Event]) -> list[Event]:
    """The entries that count: without what a later `UnitsRetried` took back, and without second
    records of a key.

    It takes back the failures and attempts of the units that it names, and that the run was
    finished. Of several records of one key the first with a value counts, or else the first.
    """
    retried: set[Key] = set()
    kept: list[Event] = []
    for entry in reversed(list(entries)):
        match entry:
            case UnitsRetried(keys=keys):
                retried.update(keys)
            case Record(key=key, ok=False) | AttemptFailed(key=key) if key in retried:
                continue
            case RunFinished() if retried:
                continue
        kept.append(entry)
    counting: dict[Key, Record] = {}
    for entry in reversed(kept):
        if isinstance(entry, Record):
            earlier = counting.get(entry.key)
            if earlier is None or (entry.ok and not earlier.ok):
                counting[entry.key] = entry
    return [
        entry
        for entry in reversed(kept)
        if not isinstance(entry, Record) or counting[entry.key] is entry
    ]


def measures_nothing(record: Record) -> bool:
    """Whether this records a checkpoint of a run without metrics: no model was loaded."""
    return isinstance(record.value, Measured) and not record.value.names


def records(entries: Iterable[Event]) -> Iterator[Record]:
    """The records that count (`standing`), oldest first."""
    return (entry for entry in standing(entries) if isinstance(entry, Record))


def is_finished(entries: Iterable[Event], key: Key | None = None) -> bool:
    """Whether a configuration has nothing left to do: it is that of the latest start, it finished,
    and no failure was taken back since.

    The default is the configuration of the latest start: a run that finished, was enlarged and was
    then interrupted is not finished.
    """
    entries = list(entries)
    start = latest(entries, RunStarted)
    if start is None or key not in (None, start.key):
        return False
    return any(
        isinstance(entry, RunFinished) and entry.key == start.key for entry in standing(entries)
    )


def latest(entries: Sequence[Event], kind: type[E]) -> E | None:
    """The last entry of a class, or None."""
    return next((entry for entry in reversed(entries) if isinstance(entry, kind)), None)


@dataclass(frozen=True)
class UnitsPlanned:
    """How many units of each kind a run plans, and the steps that each training unit takes, by its
    name; for the live pages.
    """

    units: Mapping[str, int]
    steps: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class ObjectiveSet:
    """The weights of the tasks in a run's objective; for the live pages."""

    weights: Mapping[str, float]


@dataclass(frozen=True)
class SearchStarted:
    """What a search may spend, in the cost that its budget is counted in; for the live pages."""

    budget: float
    exhaustive: float
    spent: float


@dataclass(frozen=True)
class PosteriorUpdated:
    """The posterior of every arm; for the live pages."""

    values: bytes  # mean and sd (2, A) as float32, NaN for arms that could not be measured
    leader: str
    shortfall: float  # how far the 95 % bound of any arm lies above the leader's mean


@dataclass(frozen=True)
class HistorySent:
    """Everything sent before this happened before the run was resumed; for the live pages."""


LiveMessage: TypeAlias = (
    Event | UnitsPlanned | ObjectiveSet | SearchStarted | PosteriorUpdated | HistorySent
)

JOURNAL: Mapping[str, type[Event]] = {
    "start": RunStarted,
    "plan": StorePlan,
    "worker": WorkerJoined,
    "ask": UnitAsked,
    "record": Record,
    "attempt": AttemptFailed,
    "recovered": InputRecovered,
    "retry": UnitsRetried,
    "repair": StoreRepaired,
    "usage": UsageMeasured,
    "result": SearchEnded,
    "finished": RunFinished,
    "map": MapStarted,
    "retry_items": ItemsRetried,
}
"""The entries of a journal, by the words that name their kinds."""

_LIVE: Mapping[str, type[LiveMessage]] = {
    **JOURNAL,
    "planned": UnitsPlanned,
    "objective": ObjectiveSet,
    "search": SearchStarted,
    "posterior": PosteriorUpdated,
    "history_sent": HistorySent,
}
KINDS: Mapping[type[LiveMessage], str] = {cls: kind for kind, cls in _LIVE.items()}
"""The word that names the kind of an entry in the journal, such as ``record``, by its class."""


def measured(entries: Iterable[Event]) -> Iterator[tuple[Record, Measured]]:
    """The records of measured checkpoints among entries, with their results."""
    return with_results(entries, Measured)


def scored(entries: Iterable[Event], kind: str = "score") -> Iterator[tuple[Record, Scored]]:
    """The records of scores among entries, with their results; ``kind`` may be ``fresh``, for items
    that were kept back from the search, or ``look``.
    """
    return (result for result in with_results(entries, Scored) if result[0].kind == kind)


def with_results(entries: Iterable[Event], result: type[R]) -> Iterator[tuple[Record, R]]:
    """The records among entries whose value is of this class, with it."""
    for entry in entries:
        if isinstance(entry, Record) and isinstance(entry.value, result):
            yield entry, entry.value


def to_json(message: LiveMessage) -> dict[str, Any]:
    """The JSON object of an entry.

    >>> to_json(UnitsRetried(["a"]))
    {'type': 'retry', 'keys': ['a']}
    """
    plain = {"type": KINDS[type(message)], **vars(message)}
    if isinstance(message, Record):
        plain["value"] = result_as_json(message.value)
    elif isinstance(message, StorePlan):
        attributes = dict(message.template.attributes)
        template = asdict(message.template, dict_factory=without_default)
        plain["template"] = {**template, "attributes": attributes}
    return plain


def from_json(plain: Plain) -> Event:
    """The inverse of `to_json`; raises ValueError for a kind of entry, a field or a type that it
    does not know.
    """
    return _read(plain, JOURNAL)


def message_from_json(plain: Plain) -> LiveMessage:
    """The same for a message to the live pages."""
    return _read(plain, _LIVE)


def _read(plain: Plain, kinds: Mapping[str, type[M]]) -> M:
    fields = dict(plain)
    kind = fields.pop("type", None)
    cls = kinds.get(str(kind))
    if cls is None:
        raise ValueError(f"unknown kind of entry {kind!r}")
    try:
        if cls is Record:
            fields["value"] = result_of(str(fields.get("kind")), fields.get("value"))
        entry = build(cls, fields)
        _require_sense(entry)
        return entry
    except (ConfigError, ValueError) as error:
        problem = str(error).rstrip(".")
        raise ValueError(f"an entry of the kind {kind!r}: {problem}") from None


@dataclass(frozen=True)
class _Pick:
    """A decision in the note of a unit, as `bandit.Pick` writes it."""

    index: int
    cell: Cell
    stage: str
    cost: float
    why: Plain = field(default_factory=dict)
    known: int = 0


def _require_sense(entry: object) -> None:
    """Raise ValueError for what no type of a field rules out, and readers rely on."""
    match entry:
        case UnitAsked(note={"pick": pick, "search": str()}):
            build(_Pick, pick)
        case UnitAsked(note={"items": [*keys]}) if all(isinstance(key, str) for key in keys):
            pass
        case UnitAsked(note=note) if note.keys() & {"pick", "items"}:
            raise ValueError(f"the note is {note!s:.100}")


def require_experiment(entries: Sequence[Event], place: object) -> None:
    """Raise ConfigError if these are the entries of a map, and DataError if one has a name that no
    run writes, since names go to files and pages.
    """
    if latest(entries, MapStarted):
        raise ConfigError(
            f"'{place}' contains a map, not an experiment. Use `daskmetrics status`, `runs journal`"
            " or `runs verify` to read it, and `daskmetrics map ... --retry-failed` to try its"
            " failures again."
        )
    names = (str(getattr(entry, "name", "")) for entry in entries)
    wrong = next((name for name in names if not name.isprintable()), None)
    if wrong:
        raise DataError(f"'{place}' has the name {wrong!r}, which no run of daskmetrics has.")


MAP = "daskmetrics-map"  #: items of a map by status: ``{"items": 500, "counts": {"ok": 20}}``
CLUSTER = "daskmetrics-cluster"  #: a line about queue and machines: ``{"text": ...}``
REFUSED = "daskmetrics-refused"  #: name of a worker that gets no units: it has other versions
#: a step: ``{"model", "rank", "step", "loss", "tokens_per_second"}``, one of the first two
TRAIN = "daskmetrics-train"

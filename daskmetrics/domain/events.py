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
from daskmetrics.core.keys import Key
from daskmetrics.core.serialization import build
from daskmetrics.domain.names import Arm, Cell
from daskmetrics.domain.plan import Plan
from daskmetrics.domain.recommendation import Recommendation
from daskmetrics.domain.record import Record
from daskmetrics.domain.results import Measured, Scored, result_as_json, result_of

Plain: TypeAlias = Mapping[str, Any]
M = TypeVar("M")
E = TypeVar("E")
R = TypeVar("R")


@dataclass(frozen=True)
class RunStarted:
    """A run of the latest plan begins, or goes on."""

    at: float  # seconds since 1970
    environment: Mapping[str, str]  # versions and machine


@dataclass(frozen=True)
class StoreCreated:
    """The store was laid out for a plan of this `Plan.store_key`.

    ``files`` are the digests of its metadata and coordinates (`daskmetrics.store.files_of`).
    """

    key: Key
    files: Mapping[str, str]


@dataclass(frozen=True)
class WorkerJoined:
    """A worker has answered the handshake."""

    name: str
    host: str
    versions: Mapping[str, str]
    gpus: Sequence[str]


@dataclass(frozen=True)
class UnitAsked:
    """The source has asked for a unit; `note` says why.

    For a score it has the decision of the search as ``pick``.
    """

    key: Key
    name: str
    note: Plain

    @property
    def pick(self) -> Plain | None:
        """The decision of the search, if the unit is one."""
        return self.note.get("pick")


@dataclass(frozen=True)
class AttemptFailed:
    """One attempt failed; `blamed` says whether the unit is at fault."""

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
    """The user asks to try these failed units again.

    Their failures no longer count.
    """

    keys: Sequence[Key]


@dataclass(frozen=True)
class StoreRepaired:
    """Parts of the store were written again from the journal."""

    parts: Sequence[str]


@dataclass(frozen=True)
class UsageMeasured:
    """CPU seconds and memory of each worker, by its name."""

    workers: Mapping[str, Plain]


@dataclass(frozen=True)
class SearchEnded:
    """What the search recommends, and what that rests on."""

    key: Key  # of the plan
    recommendation: Recommendation
    location: Plain  # where a reader loads the best arm from
    # of the observations, from which the posterior is computed again to the last bit
    order: Sequence[int]
    kinds: Mapping[str, Arm]  # the best arm of every kind of task
    ending: str  # why it ended (`bandit.Learner.ending`)
    # the arms that were scored on items kept back from the search, the best arm first
    fresh: Sequence[Arm] = ()


@dataclass(frozen=True)
class RunFinished:
    """A run has nothing left to do."""

    key: Key  # of the plan
    at: float


@dataclass(frozen=True)
class MapStarted:
    """A map begins or goes on: function, items and options."""

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
    """The user asks to try these failed items of a map again.

    Their failures no longer count.
    """

    items: Sequence[Key]


Event: TypeAlias = (
    Plan | RunStarted | StoreCreated | WorkerJoined | UnitAsked | Record | AttemptFailed | InputRecovered | UnitsRetried
    | StoreRepaired | UsageMeasured | SearchEnded | RunFinished | MapStarted | ItemsRetried
)  # fmt: skip


def standing(entries: Iterable[Event]) -> list[Event]:
    """The entries that count: not taken back, and no second records.

    A later `UnitsRetried` takes back the failures and attempts of the units that it names, and that
    the run was finished. Of several records of one key the first with a value counts, or else the
    first.
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
    """Whether this measured no metrics: no model was loaded."""
    return isinstance(record.value, Measured) and not record.value.names


def records(entries: Iterable[Event]) -> Iterator[Record]:
    """The records that count (`standing`), oldest first."""
    return (entry for entry in standing(entries) if isinstance(entry, Record))


def is_finished(entries: Iterable[Event], key: Key | None = None) -> bool:
    """Whether the latest plan has nothing left to do.

    It has finished, and no failure was taken back since. False if its key is not this one.
    """
    entries = list(entries)
    plan = latest(entries, Plan)
    if plan is None or key not in (None, plan.key):
        return False
    store = latest(entries, StoreCreated)
    if store is not None and store.key != plan.store_key:
        return False  # it came back, and was ended before its store was laid out again
    return any(
        isinstance(entry, RunFinished) and entry.key == plan.key for entry in standing(entries)
    )


def earliest(entries: Sequence[Event], kind: type[E]) -> E:
    """The first entry of a class, of which there is one."""
    return next(entry for entry in entries if isinstance(entry, kind))


def latest(entries: Sequence[Event], kind: type[E]) -> E | None:
    """The last entry of a class, or None."""
    return next((entry for entry in reversed(entries) if isinstance(entry, kind)), None)


def ended_search(entries: Sequence[Event], key: Key) -> SearchEnded | None:
    """The latest end of the search of a plan, by its key; None before it."""
    ends = (entry for entry in reversed(entries) if isinstance(entry, SearchEnded))
    return next((end for end in ends if end.key == key), None)


@dataclass(frozen=True)
class UnitsPlanned:
    """Planned units by kind, and steps by training unit; for live pages."""

    units: Mapping[str, int]
    steps: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class SearchStarted:
    """What a search may spend, in its unit; for live pages.

    The unit is that in which the budget is counted.
    """

    budget: float
    exhaustive: float
    spent: float


@dataclass(frozen=True)
class PosteriorUpdated:
    """The posterior of every arm; for the live pages."""

    values: bytes  # mean and sd (2, A) as float32, NaN for arms that could not be measured
    leader: str
    loss: float  # by how much the best arm is expected to exceed the leader


@dataclass(frozen=True)
class HistorySent:
    """All earlier messages precede a resumed run; for live pages."""


LiveMessage: TypeAlias = Event | UnitsPlanned | SearchStarted | PosteriorUpdated | HistorySent

JOURNAL: Mapping[str, type[Event]] = {
    "plan": Plan,
    "start": RunStarted,
    "store": StoreCreated,
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
    """The records of scores among entries, with their results.

    ``kind`` may be ``fresh``, for items that were kept back from the search.
    """
    return (result for result in with_results(entries, Scored) if result[0].kind == kind)


def with_results(entries: Iterable[Event], result: type[R]) -> Iterator[tuple[Record, R]]:
    """The records whose value is of this class, with it."""
    for entry in entries:
        if isinstance(entry, Record) and isinstance(entry.value, result):
            yield entry, entry.value


def to_json(message: LiveMessage) -> dict[str, Any]:
    """The JSON object of an entry.

    >>> to_json(UnitsRetried(["a"]))
    {'type': 'retry', 'keys': ['a']}
    """
    if isinstance(message, Record):
        plain = {"type": KINDS[Record], **vars(message)}
        plain["value"] = result_as_json(message.value)
        return plain
    return {"type": KINDS[type(message)], **asdict(message)}


def from_json(plain: Plain) -> Event:
    """The inverse of `to_json`.

    Raises
    ------
    ValueError
        For a kind of entry, a field or a type that it does not know.
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
    """Refuse what types do not rule out, and readers rely on."""
    match entry:
        case UnitAsked(note={"pick": {"why": {"because": str()}} as pick, "search": str()}):
            build(_Pick, pick)
        case UnitAsked(note={"items": [*keys]}) if all(isinstance(key, str) for key in keys):
            pass
        case UnitAsked(note=note) if note.keys() & {"pick", "items"}:
            raise ValueError(f"the note is {note!s:.100}")


def require_experiment(entries: Sequence[Event], place: object) -> None:
    """Check that these entries are of an experiment, not of a map.

    Names go to files and pages, so they must be ones that a run writes.

    Raises
    ------
    ConfigError
        If they are of a map.
    DataError
        If one has a name that no run writes.
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

"""Maintenance of a run: verify and repair its files, reset failed units.

Functions that write take the run's lock first, so that no driver runs at the same time.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import yaml

from daskmetrics import store
from daskmetrics.config import Corpus
from daskmetrics.core.corpus import digest
from daskmetrics.core.errors import DataError
from daskmetrics.core.events import (
    Event,
    Plain,
    RunStarted,
    StorePlan,
    StoreRepaired,
    UnitsRetried,
    is_finished,
    latest,
    records,
    require_experiment,
)
from daskmetrics.core.files import RunFolder, atomic_write
from daskmetrics.core.names import Key
from daskmetrics.execution import Journal
from daskmetrics.execution.journal import scan
from daskmetrics.store import Damage, DamageKind


@dataclass(frozen=True)
class CheckResult:
    """The result of comparing a run's store with its journal."""

    lines: int  # complete lines of the journal
    torn: int  # bytes of an incomplete last line, which was never committed
    cells: int  # number of values, standard errors and statuses that were compared
    damages: tuple[Damage, ...]

    @cached_property
    def damaged(self) -> tuple[Damage, ...]:
        """The damages that are not just missing values of an unfinished run."""
        return tuple(damage for damage in self.damages if damage.kind.is_damage)


def verify(folder: RunFolder) -> CheckResult:
    """Read every line of the journal and compare the other files and every cell of the store with
    it.

    Nothing is changed.

    A damaged or missing line of the journal is a `DataError`.
    """
    journal = scan(folder.must_exist().journal)
    plan = _plan(folder, journal.entries)
    damages = list(check_files(folder, journal.entries))
    damages += store.verify(
        folder.store, plan, records(journal.entries), is_finished(journal.entries)
    )
    return CheckResult(len(journal.entries), journal.torn, _cells(plan), tuple(damages))


def repair(folder: RunFolder) -> CheckResult:
    """Make the files and the store equal to the journal; return the damages that are repaired.

    A damaged journal is a `DataError`: nothing can replace it. So are prompts that cannot be drawn
    again, since their source has changed.
    """
    with Journal(folder.must_exist().journal, folder.lock) as journal:
        plan = _plan(folder, journal.entries)
        files = list(check_files(folder, journal.entries))
        if files:
            _restore_files(folder, journal.entries)
        damages, repaired = store.repair(
            folder.store, plan, list(journal.records()), is_finished(journal.entries)
        )
        if repaired != plan:
            journal.append(repaired)
        damages = files + damages
        if damages:
            journal.append(StoreRepaired([damage.where for damage in damages]))
        return CheckResult(len(journal.entries), 0, _cells(plan), tuple(damages))


def check_files(folder: RunFolder, entries: Sequence[Event]) -> Iterator[Damage]:
    """The configuration and the prompts of a run, if they are not those that the journal names."""
    start = latest(entries, RunStarted)
    key = _prompts_key(entries)
    if start and start.config:
        config = yaml.safe_dump(dict(start.config), sort_keys=False)
        if not _holds(folder.config, lambda text: text == config):
            problem = "it is not the configuration of the journal"
            yield Damage(DamageKind.FILE, folder.config.name, problem)
    if key and not _holds(folder.corpus, lambda text: digest(json.loads(text)) == key):
        problem = "it does not hold the prompts of the run"
        yield Damage(DamageKind.FILE, folder.corpus.name, problem)


def write_files(folder: RunFolder, config: Plain, prompts: Sequence[str]) -> None:
    """Write the configuration and the prompts of a run."""
    atomic_write(folder.config, yaml.safe_dump(dict(config), sort_keys=False))
    atomic_write(folder.corpus, json.dumps(prompts))


def _restore_files(folder: RunFolder, entries: Sequence[Event]) -> None:
    from daskmetrics.experiment.preparation import prompts_of

    start = latest(entries, RunStarted)
    if start is None or not start.config:
        raise DataError(
            f"The journal of '{folder.path}' does not hold its configuration. Run the same command"
            " again."
        )
    key = _prompts_key(entries)
    prompts: tuple[str, ...] = ()
    if digest(prompts) != key:
        corpus = Corpus.model_validate(start.config["corpus"])
        prompts = prompts_of(corpus, start.config["seed"])
    if digest(prompts) != key:
        raise DataError(
            f"'{folder.corpus}' cannot be written again: its source,"
            f" {start.config['corpus']['source']}, has other texts than when the run began. Restore"
            " the source, or restore the file from a backup."
        )
    write_files(folder, start.config, prompts)


def _prompts_key(entries: Sequence[Event]) -> Key | None:
    plan = latest(entries, StorePlan)
    key = plan and plan.template.attributes.get("corpus", {}).get("key")
    return str(key) if key else None


def _holds(path: Path, expected: Callable[[str], bool]) -> bool:
    """Whether the text of a file can be read and is what is expected."""
    try:
        return expected(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, TypeError):
        return False


def retry(folder: RunFolder, keys: Iterable[Key]) -> int:
    """Reset those of these units that failed, so that the next run tries them again; return their
    number.
    """
    requested = set(keys)
    with Journal(folder.must_exist().journal, folder.lock) as journal:
        failed = {record.key for record in journal.records() if not record.ok} & requested
        if failed:
            journal.append(UnitsRetried(sorted(failed)))
    return len(failed)


def _plan(folder: RunFolder, entries: Sequence[Event]) -> StorePlan:
    require_experiment(entries, folder.path)
    plan = latest(entries, StorePlan)
    if plan is None:
        raise DataError(
            f"The run in '{folder.path}' was ended before it laid out its store. Run it again."
        )
    return plan


def _cells(plan: StorePlan) -> int:
    metrics = len(plan.template.metrics.names)
    tasks = len(plan.template.tasks.names)
    cells = (
        len(suite.revisions) * (len(suite.layers) * metrics + len(suite.rows) * tasks)
        for suite in plan.template.suites
    )
    return 3 * sum(cells)  # a value, a standard error and a status each

"""Maintenance of a run: verify and repair its files, reset failed units.

Functions that write take the run's lock first, so that no driver runs at the same time.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import yaml

from daskmetrics import store
from daskmetrics.config import Corpus
from daskmetrics.core.corpus import digest
from daskmetrics.core.errors import DataError
from daskmetrics.core.files import RunFolder, atomic_write
from daskmetrics.core.keys import Key
from daskmetrics.domain.events import (
    Event,
    Plain,
    RunStarted,
    StoreCreated,
    StoreRepaired,
    UnitsRetried,
    is_finished,
    latest,
    records,
    require_experiment,
)
from daskmetrics.domain.plan import Plan
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
        """The damages other than missing values of an unfinished run."""
        return tuple(damage for damage in self.damages if damage.kind.is_damage)


def verify(folder: RunFolder) -> CheckResult:
    """Compare a run's files and store with its journal.

    Every line and every cell is read. Nothing is changed.

    A damaged or missing line of the journal is a `DataError`.
    """
    journal = scan(folder.must_exist().journal)
    plan, files = _laid_out(folder, journal.entries)
    damages = list(check_files(folder, journal.entries))
    damages += store.verify(
        folder.store, plan, files, records(journal.entries), is_finished(journal.entries)
    )
    return CheckResult(len(journal.entries), journal.torn, _cells(plan), tuple(damages))


def repair(folder: RunFolder) -> CheckResult:
    """Make the files and the store equal to the journal.

    It returns the damages that are repaired. A damaged journal is a `DataError`: nothing can
    replace it. So are prompts that cannot be drawn again, since their source has changed.
    """
    with Journal(folder.must_exist().journal, folder.lock) as journal:
        plan, digests = _laid_out(folder, journal.entries)
        damages = list(check_files(folder, journal.entries))
        if damages:
            _restore_files(folder, plan)
        start = latest(journal.entries, RunStarted)
        damages += store.repair(
            folder.store,
            plan,
            digests,
            list(journal.records()),
            is_finished(journal.entries),
            start.environment if start else {},
        )
        repaired = StoreCreated(plan.store_key, store.files_of(folder.store))
        if repaired.files != digests:
            journal.append(repaired)
        if damages:
            journal.append(StoreRepaired([damage.where for damage in damages]))
        return CheckResult(len(journal.entries), 0, _cells(plan), tuple(damages))


def check_files(folder: RunFolder, entries: Sequence[Event]) -> Iterator[Damage]:
    """The damage of a run's configuration and prompts, if any.

    They must be those of its plan.
    """
    plan = latest(entries, Plan)
    if plan is None:
        return
    config = yaml.safe_dump(dict(plan.config), sort_keys=False)
    if not _holds(folder.config, lambda text: text == config):
        problem = "it is not the configuration of the journal"
        yield Damage(DamageKind.FILE, folder.config.name, problem)
    if not _holds(folder.corpus, lambda text: digest(json.loads(text)) == plan.prompts):
        problem = "it does not hold the prompts of the run"
        yield Damage(DamageKind.FILE, folder.corpus.name, problem)


def write_files(folder: RunFolder, config: Plain, prompts: Sequence[str]) -> None:
    """Write the configuration and the prompts of a run."""
    atomic_write(folder.config, yaml.safe_dump(dict(config), sort_keys=False))
    atomic_write(folder.corpus, json.dumps(prompts))


def _restore_files(folder: RunFolder, plan: Plan) -> None:
    from daskmetrics.experiment.preparation import prompts_of

    prompts: tuple[str, ...] = ()
    if digest(prompts) != plan.prompts:
        prompts = prompts_of(Corpus.model_validate(plan.config["corpus"]), plan.seed)
    if digest(prompts) != plan.prompts:
        raise DataError(
            f"'{folder.corpus}' cannot be written again: its source,"
            f" {plan.config['corpus']['source']}, has other texts than when the run began. Restore"
            " the source, or restore the file from a backup."
        )
    write_files(folder, plan.config, prompts)


def _holds(path: Path, expected: Callable[[str], bool]) -> bool:
    try:
        return expected(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, TypeError):
        return False


def retry(folder: RunFolder, keys: Iterable[Key]) -> int:
    """Reset those of these units that failed; return their number.

    The next run tries them again.
    """
    requested = set(keys)
    with Journal(folder.must_exist().journal, folder.lock) as journal:
        failed = {record.key for record in journal.records() if not record.ok} & requested
        if failed:
            journal.append(UnitsRetried(sorted(failed)))
    return len(failed)


def _laid_out(folder: RunFolder, entries: Sequence[Event]) -> tuple[Plan, Mapping[str, str]]:
    require_experiment(entries, folder.path)
    plan = latest(entries, Plan)
    created = latest(entries, StoreCreated)
    if plan is None or created is None or created.key != plan.store_key:
        raise DataError(
            f"The run in '{folder.path}' was ended before it laid out its store. Run it again."
        )
    return plan, created.files


def _cells(plan: Plan) -> int:
    metrics = len(plan.metrics)
    tasks = len(plan.tasks)
    cells = (
        len(suite.revisions) * (len(suite.layers) * metrics + len(suite.rows) * tasks)
        for suite in plan.suites
    )
    return 3 * sum(cells)  # a value, a standard error and a status each

"""Maintenance of a run: verify and repair its store, reset failed units, remove the lock of a lost driver.

Functions that write take the run's lock first, so that no driver runs at the same time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from daskmetrics import store
from daskmetrics.core._events import Event, StoreRepaired, UnitsRetried
from daskmetrics.core._files import RunFolder
from daskmetrics.core.errors import DataError
from daskmetrics.core.names import Key
from daskmetrics.execution import Journal
from daskmetrics.execution._journal import is_finished, records, scan, unlock
from daskmetrics.store import Damage, DamageKind, StorePlan


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

    @property
    def counts(self) -> Counter[DamageKind]:
        return Counter(damage.kind for damage in self.damages)


def verify(folder: RunFolder) -> CheckResult:
    """Read every line of the journal and compare every cell of the store with it; nothing is changed.

    A damaged or missing line of the journal is a `DataError`.
    """
    journal = scan(folder.must_exist().journal)
    plan = _plan(folder, journal.entries)
    damages = store.verify(folder.store, plan, records(journal.entries), is_finished(journal.entries))
    return CheckResult(len(journal.entries), journal.torn, _cells(plan), tuple(damages))


def repair(folder: RunFolder) -> CheckResult:
    """Make the store equal to the journal; return the damages that are repaired.

    A damaged journal is a `DataError`: nothing can replace it.
    """
    with Journal(folder.must_exist().journal, folder.lock) as journal:
        plan = _plan(folder, journal.entries)
        damages, repaired = store.repair(folder.store, plan, list(journal.records()), is_finished(journal.entries))
        if repaired != plan:
            journal.append(repaired.event())
        if damages:
            journal.append(StoreRepaired([damage.where for damage in damages]))
        return CheckResult(len(journal.entries), 0, _cells(plan), tuple(damages))


def retry(folder: RunFolder, keys: Iterable[Key]) -> int:
    """Reset those of these units that failed, so that the next run tries them again; return their number."""
    requested = set(keys)
    with Journal(folder.must_exist().journal, folder.lock) as journal:
        failed = [record.key for record in journal.records() if record.key in requested and not record.ok]
        if failed:
            journal.append(UnitsRetried(failed))
    return len(failed)


def unlock_run(folder: RunFolder) -> str | None:
    """Remove the lock of a lost driver; return that driver, or None if no driver holds the run.

    A driver that is a running process of this machine is a `LockedError`.
    """
    if not folder.path.is_dir():
        folder.must_exist()  # it may have been locked before it had a journal
    return unlock(folder.lock)


def _plan(folder: RunFolder, entries: Iterable[Event]) -> StorePlan:
    plan = StorePlan.latest(entries)
    if plan is None:
        raise DataError(f"The run in '{folder.path}' was ended before it laid out its store. Run it again.")
    return plan


def _cells(plan: StorePlan) -> int:
    suites, metrics, tasks = plan.template.suites, len(plan.template.metrics.names), len(plan.template.tasks.names)
    return 3 * sum(len(s.revisions) * (len(s.layers) * metrics + len(s.rows) * tasks) for s in suites)

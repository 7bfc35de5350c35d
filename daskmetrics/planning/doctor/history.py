"""Checks of a run by its journal: failures, slow nodes, idle workers."""

from __future__ import annotations

from collections import defaultdict
from statistics import median

from daskmetrics.core.events import AttemptFailed, RunFinished, RunStarted, WorkerJoined, scored
from daskmetrics.core.text import plural
from daskmetrics.planning.doctor.facts import (
    Check,
    Facts,
    Finding,
    RunHistory,
    failure,
    good,
    warning,
)

SLOWER = 1.5  # ratio of a node's median seconds to the other nodes' above which it counts as slow
ENOUGH = 5  # the smallest number of units by which a node is judged
IDLE = 0.5  # share of the time that workers compute, below which they count as idle


def driven(facts: Facts) -> Finding | None:
    """An unfinished run has a driver."""
    history = facts.history
    if history is None:
        return None
    if history.finished:
        return good("finished")
    if history.driver is None:
        remedy = "run the same command again: it resumes"
        return failure("unfinished, and no process drives it", remedy)
    return good(f"driven by {history.driver}")


def no_faults(fault: str, status: str, remedy: str) -> Check:
    """A check that no attempt ended by a fault, and that no unit was given up with its status."""

    def check(facts: Facts) -> Finding | None:
        """No attempt ended by the fault."""
        history = facts.history
        if history is None:
            return None
        lost = [record for record in history.records if record.status == status]
        if lost:
            units = plural(len(lost), "unit")
            message = f"{units} failed permanently ({status}), the first: {lost[0].name}"
            retry = f"daskmetrics runs retry {history.folder} --only {status}"
            return failure(message, f"{remedy}; then: {retry}")
        attempts = sum(
            isinstance(entry, AttemptFailed) and entry.fault == fault for entry in history.entries
        )
        if attempts:
            message = f"{plural(attempts, 'attempt')} failed ({fault}), but all units succeeded"
            return warning(message, remedy)
        return good(f"no unit failed by this fault: {fault}")

    return check


out_of_memory = no_faults("memory", "oom", "fewer protocol.batch_tokens, or more cluster.memory")
timeouts = no_faults(
    "timeout", "timeout", "a larger cluster.unit_minutes, or see the cause: daskmetrics runs logs"
)
deaths = no_faults(
    "death",
    "quarantined",
    "see the job's log for the cause (memory, walltime, node): daskmetrics runs logs RUN KEY",
)


def failed_units(facts: Facts) -> Finding | None:
    """No unit failed by an error or without a number."""
    history = facts.history
    if history is None:
        return None
    lost = [record for record in history.records if record.status in ("error", "nan")]
    if lost:
        remedy = f"daskmetrics runs logs {history.folder} {lost[0].name}"
        return failure(f"{plural(len(lost), 'unit')} without a value: {lost[0].reason}", remedy)
    return good("no unit failed by an error")


def slow_node(facts: Facts) -> Finding | None:
    """No node is much slower than the others at the same kind of unit."""
    if facts.history is None:
        return None
    ratios = pace(facts.history)
    if len(ratios) < 2:
        return None
    slowest = max(ratios, key=ratios.__getitem__)
    message = f"{slowest} takes {ratios[slowest]:.1f} times as long as the other nodes"
    if ratios[slowest] > SLOWER:
        exclude = f"--set 'cluster.directives=[\"--exclude={slowest}\"]'"
        return warning(message, f"{exclude}; tell the site's support")
    return good(message)


def pace(history: RunHistory) -> dict[str, float]:
    """For each host the median of its units' seconds over the median of the same model's units on
    other hosts.
    """
    hosts = {entry.name: entry.host for entry in history.entries if isinstance(entry, WorkerJoined)}
    units: dict[tuple[str, str], list[tuple[str, float]]] = defaultdict(list)
    for record in history.records:
        host = hosts.get(record.worker or "")
        if record.ok and host and record.kind != "train":
            model = record.name.partition("@")[0]
            units[record.kind, model].append((host, record.seconds))
    ratios: dict[str, list[float]] = defaultdict(list)
    for same in units.values():
        for host in {host for host, _ in same}:
            inside = [seconds for where, seconds in same if where == host]
            outside = [seconds for where, seconds in same if where != host]
            if min(len(inside), len(outside)) >= ENOUGH and median(outside) > 0:
                ratios[host].append(median(inside) / median(outside))
    return {host: median(values) for host, values in ratios.items()}


def waiting(facts: Facts) -> Finding | None:
    """Workers compute most of the time, instead of waiting for data or for the driver."""
    if facts.history is None:
        return None
    entries = facts.history.entries
    records = facts.history.records
    started = [entry.at for entry in entries if isinstance(entry, RunStarted)]
    ended = [entry.at for entry in entries if isinstance(entry, RunFinished)]
    workers = {entry.name for entry in entries if isinstance(entry, WorkerJoined)}
    uninterrupted = len(started) == len(ended) == 1 and ended[0] > started[0]
    if not uninterrupted or not workers:
        return None
    encoded = {result.encode_seconds for _, result in scored(records)}
    work = sum(record.seconds for record in records) + sum(encoded)
    busy = min(1.0, work / (len(workers) * (ended[0] - started[0])))
    message = f"workers computed {busy:.0%} of the time"
    if busy < IDLE:
        remedy = "loading or the driver is the limit: fewer workers, or a faster file system"
        return warning(message, remedy)
    return good(message)

"""Checks of a run by its journal: failures, slow nodes, idle workers."""

from __future__ import annotations

from collections import defaultdict
from statistics import median

from daskmetrics.core._events import AttemptFailed, RunFinished, RunStarted, WorkerJoined
from daskmetrics.core._text import plural
from daskmetrics.planning.doctor._facts import Check, Facts, Finding, RunHistory, failure, good, warning

SLOWER = 1.5  # ratio of a node's median seconds to the other nodes' above which it counts as slow
ENOUGH = 5  # the smallest number of units by which a node is judged
UNEVEN = 10.0
IDLE = 0.5


def driven(facts: Facts) -> Finding | None:
    """An unfinished run has a driver."""
    history = facts.history
    if history is None:
        return None
    if not history.finished and history.driver is None:
        return failure("unfinished, and no process drives it", "run the same command again: it resumes")
    return good("finished" if history.finished else f"driven by {history.driver}")


def no_faults(fault: str, status: str, fine: str, remedy: str) -> Check:
    """A check that no attempt ended by a fault, and that no unit was given up with its status."""

    def check(facts: Facts) -> Finding | None:
        """No attempt ended by the fault."""
        if facts.history is None:
            return None
        attempts = [e for e in facts.history.entries if isinstance(e, AttemptFailed) and e.fault == fault]
        lost = [record for record in facts.history.records if record.status == status]
        if lost:
            message = f"{plural(len(lost), 'unit')} failed permanently ({status}), the first: {lost[0].name}"
            return failure(message, f"{remedy}; then: daskmetrics retry {facts.history.folder} --only {status}")
        if attempts:
            return warning(f"{plural(len(attempts), 'attempt')} failed ({fault}), but all units succeeded", remedy)
        return good(fine)

    return check


OOM_REMEDY = "fewer protocol.batch_tokens, or more cluster.memory"
TIMEOUT_REMEDY = "a larger cluster.unit_minutes, or see the cause: daskmetrics logs"
DEATH_REMEDY = "see the job's log for the cause (memory, walltime, node): daskmetrics logs RUN KEY"
out_of_memory = no_faults("memory", "oom", "no unit ran out of memory", OOM_REMEDY)
timeouts = no_faults("timeout", "timeout", "no unit reached its deadline", TIMEOUT_REMEDY)
deaths = no_faults("death", "quarantined", "no worker died", DEATH_REMEDY)


def failed_units(facts: Facts) -> Finding | None:
    """No unit failed by an error or without a number."""
    if facts.history is None:
        return None
    if lost := [record for record in facts.history.records if record.status in ("error", "nan")]:
        remedy = f"daskmetrics logs {facts.history.folder} {lost[0].name}"
        return failure(f"{plural(len(lost), 'unit')} without a value: {lost[0].reason}", remedy)
    return good("no unit failed by an error")


def slow_node(facts: Facts) -> Finding | None:
    """No node is much slower than the others at the same kind of unit."""
    if facts.history is None or len(ratios := pace(facts.history)) < 2:
        return None
    slowest = max(ratios, key=lambda host: ratios[host])
    if ratios[slowest] > SLOWER:
        message = f"{slowest} takes {ratios[slowest]:.1f} times as long as the others"
        return warning(message, f"--set 'cluster.directives=[\"--exclude={slowest}\"]'; tell the site's support")
    return good(f"the slowest of {len(ratios)} nodes takes {ratios[slowest]:.1f} times as long as the others")


def pace(history: RunHistory) -> dict[str, float]:
    """For each host the median of its units' seconds over the median of the same model's units on other hosts."""
    hosts = {entry.name: entry.host for entry in history.entries if isinstance(entry, WorkerJoined)}
    times: dict[tuple[str, str], dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for record in history.records:
        host = hosts.get(record.worker or "")
        if record.ok and host and record.kind != "train":
            times[record.kind, record.name.partition("@")[0]][host].append(record.seconds)
    ratios: dict[str, list[float]] = defaultdict(list)
    for by_host in times.values():
        for host, seconds in by_host.items():
            others = [each for other, theirs in by_host.items() if other != host for each in theirs]
            if len(seconds) >= ENOUGH and len(others) >= ENOUGH and median(others) > 0:
                ratios[host].append(median(seconds) / median(others))
    return {host: median(values) for host, values in ratios.items()}


def uneven(facts: Facts) -> Finding | None:
    """No unit is so long that all workers wait for it at the end."""
    records = facts.history.records if facts.history else ()
    done = [record for record in records if record.ok and record.kind == "measure"]
    if len(done) < ENOUGH:
        return None
    longest = max(done, key=lambda record: record.seconds)
    typical = median(record.seconds for record in done)
    share = sum(record.seconds for record in done) / max(1, facts.profile.workers)
    if longest.seconds > UNEVEN * typical and longest.seconds > 0.5 * share:
        message = f"{longest.name} took {longest.seconds:.0f} s, the median unit {typical:.0f} s"
        return warning(message, "use fewer workers, or run the largest model separately")
    return good(f"longest unit {longest.seconds:.1f} s, median {typical:.1f} s")


def waiting(facts: Facts) -> Finding | None:
    """Workers compute most of the time, instead of waiting for data or for the driver."""
    entries, records = (facts.history.entries, facts.history.records) if facts.history else ((), ())
    began = [entry.at for entry in entries if isinstance(entry, RunStarted)]
    ended = [entry.at for entry in entries if isinstance(entry, RunFinished)]
    workers = {entry.name for entry in entries if isinstance(entry, WorkerJoined)}
    if len(began) != 1 or len(ended) != 1 or not workers or ended[0] <= began[0]:
        return None  # unknown for a run that was interrupted
    encoded = {r.value["encode_seconds"] for r in records if r.ok and r.kind == "score"}
    work = sum(record.seconds for record in records) + sum(encoded)
    busy = min(1.0, work / (len(workers) * (ended[0] - began[0])))
    message = f"workers computed {busy:.0%} of the time"
    if busy < IDLE:
        return warning(message, "loading or the driver is the limit: fewer workers, a faster file system, larger units")
    return good(message)

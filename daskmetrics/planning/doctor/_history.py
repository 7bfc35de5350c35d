"""Checks of a run by its journal: what failed, who is slow, and whether workers wait."""

from __future__ import annotations

from collections import Counter
from statistics import median

from daskmetrics.execution import Record
from daskmetrics.execution._journal import Entry
from daskmetrics.planning.doctor._facts import Facts, History
from daskmetrics.planning.doctor._finding import Finding, failure, good, warning

SLOWER = 1.5
"""Factor between a node's median unit and the others' from which it is called slow."""

ENOUGH = 5
"""Units below which a node is not judged."""

UNEVEN = 10.0
IDLE = 0.5


def driven(facts: Facts) -> Finding | None:
    """An unfinished run has a driver."""
    history = facts.history
    if history is None:
        return None
    if history.finished:
        return good("finished")
    if history.driver is None:
        return failure("unfinished, and nobody drives it", "run the same command again: it resumes")
    return good(f"driven by {history.driver}")


def out_of_memory(facts: Facts) -> Finding | None:
    """No unit ran out of memory."""
    return _faults(
        facts, "memory", "oom", "fewer protocol.batch_tokens, or more cluster.memory", "no unit ran out of memory"
    )


def timeouts(facts: Facts) -> Finding | None:
    """No unit was stopped by its deadline."""
    return _faults(
        facts,
        "timeout",
        "timeout",
        "a larger cluster.unit_minutes, or look why: daskmetrics logs",
        "no deadline was met",
    )


def deaths(facts: Facts) -> Finding | None:
    """No worker died."""
    remedy = "the job's log says why (out of memory, walltime, node): daskmetrics logs RUN KEY"
    return _faults(facts, "death", "quarantined", remedy, "no worker died")


def _faults(facts: Facts, fault: str, status: str, remedy: str, fine: str) -> Finding | None:
    if facts.history is None:
        return None
    attempts = [e for e in facts.history.entries if e["type"] == "attempt" and e["fault"] == fault]
    lost = [record for record in facts.history.records if record.status == status]
    if lost:
        said = f"{len(lost)} units were given up ({status}), the first: {lost[0].name}"
        return failure(said, f"{remedy}; then: daskmetrics retry {facts.history.folder} --only {status}")
    if attempts:
        return warning(f"{len(attempts)} attempts ({fault}), all units survived", remedy)
    return good(fine)


def failed_units(facts: Facts) -> Finding | None:
    """Every unit has a value."""
    if facts.history is None:
        return None
    lost = [record for record in facts.history.records if record.status in ("error", "nan")]
    if lost:
        return failure(
            f"{len(lost)} units have no value: {lost[0].reason}",
            f"daskmetrics logs {facts.history.folder} {lost[0].name}",
        )
    return good("every recorded unit has a value or a listed cause")


def slow_node(facts: Facts) -> Finding | None:
    """No node is much slower than the others at the same kind of unit."""
    if facts.history is None:
        return None
    ratios = pace(facts.history)
    if len(ratios) < 2:
        return None
    slowest = max(ratios, key=lambda host: ratios[host])
    if ratios[slowest] > SLOWER:
        said = f"{slowest} takes {ratios[slowest]:.1f} times as long as the others"
        return warning(said, f"--set 'cluster.directives=[\"--exclude={slowest}\"]'; tell the site's support")
    return good(f"the slowest of {len(ratios)} nodes takes {ratios[slowest]:.1f} times as long as the others")


def pace(history: History) -> dict[str, float]:
    """For each host the median of its units' seconds over the median of the same model's units on other hosts."""
    hosts = {entry["name"]: entry["host"] for entry in history.entries if entry["type"] == "worker"}
    times: dict[tuple[str, str], dict[str, list[float]]] = {}
    for record in history.records:
        host = hosts.get(record.worker or "")
        if record.ok and host and record.kind != "train":
            group = record.kind, record.name.partition("@")[0]
            times.setdefault(group, {}).setdefault(host, []).append(record.seconds)
    ratios: dict[str, list[float]] = {}
    for by_host in times.values():
        for host, own in by_host.items():
            rest = [second for other, seconds in by_host.items() if other != host for second in seconds]
            if len(own) >= ENOUGH and len(rest) >= ENOUGH and median(rest) > 0:
                ratios.setdefault(host, []).append(median(own) / median(rest))
    return {host: median(own) for host, own in ratios.items()}


def uneven(facts: Facts) -> Finding | None:
    """No unit is so much longer than the others that all wait for it at the end."""
    if facts.history is None:
        return None
    done = [record for record in facts.history.records if record.ok and record.kind == "measure"]
    if len(done) < ENOUGH:
        return None
    longest = max(done, key=lambda record: record.seconds)
    typical = median(record.seconds for record in done)
    share = sum(record.seconds for record in done) / max(1, facts.profile.workers)
    if longest.seconds > UNEVEN * typical and longest.seconds > 0.5 * share:
        said = f"{longest.name} took {longest.seconds:.0f} s, half of the units less than {typical:.0f} s"
        return warning(said, "fewer workers waste less; or leave the largest model for a run of its own")
    return good(f"longest unit {longest.seconds:.1f} s, typical {typical:.1f} s")


def waiting(facts: Facts) -> Finding | None:
    """Workers compute most of the time, and do not wait for data or for the driver."""
    history = facts.history
    if history is None or (busy := busy_share(history.entries, history.records)) is None:
        return None
    if busy < IDLE:
        said = f"workers computed {busy:.0%} of the time"
        return warning(said, "loading or the driver is the limit: fewer workers, a faster file system, larger units")
    return good(f"workers computed {busy:.0%} of the time")


def busy_share(entries: tuple[Entry, ...], records: tuple[Record, ...]) -> float | None:
    """Seconds of units over those that workers were there, for a run that ended without a break; None if unknown."""
    began = [entry["at"] for entry in entries if entry["type"] == "start" and "at" in entry]
    ended = [entry["at"] for entry in entries if entry["type"] == "finished" and "at" in entry]
    workers = Counter(entry["name"] for entry in entries if entry["type"] == "worker")
    if len(began) != 1 or len(ended) != 1 or not workers or ended[0] <= began[0]:
        return None
    encoded = {r.value["encode_seconds"] for r in records if r.ok and r.kind == "score"}
    work = sum(record.seconds for record in records) + sum(encoded)
    return float(min(1.0, work / (len(workers) * (ended[0] - began[0]))))

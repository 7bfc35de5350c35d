"""Short measurements by the ranks of a training on one's own model and data, as tables and
calibrations.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

from daskmetrics.cluster import connect
from daskmetrics.config import Config
from daskmetrics.core.errors import ConfigError
from daskmetrics.core.table import Table
from daskmetrics.core.text import plural, shortened, size_text
from daskmetrics.experiment import train as training
from daskmetrics.planning.calibration import Calibration, Sample, versions
from daskmetrics.planning.estimate import exchange_seconds
from daskmetrics.training.data import advised
from daskmetrics.training.ddp.driver import measure
from daskmetrics.training.ddp.ranks import DdpTraining, RankPlacement
from daskmetrics.training.traffic import SIZES, Link, buckets, exposed, slow, typical


@dataclass(frozen=True)
class ProbeResult:
    """What the ranks measured, and the calibration that `plan` uses."""

    name: str
    tables: tuple[Table, ...]
    calibration: Calibration | None = None


class _Observer:
    """Passes the lines for the user on; no step is taken."""

    def __init__(self, show: Callable[[str], None]) -> None:
        self.message = show

    def step_done(self, training: DdpTraining, report: Mapping[str, Any]) -> None: ...


def probe(
    config: Config, workload: str, workers: int, show: Callable[[str], None] = lambda text: None
) -> ProbeResult:
    """Measure with this number of workers on the largest model that the configuration trains.

    Raises
    ------
    ConfigError
        If no model has a `train` section, or there are too few workers.
    """
    suites = training.suites_to_train(config)
    if not suites:
        raise ConfigError(
            "No model of the configuration has a 'train' recipe. Bench another --workload."
        )
    if workload == "allreduce" and workers < 2:
        raise ConfigError("An all-reduce needs two workers or more: --workers 2")
    chosen = training.ddp_trainings(config, suites)[0]
    ranks = 1 if workload == "precision" else workers
    suites[chosen.name].claim()
    chosen = replace(
        chosen,
        recipe=chosen.recipe.model_copy(update={"ranks": ranks}),
        workers=ranks,
        probe=workload,
    )
    profile = config.cluster.model_copy(update={"workers": ranks})
    with connect(profile) as client:
        placements, measured = measure(client, chosen, _Observer(show))
    return TABLES[workload](chosen, placements, measured, profile.device)


def _allreduce(
    training: DdpTraining,
    placements: Sequence[RankPlacement],
    measured: Sequence[Mapping[str, Any]],
    device: str,
) -> ProbeResult:
    links = _links(measured)
    first, ranks = measured[0], len(measured)
    where = next(iter(reversed(links)))  # the scope of all ranks is the last
    gradient, link = first["gradient"], links[where]
    times = [typical(each["alone"]) for each in measured]
    computing = median(times)
    extra = [typical(each["together"]) - own for each, own in zip(measured, times, strict=True)]
    predicted = exposed(link, gradient, computing, overlaps=first["backend"] == "nccl")
    took = max(0.0, median(extra))
    header = ("message", *(f"{scope}: {what}" for scope in links for what in ("time", "bandwidth")))
    rows = tuple(
        (
            _size(size),
            *(
                cell
                for each in links.values()
                for cell in (_time(each.seconds[size]), f"{size_text(each.bandwidth(size))}/s")
            ),
        )
        for size in SIZES
    )
    nodes = {placement.host.node for placement in placements}
    title = f"All-reduce of {plural(ranks, 'rank')} on {plural(len(nodes), 'node')}"
    notes = [f"latency {scope}: {_time(each.latency)}" for scope, each in links.items()]
    notes.append(
        "bandwidth is 2 (n - 1) / n x bytes / time, which does not depend on the number n of ranks"
    )
    share = Table(
        ("", "predicted", "measured"),
        (
            ("own work of a step", "", _time(computing)),
            ("added by the exchange", _time(predicted), _time(took)),
            (
                "share of a step",
                f"{predicted / (predicted + computing):.1%}",
                f"{took / (took + computing):.1%}",
            ),
        ),
        f"{training.name}: gradients of {size_text(gradient)} in {plural(len(buckets(gradient)), 'bucket')}",
        tuple(_remarks(placements, measured, times)),
    )
    # an exchange takes (1 - 1/n) of what it takes among very many ranks
    many = ranks / (ranks - 1)
    sample = Sample(
        "allreduce",
        training.name,
        tuple(max(1e-6, each * many) for each in extra),
        exchange_seconds(training.recipe),
    )
    calibration = Calibration(
        device, socket.gethostname(), time.time(), versions(), samples=(sample,), workers=ranks
    )
    tables = (Table(header, rows, f"{title}, {first['backend']}, measured", tuple(notes)), share)
    return ProbeResult(f"{training.name}, allreduce", tables, calibration)


def _links(measured: Sequence[Mapping[str, Any]]) -> dict[str, Link]:
    """The link of each scope, with the slowest of the ranks for each size."""
    scopes = dict.fromkeys(scope for each in measured for scope in each["links"])
    links = {}
    for scope in sorted(scopes, key=lambda scope: scope == "all ranks"):
        own = [each["links"][scope] for each in measured if scope in each["links"]]
        seconds = {size: max(float(link["seconds"][str(size)]) for link in own) for size in SIZES}
        links[scope] = Link(max(link["ranks"] for link in own), seconds)
    return links


def _remarks(
    placements: Sequence[RankPlacement],
    measured: Sequence[Mapping[str, Any]],
    times: Sequence[float],
) -> Iterator[str]:
    yield f"own work of a step by rank: {shortened([_time(each) for each in times], 16)}"
    for rank, factor in slow(times).items():
        yield (
            f"SLOW: {placements[rank]}: its own work takes {factor:.2f} times as long as that of "
            "the other ranks"
        )
    if measured[0]["backend"] == "nccl":
        yield "predicted: what remains of the exchange after the backward pass, at least its last bucket"
    else:
        yield "predicted: the whole exchange, since it uses the cores that compute"
    for place, each in zip(placements, measured, strict=True):
        if place.local == 0:
            ports = "; ".join(f"{port} {state}" for port, state in each["infiniband"].items())
            yield f"{place.host.node}: {ports or 'no InfiniBand'}"
            yield from (each["topology"] or "").splitlines()


def _loader(
    training: DdpTraining,
    placements: Sequence[RankPlacement],
    measured: Sequence[Mapping[str, Any]],
    device: str,
) -> ProbeResult:
    def slowest(variant: str, count: int) -> float | None:
        rates = [each["rates"][variant].get(str(count)) for each in measured]
        return min(filter(None, rates), default=None)

    variants = tuple(measured[0]["rates"])
    counts = sorted({int(count) for rates in measured[0]["rates"].values() for count in rates})
    rates = {count: {variant: slowest(variant, count) for variant in variants} for count in counts}
    starts = {
        n: [max(each["starts"][str(n)][i] for each in measured) for i in (0, 1)] for n in counts
    }
    rows = tuple(
        (
            str(n),
            *("" if rate is None else f"{rate:,.0f}" for rate in rates[n].values()),
            *map(_time, starts[n]),
        )
        for n in counts
    )
    computing, most = (
        max(each["computing"] for each in measured),
        min(each["allowed"] for each in measured),
    )
    best = {n: max(filter(None, each.values())) for n, each in rates.items()}
    count, resident = advised(best, computing, most), max(each["resident"] for each in measured)
    ranks = max(place.neighbours for place in placements)
    free = min(place.host.available for place in placements)
    notes = (
        f"a rank computes {computing:,.0f} samples/s",
        f"a loader takes up to {resident / 2**30:.2f} GiB; {free / 2**30:.1f} GiB are free for {plural(ranks, 'rank')} "
        f"on a node, whose cores and memory are enough for {plural(most, 'loader')} per rank",
        f"recommended: ddp.loaders: {count}",
        "start: until the first step of a pass; persistent loaders, which training uses, start once",
        *(["pinned: not measured, since there is no GPU"] if "pinned" not in variants else []),
    )
    examples, header = measured[0]["examples"], ("loaders", *variants, "start", "start, persistent")
    title = f"{training.name}: samples per second read by each of {plural(len(measured), 'rank')}, {examples:,} examples"
    return ProbeResult(f"{training.name}, loader", (Table(header, rows, title, notes),))


def _precision(
    training: DdpTraining,
    placements: Sequence[RankPlacement],
    measured: Sequence[Mapping[str, Any]],
    device: str,
) -> ProbeResult:
    variants, samples = measured[0]["variants"], measured[0]["samples"]
    base = variants["float32"]

    def row(name: str, seconds: float | None, memory: float | None) -> tuple[str, ...]:
        if seconds is None:
            return (name, "out of memory", "", "", "", "")
        relative = [
            f"{own / reference:.2f}" if own and reference else "?"
            for own, reference in ((seconds, base["seconds"]), (memory, base["memory"]))
        ]
        peak = "?" if memory is None else size_text(memory)
        return (name, _time(seconds), f"{samples / seconds:,.0f}", peak, *relative)

    header = (
        "",
        "time of a step",
        "samples/s",
        "peak memory",
        "time / float32",
        "memory / float32",
    )
    rows = tuple(row(name, each["seconds"], each["memory"]) for name, each in variants.items())
    recipe = training.recipe
    note = (
        "peak memory beyond that of the process without a model: weights, gradients, optimizer, "
        "activations"
    )
    sequences = f"{plural(samples, 'sequence')} of {recipe.context} tokens"
    title = f"{training.name}: steps of {sequences} on one rank, {device}"
    return ProbeResult(f"{training.name}, precision", (Table(header, rows, title, (note,)),))


def _time(seconds: float) -> str:
    """Seconds as text, also very short ones.

    >>> _time(2.5), _time(0.0123), _time(0.00042)
    ('2.5 s', '12.3 ms', '420 µs')
    """
    if seconds < 1e-3:
        return f"{seconds * 1e6:.0f} µs"
    return f"{seconds * 1e3:.1f} ms" if seconds < 1 else f"{seconds:.1f} s"


def _size(size: int) -> str:
    """A power of two as text.

    >>> _size(4096), _size(2**26)
    ('4 KiB', '64 MiB')
    """
    return f"{size >> 10} KiB" if size < 2**20 else f"{size >> 20} MiB"


Tabulator = Callable[
    [DdpTraining, Sequence[RankPlacement], Sequence[Mapping[str, Any]], str], ProbeResult
]
TABLES: Mapping[str, Tabulator] = {
    "allreduce": _allreduce,
    "loader": _loader,
    "precision": _precision,
}

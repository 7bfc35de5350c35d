"""Short measurements by the ranks of a training on one's own model and data, as tables and
calibrations.
"""

from __future__ import annotations

import socket
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

from dask.utils import format_bytes, format_time

from daskmetrics.cluster import connect
from daskmetrics.config import Config
from daskmetrics.core.errors import ConfigError
from daskmetrics.core.table import Table
from daskmetrics.core.text import plural, shortened, size_text
from daskmetrics.experiment import train as training
from daskmetrics.planning.calibration import Calibration, Sample, versions
from daskmetrics.planning.estimate import exchange_seconds
from daskmetrics.training.data import advised
from daskmetrics.training.ddp.driver import launch
from daskmetrics.training.ddp.ranks import Program, Progress, RankPlacement
from daskmetrics.training.recipe import DdpTraining
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

    def progressed(self, program: Program, progress: Progress) -> None: ...


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
        placements, measured = launch(client, chosen.program(), _Observer(show))
    return TABLES[workload](chosen, placements, measured, profile.device)


def _allreduce(
    training: DdpTraining,
    placements: Sequence[RankPlacement],
    measured: Sequence[Mapping[str, Any]],
    device: str,
) -> ProbeResult:
    links = _links(measured)
    ranks = len(measured)
    backend = measured[0]["backend"]
    gradient = measured[0]["gradient"]
    times = [typical(rank["alone"]) for rank in measured]
    computing = median(times)
    extra = [typical(rank["together"]) - time for rank, time in zip(measured, times, strict=True)]
    link = next(reversed(links.values()))  # the scope of all ranks is the last
    predicted = exposed(link, gradient, computing, overlaps=backend == "nccl")
    took = max(0.0, median(extra))
    columns = {"message": [format_bytes(size) for size in SIZES]}
    for scope, link in links.items():
        columns[f"{scope}: time"] = [format_time(link.seconds[size]) for size in SIZES]
        columns[f"{scope}: bandwidth"] = [f"{size_text(link.bandwidth(size))}/s" for size in SIZES]
    rows = tuple(zip(*columns.values(), strict=True))
    nodes = {placement.host.node for placement in placements}
    title = f"All-reduce of {plural(ranks, 'rank')} on {plural(len(nodes), 'node')}"
    notes = [f"latency {scope}: {format_time(link.latency)}" for scope, link in links.items()]
    notes.append(
        "bandwidth is 2 (n - 1) / n x bytes / time, which does not depend on the number n of ranks"
    )
    share = Table(
        ("", "predicted", "measured"),
        (
            ("own work of a step", "", format_time(computing)),
            ("added by the exchange", format_time(predicted), format_time(took)),
            (
                "share of a step",
                f"{predicted / (predicted + computing):.1%}",
                f"{took / (took + computing):.1%}",
            ),
        ),
        f"{training.name}: gradients of {size_text(gradient)} in"
        f" {plural(len(buckets(gradient)), 'bucket')}",
        tuple(_remarks(placements, measured, times)),
    )
    # an exchange takes (1 - 1/n) of what it takes among very many ranks
    many = ranks / (ranks - 1)
    sample = Sample(
        "allreduce",
        training.name,
        tuple(max(1e-6, seconds * many) for seconds in extra),
        exchange_seconds(training.recipe),
    )
    calibration = Calibration(
        device, socket.gethostname(), time.time(), versions(), samples=(sample,), workers=ranks
    )
    sizes = Table(tuple(columns), rows, f"{title}, {backend}, measured", tuple(notes))
    return ProbeResult(f"{training.name}, allreduce", (sizes, share), calibration)


def _links(measured: Sequence[Mapping[str, Any]]) -> dict[str, Link]:
    """The link of each scope, with the slowest of the ranks for each size."""
    by_scope: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for rank in measured:
        for scope, link in rank["links"].items():
            by_scope[scope].append(link)
    links = {}
    for scope in sorted(by_scope, key=lambda scope: scope == "all ranks"):
        measurements = by_scope[scope]
        seconds = {}
        for size in SIZES:
            seconds[size] = max(float(link["seconds"][str(size)]) for link in measurements)
        links[scope] = Link(max(link["ranks"] for link in measurements), seconds)
    return links


def _remarks(
    placements: Sequence[RankPlacement],
    measured: Sequence[Mapping[str, Any]],
    times: Sequence[float],
) -> Iterator[str]:
    yield (
        f"own work of a step by rank: {shortened([format_time(seconds) for seconds in times], 16)}"
    )
    for rank, factor in slow(times).items():
        yield (
            f"SLOW: {placements[rank]}: its own work takes {factor:.2f} times as long as that of "
            "the other ranks"
        )
    if measured[0]["backend"] == "nccl":
        yield (
            "predicted: what remains of the exchange after the backward pass, at least its last"
            " bucket"
        )
    else:
        yield "predicted: the whole exchange, since it uses the cores that compute"
    for placement, result in zip(placements, measured, strict=True):
        if placement.local == 0:
            ports = "; ".join(f"{port} {state}" for port, state in result["infiniband"].items())
            yield f"{placement.host.node}: {ports or 'no InfiniBand'}"
            yield from (result["topology"] or "").splitlines()


def _loader(
    training: DdpTraining,
    placements: Sequence[RankPlacement],
    measured: Sequence[Mapping[str, Any]],
    device: str,
) -> ProbeResult:
    variants = tuple(measured[0]["rates"])
    best = {}
    rows = []
    for n in sorted(map(int, set().union(*measured[0]["rates"].values()))):
        rates = []
        texts = []
        for variant in variants:
            of_ranks = [rank["rates"][variant].get(str(n)) for rank in measured]
            slowest = min(filter(None, of_ranks), default=0.0)
            rates.append(slowest)
            texts.append(f"{slowest:,.0f}" if slowest else "")
        best[n] = max(rates)
        starts = zip(*(rank["starts"][str(n)] for rank in measured), strict=True)
        rows.append((str(n), *texts, *map(format_time, map(max, starts))))
    computing = max(rank["computing"] for rank in measured)
    allowed = min(rank["allowed"] for rank in measured)
    resident = max(rank["resident"] for rank in measured)
    ranks = max(placement.neighbours for placement in placements)
    free = min(placement.host.available for placement in placements)
    notes = [
        f"a rank computes {computing:,.0f} samples/s",
        (
            f"a loader takes up to {resident / 2**30:.2f} GiB; {free / 2**30:.1f} GiB are free for"
            f" {plural(ranks, 'rank')} on a node, whose cores and memory are enough for"
            f" {plural(allowed, 'loader')} per rank"
        ),
        f"recommended: ddp.loaders: {advised(best, computing, allowed)}",
        (
            "start: until the first step of a pass; persistent loaders, which training uses, start"
            " once"
        ),
    ]
    if "pinned" not in variants:
        notes.append("pinned: not measured, since there is no GPU")
    header = ("loaders", *variants, "start", "start, persistent")
    readers = f"each of {plural(len(measured), 'rank')}, {measured[0]['examples']:,} examples"
    title = f"{training.name}: samples per second read by {readers}"
    table = Table(header, tuple(rows), title, tuple(notes))
    return ProbeResult(f"{training.name}, loader", (table,))


def _precision(
    training: DdpTraining,
    placements: Sequence[RankPlacement],
    measured: Sequence[Mapping[str, Any]],
    device: str,
) -> ProbeResult:
    variants = measured[0]["variants"]
    samples = measured[0]["samples"]
    base = variants["float32"]

    def row(name: str, seconds: float | None, memory: float | None) -> tuple[str, ...]:
        if seconds is None:
            return (name, "out of memory", "", "", "", "")
        peak = "?" if memory is None else size_text(memory)
        ratios = _ratio(seconds, base["seconds"]), _ratio(memory, base["memory"])
        return (name, format_time(seconds), f"{samples / seconds:,.0f}", peak, *ratios)

    header = (
        "",
        "time of a step",
        "samples/s",
        "peak memory",
        "time / float32",
        "memory / float32",
    )
    rows = tuple(
        row(name, variant["seconds"], variant["memory"]) for name, variant in variants.items()
    )
    recipe = training.recipe
    note = (
        "peak memory beyond that of the process without a model: weights, gradients, optimizer, "
        "activations"
    )
    sequences = f"{plural(samples, 'sequence')} of {recipe.context} tokens"
    title = f"{training.name}: steps of {sequences} on one rank, {device}"
    return ProbeResult(f"{training.name}, precision", (Table(header, rows, title, (note,)),))


def _ratio(number: float | None, reference: float | None) -> str:
    if not number or not reference:
        return "?"
    return f"{number / reference:.2f}"


Tabulator = Callable[
    [DdpTraining, Sequence[RankPlacement], Sequence[Mapping[str, Any]], str], ProbeResult
]
TABLES: Mapping[str, Tabulator] = {
    "allreduce": _allreduce,
    "loader": _loader,
    "precision": _precision,
}

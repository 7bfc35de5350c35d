"""Short measurements by the ranks of a process group, on the user's own model and data, as tables;
no checkpoint is written.
"""

from __future__ import annotations

import ctypes
import gc
import os
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import numpy as np
import psutil
import torch
import torch.distributed as dist

from daskmetrics.config import Recipe
from daskmetrics.core.table import Table
from daskmetrics.core.text import plural, size_text
from daskmetrics.training import _learning as learning
from daskmetrics.training import data as data
from daskmetrics.training._distributed import World, threads
from daskmetrics.training._learning import RankSteps, read_steps
from daskmetrics.training.data import effective

SIZES = tuple(4**power for power in range(5, 14))  # bytes of the measured messages: 1 KiB to 64 MiB
LONGEST = 0.3  # seconds for the repetitions of one message
# steps with and without the exchange of gradients, and seconds after which fewer are enough
PAIRS, PATIENCE = 16, 30.0
FIRST, BUCKET = 2**20, 25 * 2**20  # bytes of DDP's first bucket, and of the others
# share of a pass that is its backward pass, during which a GPU can exchange buckets
BACKWARD = 2 / 3
LOADERS = (0, 1, 2, 4, 8)
READING = 1.0  # seconds for each number of loaders
TOLERATED = 0.05  # share of a step's time that reading may take without loaders


@dataclass(frozen=True)
class ProbeTables:
    """What the ranks have measured, and the seconds that the exchange of gradients adds to a step
    of each rank.
    """

    tables: tuple[Table, ...]
    exchange: tuple[float, ...] = ()


def allreduce(recipe: Recipe, corpus: Path, world: World) -> ProbeTables:
    """The time of an all-reduce by the size of its message, and of the exchange of gradients in a
    step: predicted from these times, and measured by steps with and without it.
    """
    seconds = {size: max(world.gather(_exchange(size, world))) for size in SIZES}
    with threads(recipe.threads):
        learner = learning.new(recipe, world)
        steps = RankSteps(recipe, data.read(recipe, corpus), world)
        alone, together = [], []
        for _ in _rounds(world, 4, PAIRS, PATIENCE):
            together.append(_one_step(learner, recipe, steps))
            alone.append(_one_step(learner, recipe, steps, exchanges=False))
    # DDP rearranges its buckets after the first exchange
    own = world.gather(typical(alone[1:]))
    added = world.gather(typical(together[1:]) - typical(alone[1:]))
    nodes = world.gather(socket.gethostname())
    gradient = sum(p.numel() * p.element_size() for p in learner.model.parameters())
    computing = median(own)
    predicted = exposed(seconds, gradient, computing, overlaps=world.on_gpu)
    measured = max(0.0, median(added))
    counted = 2 * (world.size - 1) / world.size
    messages = []
    for size, took in seconds.items():
        bandwidth = f"{size_text(counted * size / took)}/s"
        messages.append((f"{size // 1024:,} KiB", _ms(took), bandwidth))
    title = (
        f"all-reduce of {plural(world.size, 'rank')} on {plural(len(set(nodes)), 'node')}, "
        f"{dist.get_backend()}, measured"
    )
    note = (
        "bandwidth is 2 (n - 1) / n x bytes / time, which does not depend on the number n of ranks"
    )
    by_size = Table(("message", "time", "bandwidth"), tuple(messages), title, (note,))
    slowest = own.index(max(own))
    of_step = Table(
        ("", "predicted", "measured"),
        (
            ("own work of a step", "", _ms(computing)),
            ("added by the exchange", _ms(predicted), _ms(measured)),
            (
                "share of a step",
                f"{predicted / (predicted + computing):.1%}",
                f"{measured / (measured + computing):.1%}",
            ),
        ),
        f"gradients of {size_text(gradient)} in {plural(len(buckets(gradient)), 'bucket')}",
        (f"slowest: rank {slowest} on {nodes[slowest]}, {_ms(own[slowest])} of its own work",),
    )
    return ProbeTables((by_size, of_step), tuple(added))


def _ms(seconds: float) -> str:
    return f"{1000 * seconds:,.2f} ms"


def _exchange(size: int, world: World) -> float:
    """The typical seconds of an all-reduce of so many bytes."""
    message = torch.zeros(size // 4, device=world.device)
    seconds = []
    for _ in _rounds(world, 5, 50, LONGEST):
        began = time.perf_counter()
        dist.all_reduce(message)
        _finish(world)
        seconds.append(time.perf_counter() - began)
    return typical(seconds[2:])  # the first two warm up


def _rounds(world: World, least: int, most: int, longest: float) -> Iterator[int]:
    """Repetitions, of which more than ``least`` only begin within so many seconds; all ranks begin
    and stop together.
    """
    began = time.perf_counter()
    for number in range(most):
        is_late = number >= least and time.perf_counter() - began > longest
        if any(world.gather(is_late)):
            return
        yield number


def _finish(world: World) -> None:
    if world.on_gpu:
        torch.cuda.synchronize(world.device)


def _one_step(
    learner: learning.TrainingState, recipe: Recipe, steps: RankSteps, exchanges: bool = True
) -> float:
    """Seconds of a step, once all ranks have read their examples."""
    world = learner.world
    passes = steps[learner.step + 1]
    world.gather(None)
    began = time.perf_counter()
    with nullcontext() if exchanges else learner.wrapped.no_sync():
        learning.take_step(learner, recipe, passes)
    _finish(world)
    return time.perf_counter() - began


def _typical_step(recipe: Recipe, corpus: Path, world: World) -> float:
    """The typical seconds of a step of a new model."""
    with threads(recipe.threads):
        learner = learning.new(recipe, world)
        steps = RankSteps(recipe, data.read(recipe, corpus), world)
        return typical([_one_step(learner, recipe, steps) for _ in range(5)][1:])


def typical(seconds: Sequence[float]) -> float:
    """The lower quartile of repeated times: what other work on a machine adds to some of them does
    not count.

    >>> typical([1.0, 1.1, 1.2, 5.0, 7.0])
    1.1
    """
    return sorted(seconds)[(len(seconds) - 1) // 4]


def buckets(gradient: float) -> list[float]:
    """The sizes in which DDP exchanges gradients of so many bytes.

    >>> [size / 2**20 for size in buckets(60 * 2**20)]
    [1.0, 25.0, 25.0, 9.0]
    """
    sizes = [min(gradient, float(FIRST))]
    remaining = gradient - FIRST
    while remaining > 0:
        sizes.append(min(remaining, float(BUCKET)))
        remaining -= BUCKET
    return sizes


def exposed(
    seconds: Mapping[int, float], gradient: float, computing: float, overlaps: bool
) -> float:
    """Seconds that the exchange of gradients of so many bytes adds to a step that computes for
    ``computing`` seconds, from the seconds of messages by their bytes.

    On a GPU, buckets travel during the backward pass, and only what is left after it counts, at
    least the last bucket. CPU ranks exchange with the cores on which they compute, so that nothing
    is gained by exchanging at the same time.

    >>> link = {1024: 0.0, 64 * 2**20: 0.064}
    >>> [round(exposed(link, 26 * 2**20, 0.03, overlaps), 3) for overlaps in (False, True)]
    [0.026, 0.025]
    """
    sizes = sorted(seconds)
    times = np.interp(buckets(gradient), sizes, [seconds[size] for size in sizes]).tolist()
    if not overlaps:
        return float(sum(times))
    return float(max(times[-1], sum(times) - BACKWARD * computing))


def loader(recipe: Recipe, corpus: Path, world: World) -> ProbeTables:
    """Samples per second that the slowest rank reads, by number of loaders, and that it
    computes.
    """
    steps = RankSteps(recipe, data.read(recipe, corpus), world)
    size = effective(recipe) // world.size
    computing = max(world.gather(size / _typical_step(recipe, corpus, world)))
    resident = float(psutil.Process().memory_info().rss)
    ranks = int(os.environ["LOCAL_WORLD_SIZE"])
    # a fifth of the memory stays free, and each rank has a core beside its loaders
    by_memory = int(0.8 * psutil.virtual_memory().available / (ranks * resident))
    by_cores = len(os.sched_getaffinity(0)) // ranks - 1
    tried = min(world.gather(by_memory))
    most = max(0, min(tried, *world.gather(by_cores)))
    rates = {}
    for loaders in LOADERS:
        if loaders <= tried:
            world.gather(None)  # all ranks read at once, as in a training
            stream = read_steps(steps, range(10**9), loaders)
            next(stream)
            count = 0
            began = time.perf_counter()
            while (seconds := time.perf_counter() - began) < READING:
                next(stream)
                count += 1
            rates[loaders] = min(world.gather(count * size / seconds))
    notes = (
        f"a rank computes {computing:,.0f} samples/s",
        f"a loader takes up to {size_text(resident)}; cores and memory are enough for "
        f"{plural(most, 'loader')} per rank",
        f"recommended: ddp.loaders: {advised(rates, computing, most)}",
    )
    rows = tuple((str(loaders), f"{rate:,.0f}") for loaders, rate in rates.items())
    title = f"samples per second read by each of {plural(world.size, 'rank')}"
    return ProbeTables((Table(("loaders", "samples/s"), rows, title, notes),))


def advised(rates: Mapping[int, float], computing: float, most: int) -> int:
    """The fewest loaders, at most ``most``, that keep up with a rank; or the fastest number of
    those, if none does.

    Parameters
    ----------
    rates : mapping of int to float
        Samples per second by the number of loaders; 0 is the rank itself, whose reading delays each
        step.
    computing : float
        Samples per second that the rank computes.
    most : int

    Examples
    --------
    >>> rates = {0: 900.0, 1: 600.0, 2: 1100.0, 4: 1900.0, 8: 2000.0}
    >>> [advised(rates, computing, most=4) for computing in (10.0, 1000.0, 5000.0)]
    [0, 2, 4]
    """
    usable = {count: rate for count, rate in sorted(rates.items()) if count <= most}
    for count, rate in usable.items():
        if rate * (1 if count else TOLERATED) >= computing:
            return count
    return max(usable, key=lambda count: usable[count])


def precision(recipe: Recipe, corpus: Path, world: World) -> ProbeTables:
    """Seconds of a step and peak memory of the ways to save memory, each on a new model with the
    same examples.
    """
    half = {"batch": recipe.batch // 2, "accumulate": 2 * recipe.accumulate}
    bfloat16, recomputed = {"precision": "bfloat16"}, {"activation_checkpointing": True}
    variants: dict[str, Mapping[str, object]] = {
        "float32": {},
        "bfloat16": bfloat16,
        "half the batch, twice the passes": half,
        "activation checkpointing": recomputed,
        "bfloat16, activation checkpointing": {**bfloat16, **recomputed},
    }
    if recipe.batch % 2:
        del variants["half the batch, twice the passes"]
    plain = recipe.model_copy(update={"activation_checkpointing": False, "precision": "float32"})
    # else what libraries keep for good would count for the first variant
    _cost(plain, corpus, world)
    rows = []
    for name, changes in variants.items():
        seconds, memory = _cost(plain.model_copy(update=changes), corpus, world)
        if seconds is None:
            rows.append((name, "out of memory", "", ""))
            continue
        peak = "?" if memory is None else size_text(memory)
        rows.append((name, _ms(seconds), f"{effective(recipe) / seconds:,.0f}", peak))
    header = ("", "time of a step", "samples/s", "peak memory")
    note = (
        "peak memory beyond that of the process without a model: weights, gradients, optimizer, "
        "activations"
    )
    sequences = f"{plural(effective(recipe), 'sequence')} of {recipe.context} tokens"
    title = f"steps of {sequences} on one rank, {world.device.partition(':')[0]}"
    return ProbeTables((Table(header, tuple(rows), title, (note,)),))


def _cost(recipe: Recipe, corpus: Path, world: World) -> tuple[float | None, int | None]:
    """Seconds of a step, None if the memory is not enough, and the peak of its memory in bytes,
    None where the system cannot reset its own.
    """
    gc.collect()
    before = _start_peak(world)
    seconds = None
    with suppress(torch.OutOfMemoryError):
        seconds = _typical_step(recipe, corpus, world)
    if before is None:
        return seconds, None
    if world.on_gpu:
        return seconds, torch.cuda.max_memory_allocated(world.device) - before
    lines = Path("/proc/self/status").read_text().splitlines()
    peak = next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))
    return seconds, max(0, 1024 * peak - before)


def _start_peak(world: World) -> int | None:
    """Bytes in use, from which the peak is counted; None where the system cannot reset its peak."""
    if world.on_gpu:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(world.device)
        return torch.cuda.memory_allocated(world.device)
    with suppress(OSError, AttributeError):  # not Linux with glibc
        # else the next model would use memory that the last one left
        ctypes.CDLL(None).malloc_trim(0)
        Path("/proc/self/clear_refs").write_text("5")
        return int(psutil.Process().memory_info().rss)
    return None


Probe = Callable[[Recipe, Path, World], ProbeTables]
PROBES: Mapping[str, Probe] = {"allreduce": allreduce, "loader": loader, "precision": precision}

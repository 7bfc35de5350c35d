"""Short measurements by the ranks of a process group, on the user's own model and data, as tables;
no checkpoint is written.
"""

from __future__ import annotations

import ctypes
import gc
import math
import os
import socket
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
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
from daskmetrics.training._learning import RankSteps, World
from daskmetrics.training.data import Tokens, effective

SIZES = tuple(4**power for power in range(5, 14))  # bytes of the measured messages: 1 KiB to 64 MiB
LONGEST = 0.3  # seconds for the repetitions of one message
# steps with and without the exchange of gradients, and seconds after which fewer are enough
PAIRS = 16
PATIENCE = 30.0
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


def allreduce(recipe: Recipe, tokens: Tokens, world: World) -> ProbeTables:
    """The time of an all-reduce by the size of its message, and of the exchange of gradients in a
    step: predicted from these times, and measured by steps with and without it.
    """
    seconds = {size: max(world.gather(_exchange(size, world))) for size in SIZES}
    learner = learning.new(recipe, world)
    passes = RankSteps(recipe, tokens, world)[1]

    def step() -> None:
        learner.take_step(passes)

    def step_alone() -> None:
        with learner.wrapped.no_sync():
            learner.take_step(passes)

    # DDP rearranges its buckets after the first exchange
    together, alone = _typical(world, step, step_alone, skipped=1, most=PAIRS, longest=PATIENCE)
    computed = world.gather(alone)
    added = world.gather(together - alone)
    nodes = world.gather(socket.gethostname())
    gradient = sum(p.numel() * p.element_size() for p in learner.model.parameters())
    computing = median(computed)
    predicted = exposed(seconds, gradient, computing, overlaps=world.on_gpu)
    measured = max(0.0, median(added))
    counted = 2 * (world.size - 1) / world.size
    by_size = Table(
        ("message", "time", "bandwidth"),
        tuple(
            (f"{size // 1024:,} KiB", _ms(took), f"{size_text(counted * size / took)}/s")
            for size, took in seconds.items()
        ),
        f"all-reduce of {plural(world.size, 'rank')} on {plural(len(set(nodes)), 'node')}, "
        f"{dist.get_backend()}, measured",
        (
            "bandwidth is 2 (n - 1) / n x bytes / time, which does not depend on the number n of"
            " ranks",
        ),
    )
    shares = (f"{exchange / (exchange + computing):.1%}" for exchange in (predicted, measured))
    slowest = computed.index(max(computed))
    of_step = Table(
        ("", "predicted", "measured"),
        (
            ("own work of a step", "", _ms(computing)),
            ("added by the exchange", _ms(predicted), _ms(measured)),
            ("share of a step", *shares),
        ),
        f"gradients of {size_text(gradient)} in {plural(len(buckets(gradient)), 'bucket')}",
        (f"slowest: rank {slowest} on {nodes[slowest]}, {_ms(computed[slowest])} of its own work",),
    )
    return ProbeTables((by_size, of_step), tuple(added))


def _ms(seconds: float) -> str:
    return f"{1000 * seconds:,.2f} ms"


def _exchange(size: int, world: World) -> float:
    """The typical seconds of an all-reduce of so many bytes."""
    message = torch.zeros(size // 4, device=world.device)
    (seconds,) = _typical(
        world, lambda: dist.all_reduce(message), skipped=2, most=50, longest=LONGEST
    )
    return seconds


def _typical_step(recipe: Recipe, tokens: Tokens, world: World) -> float:
    """The typical seconds of a step of a new model."""
    learner = learning.new(recipe, world)
    passes = RankSteps(recipe, tokens, world)[1]
    (seconds,) = _typical(world, lambda: learner.take_step(passes), skipped=1, most=5)
    return seconds


def _typical(
    world: World,
    *actions: Callable[[], object],
    skipped: int,
    most: int,
    longest: float = math.inf,
) -> list[float]:
    """The typical seconds of what all ranks do together, from when all are ready; several actions
    take turns.

    The first rounds warm up and are skipped. After three others, no round begins that is later
    than so many seconds; all ranks stop together.
    """
    seconds: list[list[float]] = [[] for _ in actions]
    started = time.perf_counter()
    for number in range(most):
        is_late = number >= skipped + 3 and time.perf_counter() - started > longest
        if any(world.gather(is_late)):
            break
        for action, of_action in zip(actions, seconds, strict=True):
            world.gather(None)
            began = time.perf_counter()
            action()
            if world.on_gpu:
                torch.cuda.synchronize(world.device)
            of_action.append(time.perf_counter() - began)
    return [typical(of_action[skipped:]) for of_action in seconds]


def typical(seconds: list[float]) -> float:
    """The lower quartile of repeated times: what other work on a machine adds to some of them does
    not count.

    >>> typical([1.0, 1.1, 1.2, 5.0, 7.0])
    1.1
    """
    return float(np.quantile(seconds, 0.25, method="lower"))


def buckets(gradient: float) -> list[float]:
    """The sizes in which DDP exchanges gradients of so many bytes.

    >>> [size / 2**20 for size in buckets(60 * 2**20)]
    [1.0, 25.0, 25.0, 9.0]
    """
    ends = [0.0, *np.arange(FIRST, gradient, BUCKET), gradient]
    sizes: list[float] = np.diff(ends).tolist()
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
    times = np.interp(buckets(gradient), list(seconds), list(seconds.values()))
    hidden = 0.0
    if overlaps:
        hidden = BACKWARD * computing
    return float(max(times[-1], times.sum() - hidden))


def loader(recipe: Recipe, tokens: Tokens, world: World) -> ProbeTables:
    """Samples per second that the slowest rank reads, by number of loaders, and that it
    computes.
    """
    steps = RankSteps(recipe, tokens, world)
    size = effective(recipe) // world.size
    computing = max(world.gather(size / _typical_step(recipe, tokens, world)))
    resident = float(psutil.Process().memory_info().rss)
    ranks = int(os.environ["LOCAL_WORLD_SIZE"])
    # a fifth of the memory stays free, and each rank has a core beside its loaders
    by_memory = int(0.8 * psutil.virtual_memory().available / (ranks * resident))
    by_cores = len(os.sched_getaffinity(0)) // ranks - 1
    tried = min(world.gather(by_memory))
    most_loaders = max(0, min(tried, *world.gather(by_cores)))
    rates = {}
    for loaders in LOADERS:
        if loaders <= tried:
            world.gather(None)  # all ranks read at once, as in a training
            stream = learning.read_steps(steps, range(10**9), loaders)
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
        f"{plural(most_loaders, 'loader')} per rank",
        f"recommended: ddp.loaders: {advised(rates, computing, most_loaders)}",
    )
    rows = tuple((str(loaders), f"{rate:,.0f}") for loaders, rate in rates.items())
    title = f"samples per second read by each of {plural(world.size, 'rank')}"
    return ProbeTables((Table(("loaders", "samples/s"), rows, title, notes),))


def advised(rates: Mapping[int, float], computing: float, most: int) -> int:
    """The fewest loaders, at most ``most``, that keep up with a rank, from samples per second by
    their number; or the fastest number of those, if none does.

    0 is the rank itself, whose reading delays each step.

    >>> rates = {0: 900.0, 1: 600.0, 2: 1100.0, 4: 1900.0, 8: 2000.0}
    >>> [advised(rates, computing, most=4) for computing in (10.0, 1000.0, 5000.0)]
    [0, 2, 4]
    """
    usable = {count: rate for count, rate in rates.items() if count <= most}
    for count, rate in usable.items():
        if rate * (1 if count else TOLERATED) >= computing:
            return count
    return max(usable, key=lambda count: usable[count])


def precision(recipe: Recipe, tokens: Tokens, world: World) -> ProbeTables:
    """Seconds of a step and peak memory of the ways to save memory, each on a new model with the
    same examples.
    """
    bfloat16 = {"precision": "bfloat16"}
    recomputed = {"activation_checkpointing": True}
    variants: dict[str, Mapping[str, object]] = {"float32": {}, "bfloat16": bfloat16}
    if recipe.batch % 2 == 0:
        half = {"batch": recipe.batch // 2, "accumulate": 2 * recipe.accumulate}
        variants["half the batch, twice the passes"] = half
    variants["activation checkpointing"] = recomputed
    variants["bfloat16, activation checkpointing"] = {**bfloat16, **recomputed}
    plain = recipe.model_copy(update={"activation_checkpointing": False, "precision": "float32"})
    # else what libraries keep for good would count for the first variant
    with suppress(torch.OutOfMemoryError):
        _cost(plain, tokens, world)
    rows = []
    for name, changes in variants.items():
        try:
            seconds, peak = _cost(plain.model_copy(update=changes), tokens, world)
        except torch.OutOfMemoryError:
            rows.append((name, "out of memory", "", ""))
        else:
            rows.append((name, _ms(seconds), f"{effective(recipe) / seconds:,.0f}", peak))
    header = ("", "time of a step", "samples/s", "peak memory")
    note = (
        "peak memory beyond that of the process without a model: weights, gradients, optimizer, "
        "activations"
    )
    sequences = f"{plural(effective(recipe), 'sequence')} of {recipe.context} tokens"
    title = f"steps of {sequences} on one rank, {world.device.partition(':')[0]}"
    return ProbeTables((Table(header, tuple(rows), title, (note,)),))


def _cost(recipe: Recipe, tokens: Tokens, world: World) -> tuple[float, str]:
    """Seconds of a step, and the peak of its memory, ``?`` where the system cannot reset it."""
    gc.collect()
    if world.on_gpu:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        seconds = _typical_step(recipe, tokens, world)
        return seconds, size_text(torch.cuda.max_memory_allocated() - before)
    with suppress(OSError, AttributeError):  # not Linux with glibc
        # else the next model would use memory that the last one left
        ctypes.CDLL(None).malloc_trim(0)
        Path("/proc/self/clear_refs").write_text("5")
        before = psutil.Process().memory_info().rss
        seconds = _typical_step(recipe, tokens, world)
        status = Path("/proc/self/status").read_text()
        peak = 1024 * int(status.partition("VmHWM:")[2].split()[0])
        return seconds, size_text(max(0, peak - before))
    return _typical_step(recipe, tokens, world), "?"


PROBES = {probe.__name__: probe for probe in (allreduce, loader, precision)}

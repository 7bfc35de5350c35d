"""Short measurements by the ranks of a process group, on the user's own model and data, as tables;
no checkpoint is written.
"""

from __future__ import annotations

import ctypes
import gc
import os
import socket
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
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
ROUNDS = 24  # repetitions
SKIPPED = 2  # that warm up: DDP rearranges its buckets after the first exchange
LEAST = 3  # others
LONGEST = 0.3  # seconds for the repetitions of one message; then the least number is enough
PATIENCE = 30.0  # and for those of steps
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
    seconds = {}
    for size in SIZES:
        message = torch.zeros(size // 4, device=world.device)
        (of_rank,) = _typical(world, partial(dist.all_reduce, message), longest=LONGEST)
        seconds[size] = max(world.gather(of_rank))
    learner = learning.new(recipe, world)
    step = partial(learner.take_step, RankSteps(recipe, tokens, world)[1])
    together, alone = _typical(world, step, partial(step, exchange=False))
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
        [
            (f"{size // 1024:,} KiB", _ms(took), f"{size_text(counted * size / took)}/s")
            for size, took in seconds.items()
        ],
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
        f"gradients of {size_text(gradient)}",
        (f"slowest: rank {slowest} on {nodes[slowest]}, {_ms(computed[slowest])} of its own work",),
    )
    return ProbeTables((by_size, of_step), tuple(added))


def _ms(seconds: float) -> str:
    return f"{1000 * seconds:,.2f} ms"


def _typical_step(recipe: Recipe, tokens: Tokens, world: World) -> float:
    """The typical seconds of a step of a new model."""
    learner = learning.new(recipe, world)
    passes = RankSteps(recipe, tokens, world)[1]
    (seconds,) = _typical(world, partial(learner.take_step, passes))
    return seconds


def _typical(
    world: World, *actions: Callable[[], object], longest: float = PATIENCE
) -> list[float]:
    """The lower quartile of the seconds of what all ranks do together, since other work on a
    machine adds to some of them; several actions take turns.

    All ranks stop together.
    """
    rounds: list[list[float]] = []
    started = time.perf_counter()
    while len(rounds) < ROUNDS:
        is_late = len(rounds) >= SKIPPED + LEAST and time.perf_counter() - started > longest
        if any(world.gather(is_late)):
            break
        rounds.append([_seconds(world, action) for action in actions])
    quartiles: list[float] = np.quantile(rounds[SKIPPED:], 0.25, axis=0, method="lower").tolist()
    return quartiles


def _seconds(world: World, action: Callable[[], object]) -> float:
    """The seconds of an action, from when all ranks are ready."""
    world.gather(None)
    began = time.perf_counter()
    action()
    if world.on_gpu:
        torch.cuda.synchronize(world.device)
    return time.perf_counter() - began


def exposed(
    seconds: Mapping[int, float], gradient: float, computing: float, overlaps: bool
) -> float:
    """Seconds that the exchange of gradients of so many bytes adds to a step that computes for
    ``computing`` seconds, from the seconds of messages by their bytes; DDP exchanges buckets.

    On a GPU, buckets travel during the backward pass, and only what is left after it counts, at
    least the last bucket. CPU ranks exchange with the cores on which they compute, so that nothing
    is gained by exchanging at the same time.

    >>> link = {1024: 0.0, 64 * 2**20: 0.064}
    >>> [round(exposed(link, 26 * 2**20, 0.03, overlaps), 3) for overlaps in (False, True)]
    [0.026, 0.025]
    """
    buckets = np.diff([0.0, *np.arange(FIRST, gradient, BUCKET), gradient])
    times = np.interp(buckets, list(seconds), list(seconds.values()))
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
    rows = [(str(loaders), f"{rate:,.0f}") for loaders, rate in rates.items()]
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
    plain = {"precision": "float32", "activation_checkpointing": False}
    bfloat16 = {"precision": "bfloat16"}
    recomputed = {"activation_checkpointing": True}
    half = {"batch": recipe.batch // 2, "accumulate": 2 * recipe.accumulate}
    variants: Mapping[str, Mapping[str, object]] = {
        "": {},  # what libraries keep for good would count for the first one, which is left out
        "float32": {},
        "bfloat16": bfloat16,
        "half the batch, twice the passes": half,
        "activation checkpointing": recomputed,
        "bfloat16, activation checkpointing": {**bfloat16, **recomputed},
    }
    rows = []
    for name, changes in variants.items():
        variant = recipe.model_copy(update={**plain, **changes})
        if effective(variant) < effective(recipe):  # an odd batch has no half
            continue
        try:
            seconds, peak = _cost(variant, tokens, world)
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
    return ProbeTables((Table(header, rows[1:], title, (note,)),))


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

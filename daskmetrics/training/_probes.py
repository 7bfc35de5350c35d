"""Short measurements by the ranks of a process group, on the user's own model and data, as tables;
no checkpoint is written.
"""

from __future__ import annotations

import ctypes
import gc
import time
from collections.abc import Callable, Mapping
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
from daskmetrics.training.suite import parameters

SIZES = tuple(4**power for power in range(5, 14))  # bytes of the measured messages: 1 KiB to 64 MiB
ROUNDS = 12  # repetitions
SKIPPED = 2  # that warm up: DDP rearranges its buckets after the first exchange
# share of a pass that is its backward pass, during which a GPU can exchange gradients
BACKWARD = 2 / 3
LOADERS = (0, 1, 2, 4, 8)
TRAINING = 3.0  # seconds for each number of loaders
ENOUGH = 0.95  # share of the highest speed at which fewer loaders are preferred


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
        (by_rank,) = _typical(world, partial(dist.all_reduce, message))
        seconds[size] = max(by_rank)
    learner = learning.new(recipe, world)
    step = partial(learner.take_step, RankSteps(recipe, tokens, world)[1])
    together, alone = _typical(world, step, partial(step, exchange=False))
    added = tuple(np.subtract(together, alone).tolist())
    gradient = 4 * parameters(recipe)
    computing = median(alone)
    predicted = exposed(seconds, gradient, computing, overlaps=world.device != "cpu")
    measured = max(0.0, median(added))
    counted = 2 * (world.size - 1) / world.size
    by_size = Table(
        ("message", "time", "bandwidth"),
        [
            (f"{size // 1024:,} KiB", _ms(took), f"{size_text(counted * size / took)}/s")
            for size, took in seconds.items()
        ],
        f"all-reduce of {plural(world.size, 'rank')}, {dist.get_backend()}, measured",
        ("bandwidth is 2 (n - 1) / n x bytes / time for n ranks",),
    )
    shares = (f"{exchange / (exchange + computing):.1%}" for exchange in (predicted, measured))
    of_step = Table(
        ("", "predicted", "measured"),
        (
            ("own work of a step", "", _ms(computing)),
            ("added by the exchange", _ms(predicted), _ms(measured)),
            ("share of a step", *shares),
        ),
        f"gradients of {size_text(gradient)}",
    )
    return ProbeTables((by_size, of_step), added)


def _ms(seconds: float) -> str:
    return f"{1000 * seconds:,.2f} ms"


def _typical(world: World, *actions: Callable[[], object]) -> list[list[float]]:
    """The seconds of what all ranks do together, by action and rank: the lower quartile, since
    other work on a machine adds to some of them; several actions take turns.
    """
    rounds: list[list[float]] = []
    for _ in range(ROUNDS):
        seconds = []
        for action in actions:
            world.gather(None)  # all are ready
            began = time.perf_counter()
            action()
            if world.device != "cpu":
                torch.cuda.synchronize(world.device)
            seconds.append(time.perf_counter() - began)
        rounds.append(seconds)
    quartiles = np.quantile(rounds[SKIPPED:], 0.25, axis=0, method="lower")
    by_action: list[list[float]] = np.transpose(world.gather(quartiles)).tolist()
    return by_action


def exposed(
    seconds: Mapping[int, float], gradient: float, computing: float, overlaps: bool
) -> float:
    """Seconds that the exchange of gradients of so many bytes adds to a step that computes for
    ``computing`` seconds, from the seconds of messages by their bytes.

    On a GPU it takes place during the backward pass, and only what is left after it counts. CPU
    ranks exchange with the cores on which they compute, so that nothing is gained by exchanging at
    the same time.

    >>> link = {1024: 0.0, 64 * 2**20: 0.064}
    >>> [round(exposed(link, 128 * 2**20, 0.03, overlaps), 3) for overlaps in (False, True)]
    [0.128, 0.108]
    """
    whole = np.interp(gradient, list(seconds), list(seconds.values()))
    whole *= max(1.0, gradient / max(seconds))
    hidden = 0.0
    if overlaps:
        hidden = BACKWARD * computing
    return float(max(0.0, whole - hidden))


def loader(recipe: Recipe, tokens: Tokens, world: World) -> ProbeTables:
    """Samples per second that the ranks learn from, by the number of loaders of each."""
    learner = learning.new(recipe, world)
    steps = RankSteps(recipe, tokens, world)
    rates = {}
    for loaders in LOADERS:
        stream = learning.read_steps(steps, range(10**9), loaders)
        learner.take_step(next(stream))  # the loaders start
        began = time.perf_counter()
        elapsed = 0.0
        count = 0
        while not any(world.gather(elapsed > TRAINING)):
            float(learner.take_step(next(stream)))  # waits for a GPU
            count += 1
            elapsed = time.perf_counter() - began
        rates[loaders] = count * effective(recipe) / elapsed
    enough = ENOUGH * max(rates.values())
    recommended = next(loaders for loaders, rate in rates.items() if rate >= enough)
    table = Table(
        ("loaders", "samples/s"),
        [(str(loaders), f"{rate:,.0f}") for loaders, rate in rates.items()],
        f"samples per second that {plural(world.size, 'rank')} learn from",
        (f"recommended: ddp.loaders: {recommended}",),
    )
    return ProbeTables((table,))


def precision(recipe: Recipe, tokens: Tokens, world: World) -> ProbeTables:
    """Seconds of a step and peak memory of the ways to save memory, each on a new model with the
    same examples.
    """
    half = {"batch": recipe.batch // 2, "accumulate": 2 * recipe.accumulate}
    variants: Mapping[str, Mapping[str, object]] = {
        "": {},  # what libraries keep for good would count for the first one, which is left out
        "float32": {"precision": "float32"},
        "bfloat16": {"precision": "bfloat16"},
        "half the batch, twice the passes": half,
    }
    samples = effective(recipe)
    rows = []
    for name, changes in variants.items():
        variant = recipe.model_copy(update=changes)
        if effective(variant) < samples:  # an odd batch has no half
            continue
        try:
            seconds, peak = _cost(variant, tokens, world)
        except torch.OutOfMemoryError:
            rows.append((name, "out of memory", "", ""))
        else:
            rows.append((name, _ms(seconds), f"{samples / seconds:,.0f}", size_text(peak)))
    table = Table(
        ("", "time of a step", "samples/s", "peak memory"),
        rows[1:],
        f"steps of {plural(samples, 'sequence')} of {recipe.context} tokens on one rank",
        ("peak memory is that of weights, gradients, optimizer and activations",),
    )
    return ProbeTables((table,))


def _cost(recipe: Recipe, tokens: Tokens, world: World) -> tuple[float, float]:
    """Seconds of a step of a new model, and bytes of memory that it takes at most."""
    gc.collect()
    if world.device != "cpu":
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
    else:
        # else it would use memory that the last model left
        ctypes.CDLL(None).malloc_trim(0)
        Path("/proc/self/clear_refs").write_text("5")
        before = psutil.Process().memory_info().rss
    learner = learning.new(recipe, world)
    step = partial(learner.take_step, RankSteps(recipe, tokens, world)[1])
    ((seconds,),) = _typical(world, step)
    if world.device != "cpu":
        peak = torch.cuda.max_memory_allocated()
    else:
        status = Path("/proc/self/status").read_text()
        peak = 1024 * int(status.partition("VmHWM:")[2].split()[0])
    return seconds, peak - before


PROBES = {probe.__name__: probe for probe in (allreduce, loader, precision)}

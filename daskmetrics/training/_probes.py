"""Short measurements by the ranks of a process group, on the user's own model and data; no
checkpoint is written.
"""

from __future__ import annotations

import ctypes
import gc
import os
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

import psutil
import torch
import torch.distributed as dist

from daskmetrics.config import Recipe
from daskmetrics.core.machine import infiniband_ports
from daskmetrics.training import _learning as learning
from daskmetrics.training import data as data
from daskmetrics.training._distributed import World, threads
from daskmetrics.training._loaders import RankSteps, limit, make_loader
from daskmetrics.training.data import effective
from daskmetrics.training.traffic import SIZES, scopes, typical

Probe = Callable[[Recipe, Path, World, Sequence[str]], Mapping[str, Any]]

LONGEST = 0.3  # seconds for the repetitions of one message
# steps with and without an exchange, and seconds after which fewer are enough
PAIRS, PATIENCE = (
    16,
    30.0,
)


def allreduce(
    recipe: Recipe, corpus: Path, world: World, nodes: Sequence[str]
) -> Mapping[str, Any]:
    """Seconds of an all-reduce by message size, among ranks of a node and of several, and of steps
    with and without.
    """
    groups: dict[tuple[str, tuple[int, ...]], Any] = {}
    for scope, rank_lists in scopes(nodes).items():
        groups |= {(scope, tuple(ranks)): dist.new_group(ranks) for ranks in rank_lists}
    links: dict[str, dict[str, Any]] = {}
    for (scope, ranks), group in groups.items():
        if world.rank in ranks:
            links[scope] = {
                "ranks": len(ranks),
                "seconds": {size: _exchange(size, group, world) for size in SIZES},
            }
        if [other for other in groups if other[0] == scope][-1] == (scope, ranks):
            dist.barrier()
    with threads(recipe.threads):
        learner = learning.new(recipe, corpus, world)
        alone, together = _step_pairs(learner, recipe, corpus)
    return {
        "links": links,
        "alone": alone,
        "together": together,
        "gradient": sum(
            p.numel() * p.element_size() for p in learner.model.parameters() if p.requires_grad
        ),
        "backend": dist.get_backend(),
        "topology": topology(),
        "infiniband": infiniband_ports(),
    }


def _exchange(size: int, group: Any, world: World) -> float:
    """The typical seconds of an all-reduce of so many bytes."""
    message = torch.zeros(size // 4, device=world.device)
    seconds: list[float] = []
    continues = torch.ones(1, device=world.device)
    while float(continues) > 0:
        dist.barrier(group)
        began = time.perf_counter()
        dist.all_reduce(message, group=group)
        _finish(world)
        seconds.append(time.perf_counter() - began)
        # the first two warm up; all ranks of the group stop together
        continues.fill_(len(seconds) < 5 or (len(seconds) < 50 and sum(seconds) < LONGEST))
        dist.all_reduce(continues, dist.ReduceOp.MAX, group)
    return typical(seconds[2:])


def _finish(world: World) -> None:
    if world.device.startswith("cuda"):
        torch.cuda.synchronize(world.device)


def _step_pairs(
    learner: learning.TrainingState, recipe: Recipe, corpus: Path
) -> tuple[Sequence[float], Sequence[float]]:
    """Seconds of steps without and with the exchange of gradients, in turns."""
    world = learner.world
    steps = RankSteps(recipe, data.read(recipe, corpus), world)
    alone: list[float] = []
    together: list[float] = []
    began = time.perf_counter()
    continues = True
    while continues:
        for seconds in (together, alone):  # DDP rearranges its buckets after the first exchange
            seconds.append(_one_step(learner, recipe, steps, exchanges=seconds is together))
        continues = world.broadcast(
            len(alone) < 4 or (len(alone) < PAIRS and time.perf_counter() - began < PATIENCE)
        )
    return alone[1:], together[1:]


def _one_step(
    learner: learning.TrainingState, recipe: Recipe, steps: RankSteps, exchanges: bool = True
) -> float:
    world = learner.world
    passes = steps[learner.step + 1]
    if world.size > 1:
        dist.barrier()
    began = time.perf_counter()
    with nullcontext() if exchanges else learner.wrapped.no_sync():
        learning.take_step(learner, recipe, passes)
    _finish(world)
    return time.perf_counter() - began


def topology() -> str | None:
    """How the GPUs of this machine and its network are connected, as ``nvidia-smi topo -m`` prints
    it.
    """
    if not Path("/proc/driver/nvidia").is_dir() or int(os.environ.get("LOCAL_RANK", "0")):
        return None
    with suppress(OSError, subprocess.SubprocessError):
        return subprocess.run(
            ("nvidia-smi", "topo", "-m"), capture_output=True, text=True, check=True, timeout=20
        ).stdout
    return None


LOADERS = (0, 1, 2, 4, 8)
VARIANTS: Mapping[str, Mapping[str, Any]] = {
    "samples/s": {}, "prefetch 4": {"prefetch_factor": 4}, "pinned": {"pin_memory": True},
}  # fmt: skip
READING = 1.0  # seconds that one pass over the measured steps takes without loaders


def loader(recipe: Recipe, corpus: Path, world: World, nodes: Sequence[str]) -> Mapping[str, Any]:
    """Samples per second that a rank reads, by number of loaders and their options, and that it
    computes.
    """
    steps = RankSteps(recipe, data.read(recipe, corpus), world)
    size = steps.part.stop - steps.part.start
    with threads(recipe.threads):
        learner = learning.new(recipe, corpus, world)
        computing = typical([_one_step(learner, recipe, steps) for _ in range(5)][1:])
    resident = float(psutil.Process().memory_info().rss)
    began = time.perf_counter()
    for step in range(1, 9):
        steps[step]
    ahead = range(1, 1 + max(16, min(512, int(8 * READING / (time.perf_counter() - began)))))
    room = 0.8 * psutil.virtual_memory().available / int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    rates: dict[str, dict[int, float]] = {}
    starts: dict[int, tuple[float, float]] = {}
    for variant, options in VARIANTS.items():
        if variant == "pinned" and world.device == "cpu":
            continue
        for count in LOADERS:
            if count * resident < room and (count or "prefetch_factor" not in options):
                seconds, *start = _two_passes(steps, ahead, count, options)
                rates.setdefault(variant, {})[count] = 2 * (len(ahead) - 1) * size / seconds
                starts.setdefault(count, (start[0], start[1]))
    return {
        "rates": rates,
        "starts": starts,
        "computing": size / computing,
        "resident": resident,
        "allowed": limit(resident),
        "examples": len(steps.source),
    }


def _two_passes(
    steps: RankSteps, ahead: Sequence[int], count: int, options: Mapping[str, Any]
) -> tuple[float, float, float]:
    """Seconds of two passes after their first steps, and until each pass's first step; loaders
    start for the first.
    """
    reader = make_loader(steps, ahead, count, persistent_workers=count > 0, **options)
    seconds = 0.0
    starts = []
    for _ in range(2):
        began = time.perf_counter()
        stream = iter(reader)
        next(stream)
        starts.append(time.perf_counter() - began)
        for _ in stream:
            pass
        seconds += time.perf_counter() - began - starts[-1]
    return seconds, starts[0], starts[1]


def precision(
    recipe: Recipe, corpus: Path, world: World, nodes: Sequence[str]
) -> Mapping[str, Any]:
    """Seconds of a step and peak memory of the ways to save memory, each on a new model with the
    same examples.
    """
    recipe = recipe.model_copy(update={"activation_checkpointing": False, "precision": "float32"})
    half = {"batch": recipe.batch // 2, "accumulate": 2 * recipe.accumulate}
    recomputed = {"activation_checkpointing": True}
    variants: dict[str, Mapping[str, Any]] = {
        "float32": {},
        "bfloat16": {"precision": "bfloat16"},
    }
    if world.device.startswith("cuda"):
        variants["float16"] = {"precision": "float16"}
    if recipe.batch % 2 == 0:
        variants["half the batch, twice the passes"] = half
    variants["activation checkpointing"] = recomputed
    variants["bfloat16, activation checkpointing"] = {"precision": "bfloat16", **recomputed}
    results: dict[str, dict[str, float | None]] = {}
    with threads(recipe.threads):
        with suppress(torch.OutOfMemoryError):
            # else what libraries keep for good would count for the first variant
            _timed(recipe, corpus, world)
        for name, changes in variants.items():
            gc.collect()
            before = _start_peak(world)
            try:
                results[name] = {
                    "seconds": _timed(recipe.model_copy(update=changes), corpus, world)
                }
            except torch.OutOfMemoryError:
                results[name] = {"seconds": None}
            peak = _peak(world)
            results[name]["memory"] = None
            if peak is not None and before is not None:
                results[name]["memory"] = max(0, peak - before)
    return {"variants": results, "samples": effective(recipe)}


def _timed(recipe: Recipe, corpus: Path, world: World) -> float:
    learner = learning.new(recipe, corpus, world)
    steps = RankSteps(recipe, data.read(recipe, corpus), world)
    return typical([_one_step(learner, recipe, steps) for _ in range(5)][1:])


def _start_peak(world: World) -> int | None:
    """Bytes in use, from which the peak is counted; None where the system cannot reset its peak."""
    if world.device.startswith("cuda"):
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(world.device)
        return int(torch.cuda.memory_allocated(world.device))
    with suppress(OSError, AttributeError):  # not Linux with glibc
        # else the next model would use memory that the last one left
        ctypes.CDLL(None).malloc_trim(0)
        Path("/proc/self/clear_refs").write_text("5")
        return int(psutil.Process().memory_info().rss)
    return None


def _peak(world: World) -> int | None:
    if world.device.startswith("cuda"):
        return int(torch.cuda.max_memory_allocated(world.device))
    with suppress(OSError):
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(
            (1024 * int(line.split()[1]) for line in lines if line.startswith("VmHWM")), None
        )
    return None


PROBES: Mapping[str, Probe] = {"allreduce": allreduce, "loader": loader, "precision": precision}

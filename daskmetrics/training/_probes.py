"""Short measurements by the ranks of a process group, on the user's own model and data; no checkpoint is written."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from daskmetrics.config import DDP, Recipe
from daskmetrics.core._machine import infiniband_ports
from daskmetrics.training import _data as data
from daskmetrics.training import _learning as learning
from daskmetrics.training._distributed import NullReporter, World, threads
from daskmetrics.training._loaders import RankSteps
from daskmetrics.training._traffic import SIZES, scopes, typical

Probe = Callable[[Recipe, DDP, Path, World, Sequence[str]], Mapping[str, Any]]

LONGEST = 0.3  # seconds for the repetitions of one message
PAIRS, PATIENCE = 16, 30.0  # steps with and without an exchange, and seconds after which fewer are enough


def allreduce(recipe: Recipe, ddp: DDP, corpus: Path, world: World, nodes: Sequence[str]) -> Mapping[str, Any]:
    """Seconds of an all-reduce by message size, among ranks of a node and of several, and of steps with and without."""
    groups = {(scope, tuple(ranks)): dist.new_group(ranks) for scope, every in scopes(nodes).items() for ranks in every}
    links: dict[str, dict[str, Any]] = {}
    for (scope, ranks), group in groups.items():
        if world.rank in ranks:
            links[scope] = {"ranks": len(ranks), "seconds": {size: _exchange(size, group, world) for size in SIZES}}
        if [other for other in groups if other[0] == scope][-1] == (scope, ranks):
            dist.barrier()
    with threads(recipe.threads):
        learner = learning.new(recipe, corpus, world)
        alone, together = _step_pairs(learner, recipe, corpus)
    return {
        "links": links,
        "alone": alone,
        "together": together,
        "gradient": sum(p.numel() * p.element_size() for p in learner.model.parameters() if p.requires_grad),
        "backend": dist.get_backend(),
        "topology": topology(),
        "infiniband": infiniband_ports(),
    }


def _exchange(size: int, group: Any, world: World) -> float:
    """The typical seconds of an all-reduce of so many bytes."""
    message = torch.zeros(size // 4, device=world.device)
    seconds: list[float] = []
    left = torch.ones(1, device=world.device)
    while float(left) > 0:
        dist.barrier(group)
        began = time.perf_counter()
        dist.all_reduce(message, group=group)
        _finish(world)
        seconds.append(time.perf_counter() - began)
        # the first two warm up; all ranks of the group stop together
        left.fill_(len(seconds) < 5 or (len(seconds) < 50 and sum(seconds) < LONGEST))
        dist.all_reduce(left, dist.ReduceOp.MAX, group)
    return typical(seconds[2:])


def _finish(world: World) -> None:
    if world.device.startswith("cuda"):
        torch.cuda.synchronize(world.device)


def _step_pairs(
    learner: learning.TrainingState, recipe: Recipe, corpus: Path
) -> tuple[Sequence[float], Sequence[float]]:
    """Seconds of steps without and with the exchange of gradients, in turns."""
    world, steps = learner.world, RankSteps(recipe, data.read(recipe, corpus), learner.world)
    alone: list[float] = []
    together: list[float] = []
    began = time.perf_counter()
    more = True
    while more:
        for seconds in (together, alone):  # DDP rearranges its buckets after the first exchange
            seconds.append(_one_step(learner, recipe, steps, exchanges=seconds is together))
        more = len(alone) < 4 or (len(alone) < PAIRS and time.perf_counter() - began < PATIENCE)
        more = world.broadcast(more)
    return alone[1:], together[1:]


def _one_step(learner: learning.TrainingState, recipe: Recipe, steps: RankSteps, exchanges: bool = True) -> float:
    world = learner.world
    passes = steps[learner.step + 1]
    if world.size > 1:
        dist.barrier()
    began = time.perf_counter()
    with nullcontext() if exchanges else learner.wrapped.no_sync():
        learning.take_step(learner, recipe, passes, NullReporter())
    _finish(world)
    return time.perf_counter() - began


def topology() -> str | None:
    """How the GPUs of this machine and its network are connected, as ``nvidia-smi topo -m`` prints it."""
    if not Path("/proc/driver/nvidia").is_dir() or int(os.environ.get("LOCAL_RANK", "0")):
        return None
    with suppress(OSError, subprocess.SubprocessError):
        return subprocess.run(
            ("nvidia-smi", "topo", "-m"), capture_output=True, text=True, check=True, timeout=20
        ).stdout
    return None


PROBES: Mapping[str, Probe] = {"allreduce": allreduce}

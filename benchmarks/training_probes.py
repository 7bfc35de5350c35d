"""Short measurements by the ranks of a data-parallel training: the exchange of gradients, loaders,
precision. Plain torch; no checkpoint is written.

Run ``daskmetrics train benchmarks/training_probes.py --ranks 2 -- allreduce``, or ``loader`` or
``precision`` in its place, on the workers and nodes of the training; ``torchrun`` starts it as
well. ``--width``, ``--depth``, ... give the shape of the model, ``--tokens`` the ``tokens.npy`` of
a suite's ``corpus`` folder. Rank 0 prints the tables.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import os
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from statistics import median

import numpy as np
import psutil
import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset
from transformers import GPTNeoXConfig, GPTNeoXForCausalLM

from daskmetrics.core.table import Table
from daskmetrics.core.text import plural, size_text

SIZES = tuple(4**power for power in range(5, 14))  # bytes of the messages: 1 KiB to 64 MiB
ROUNDS = 12  # repetitions
SKIPPED = 2  # that warm up: DDP rearranges its buckets after the first exchange
# share of a pass that is its backward pass, during which a GPU can exchange gradients
BACKWARD = 2 / 3
LOADERS = (0, 1, 2, 4, 8)
TRAINING = 3.0  # seconds for each number of loaders
ENOUGH = 0.95  # share of the highest speed at which fewer loaders are preferred


class Windows(Dataset[torch.Tensor]):
    """Passes of random windows of tokens, int64 of shape (batch, context + 1)."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.batch = options.batch
        self.context = options.context
        self.tokens = np.zeros(2**20, np.uint16)
        if options.tokens:
            self.tokens = np.load(options.tokens, mmap_mode="r")
        if len(self.tokens) <= self.context:
            raise SystemExit(
                f"'{options.tokens}' has {len(self.tokens)} tokens, a window {self.context} and one"
                " more: lower --context."
            )

    def __len__(self) -> int:
        return 10**9

    def __getitem__(self, number: int) -> torch.Tensor:
        starts = np.random.default_rng(number).integers(
            len(self.tokens) - self.context, size=self.batch
        )
        rows = self.tokens[starts[:, None] + np.arange(self.context + 1)]
        return torch.from_numpy(rows.astype(np.int64))


class Learner:
    """A new model, and steps on it."""

    def __init__(self, options: argparse.Namespace, device: str) -> None:
        self.accumulate = options.accumulate
        self.precision = options.precision
        self.device = device
        model = GPTNeoXForCausalLM(
            GPTNeoXConfig(
                vocab_size=options.vocabulary,
                hidden_size=options.width,
                intermediate_size=4 * options.width,
                num_hidden_layers=options.depth,
                num_attention_heads=options.heads,
                max_position_embeddings=options.context,
            )
        ).to(device)
        self.parameters = sum(weights.numel() for weights in model.parameters())
        self.model = DistributedDataParallel(model, gradient_as_bucket_view=True)
        self.optimizer = torch.optim.AdamW(model.parameters(), fused=True)

    def step(self, passes: Iterator[torch.Tensor], exchange: bool = True) -> float:
        """Take a step of all passes; its last pass exchanges the sum of their gradients."""
        for number in range(1, self.accumulate + 1):
            rows = next(passes).to(self.device)
            self.model.require_backward_grad_sync = exchange and number == self.accumulate
            with torch.autocast(
                self.device.partition(":")[0], torch.bfloat16, self.precision == "bfloat16"
            ):
                logits = self.model(input_ids=rows[:, :-1]).logits
                loss = cross_entropy(logits.flatten(0, 1).float(), rows[:, 1:].flatten())
            (loss / self.accumulate).backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss.item()  # waits for a GPU


def gather(value: object) -> list[object]:
    """The values of all ranks, at every rank, once all have come here."""
    values: list[object] = [None] * dist.get_world_size()
    dist.all_gather_object(values, value)
    return values


def typical(device: str, *actions: Callable[[], object]) -> np.ndarray:
    """Seconds of what all ranks do together, by action and rank.

    It is the lower quartile, since other work on a machine adds to some; actions take turns.
    """
    rounds = []
    for _ in range(ROUNDS):
        seconds = []
        for action in actions:
            dist.barrier()
            began = time.perf_counter()
            action()
            if device != "cpu":
                torch.cuda.synchronize(device)
            seconds.append(time.perf_counter() - began)
        rounds.append(seconds)
    return np.transpose(gather(np.quantile(rounds[SKIPPED:], 0.25, axis=0, method="lower")))


def milliseconds(seconds: float) -> str:
    return f"{1000 * seconds:,.2f} ms"


def exposed(seconds: dict[int, float], gradient: float, computing: float, overlaps: bool) -> float:
    """Seconds that the exchange of so many bytes of gradients adds to a step, from the seconds of
    messages by their bytes.

    On a GPU it takes place during the backward pass, and only what is left after it counts. CPU
    ranks exchange with the cores on which they compute.

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


def allreduce(options: argparse.Namespace, device: str) -> list[Table]:
    """The time of an all-reduce by the size of its message, and the share of a step that the
    exchange of gradients takes: predicted from these times, and measured with and without it.
    """
    ranks = dist.get_world_size()
    if ranks < 2:
        raise SystemExit("An all-reduce needs two ranks or more: --ranks 2.")
    seconds = {}
    for size in SIZES:
        message = torch.zeros(size // 4, device=device)
        seconds[size] = float(typical(device, partial(dist.all_reduce, message)).max())
    learner = Learner(options, device)
    step = partial(learner.step, iter(DataLoader(Windows(options), batch_size=None)))
    together, alone = typical(device, step, partial(step, exchange=False))
    gradient = 4 * learner.parameters
    computing = median(alone)
    predicted = exposed(seconds, gradient, computing, overlaps=device != "cpu")
    measured = max(0.0, median(together - alone))
    counted = 2 * (ranks - 1) / ranks
    by_size = [
        (f"{size // 1024:,} KiB", milliseconds(took), f"{size_text(counted * size / took)}/s")
        for size, took in seconds.items()
    ]
    shares = [f"{added / (added + computing):.1%}" for added in (predicted, measured)]
    of_step = [
        ("own work of a step", "", milliseconds(computing)),
        ("added by the exchange", milliseconds(predicted), milliseconds(measured)),
        ("share of a step", *shares),
    ]
    return [
        Table(
            ("message", "time", "bandwidth"),
            by_size,
            f"all-reduce of {plural(ranks, 'rank')}, {dist.get_backend()}, measured",
            ("bandwidth is 2 (n - 1) / n x bytes / time for n ranks",),
        ),
        Table(("", "predicted", "measured"), of_step, f"gradients of {size_text(gradient)}"),
    ]


def loader(options: argparse.Namespace, device: str) -> list[Table]:
    """Samples per second that the ranks learn from, by the number of loaders of each."""
    ranks = dist.get_world_size()
    learner = Learner(options, device)
    samples = options.batch * options.accumulate * ranks
    rates = {}
    for loaders in LOADERS:
        passes = iter(DataLoader(Windows(options), batch_size=None, num_workers=loaders))
        learner.step(passes)  # the loaders start
        began = time.perf_counter()
        elapsed = 0.0
        count = 0
        while not any(gather(elapsed > TRAINING)):
            learner.step(passes)
            count += 1
            elapsed = time.perf_counter() - began
        rates[loaders] = count * samples / elapsed
    enough = ENOUGH * max(rates.values())
    recommended = next(loaders for loaders, rate in rates.items() if rate >= enough)
    rows = [(str(loaders), f"{rate:,.0f}") for loaders, rate in rates.items()]
    title = f"samples per second that {plural(ranks, 'rank')} learn from"
    return [Table(("loaders", "samples/s"), rows, title, (f"recommended: loaders: {recommended}",))]


def precision(options: argparse.Namespace, device: str) -> list[Table]:
    """Seconds of a step and peak memory of the ways to save memory, each on a new model."""
    if dist.get_world_size() > 1:
        raise SystemExit("Precision and memory are those of one rank: --ranks 1.")
    half = {"batch": options.batch // 2, "accumulate": 2 * options.accumulate}
    variants: dict[str, dict[str, object]] = {
        "": {},  # what libraries keep for good would count for the first one, which is left out
        "float32": {"precision": "float32"},
        "bfloat16": {"precision": "bfloat16"},
        "half the batch, twice the passes": half,
    }
    if options.batch % 2:  # an odd batch has no half
        del variants["half the batch, twice the passes"]
    samples = options.batch * options.accumulate
    rows = []
    for name, changes in variants.items():
        try:
            seconds, peak = cost(argparse.Namespace(**{**vars(options), **changes}), device)
        except torch.OutOfMemoryError:
            rows.append((name, "out of memory", "", ""))
        else:
            rows.append((name, milliseconds(seconds), f"{samples / seconds:,.0f}", size_text(peak)))
    return [
        Table(
            ("", "time of a step", "samples/s", "peak memory"),
            rows[1:],
            f"steps of {plural(samples, 'sequence')} of {options.context} tokens on one rank",
            ("peak memory is that of weights, gradients, optimizer and activations",),
        )
    ]


def cost(options: argparse.Namespace, device: str) -> tuple[float, float]:
    """Seconds of a step of a new model, and bytes of memory that it takes at most."""
    gc.collect()
    if device != "cpu":
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
    else:
        ctypes.CDLL(None).malloc_trim(0)  # else it would use memory that the last model left
        Path("/proc/self/clear_refs").write_text("5")  # resets the peak
        before = psutil.Process().memory_info().rss
    learner = Learner(options, device)
    passes = iter(DataLoader(Windows(options), batch_size=None))
    seconds = float(typical(device, partial(learner.step, passes))[0].max())
    if device != "cpu":
        return seconds, torch.cuda.max_memory_allocated() - before
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    peak = 1024 * int(status.partition("VmHWM:")[2].split()[0])
    return seconds, peak - before


PROBES = {probe.__name__: probe for probe in (allreduce, loader, precision)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("probe", choices=PROBES)
    sizes = {"width": 128, "depth": 4, "heads": 4, "vocabulary": 2048, "context": 128}
    for name, value in {**sizes, "batch": 8, "accumulate": 1}.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--precision", choices=["float32", "bfloat16"], default="float32")
    parser.add_argument("--tokens", type=Path)
    options = parser.parse_args()
    if options.tokens:
        largest = int(np.load(options.tokens, mmap_mode="r").max())
        options.vocabulary = max(options.vocabulary, largest + 1)
    device = "cpu"
    if torch.cuda.is_available():
        device = f"cuda:{os.environ['LOCAL_RANK']}"
        torch.cuda.set_device(device)
    else:
        torch.set_num_threads(
            max(1, torch.get_num_threads() // int(os.environ["LOCAL_WORLD_SIZE"]))
        )
    dist.init_process_group("gloo" if device == "cpu" else "nccl")
    tables = PROBES[options.probe](options, device)
    if dist.get_rank() == 0:
        print("\n\n".join(table.as_text() for table in tables), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

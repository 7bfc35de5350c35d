"""What measuring a checkpoint costs beside the bare forward pass, and beside one pass per
(checkpoint, layer).

python benchmarks/metrics.py                  all figures, on one CPU thread; some ten minutes
python benchmarks/metrics.py --small          the same in seconds, as a test of correctness
python benchmarks/metrics.py --corpus 20000   peak memory of a corpus of so many texts, through six layers
                                              (--metrics all: of all metrics, which costs four
                                              passes and an hour)
python benchmarks/metrics.py --device cuda    seconds per checkpoint of three Pythia shapes, and for their 5,184 arms,
                                              with 200 prompts and then with 1,000
python benchmarks/metrics.py --only grid      the same on one CPU thread, with 4 prompts and then with 16

All run from a source tree that is not installed, with ``PYTHONPATH=.``; numpy, torch, transformers,
safetensors, PyYAML, pydantic and psutil suffice.

Weights are random, which costs what trained ones cost. Times are CPU seconds of this process, each
pair measured in turn, and of their ratios the median is shown. Peak memory is that of a process of
its own which does nothing else.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import resource
import runpy
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

METRICS = ("prompt_entropy", "curvature")
BASE = ("prompt_entropy", "curvature", "dataset_entropy", "effective_rank", "anisotropy")
ALL = ("all",)
# by width: for short texts, and for 256 tokens
GOALS = {
    512: (1.05, 1.10),
    256: (1.16, 1.30),
    128: (1.30, 1.30),
}
PYTHIA = {"14m": (6, 128, 4), "70m": (6, 512, 8), "410m": (24, 1024, 16)}  # blocks, width, heads
REVISIONS = 144  # times the 36 blocks of the three shapes: 5,184 arms


@dataclass(frozen=True)
class Shape:
    """A GPT-NeoX."""

    depth: int
    width: int
    heads: int = 0
    vocabulary: int = 4096

    def __str__(self) -> str:
        return f"{self.depth} layers, d={self.width}"


def short_texts(count: int) -> list[str]:
    """Prompts of the built-in corpus; if it has too few, they are repeated with a number in front."""
    from daskmetrics.core import corpus as corpus

    texts = corpus.prompts("stdlib", min(count, 1000), 0)
    return [
        texts[i % len(texts)] if i < len(texts) else f"{i} {texts[i % len(texts)]}"
        for i in range(count)
    ]


def long_texts(count: int) -> list[str]:
    """Texts of at least 256 tokens."""
    words = " ".join(short_texts(1000)).split()
    return [" ".join(words[(97 * i + j) % len(words)] for j in range(256)) for i in range(count)]


def build(folder: Path, shape: Shape, checkpoints: int, dtype: Any = None) -> list[Any]:
    """Locations of checkpoints of a suite, with random weights, saved as float32 or another type."""
    import torch

    from daskmetrics.checkpoints.locations import Location
    from daskmetrics.models._tokens import import_transformers
    from daskmetrics.training import data as data

    fitted = data.fit_tokenizer(short_texts(1000), 4096)
    config = import_transformers().GPTNeoXConfig(
        vocab_size=shape.vocabulary,
        hidden_size=shape.width,
        num_hidden_layers=shape.depth,
        num_attention_heads=shape.heads or max(2, shape.width // 64),
        intermediate_size=4 * shape.width,
        max_position_embeddings=2048,
    )
    locations = []
    for i in range(checkpoints):
        torch.manual_seed(i)
        place = folder / f"step{i}"
        import_transformers().AutoModel.from_config(config).to(dtype).save_pretrained(place)
        data.save_tokenizer(fitted, place, 2048)
        locations.append(Location(str(place), None, str(place)))
    return locations


def engine(
    locations: Sequence[Any],
    texts: Sequence[str],
    layers: Sequence[int],
    metrics: Sequence[str],
    protocol: Any,
    device: str = "cpu",
    once: bool = False,
) -> list[np.ndarray]:
    """Metrics (layers, metrics) of every checkpoint, computed as on a worker.

    With ``once`` there is one forward pass; further views are vectors near those of the first.
    """
    from daskmetrics.metrics import engine as engine
    from daskmetrics.metrics import resolve
    from daskmetrics.metrics import views as views
    from daskmetrics.models import LoadedModel, pool

    found, chosen = [], resolve(metrics)
    for here, following in zip(locations, [*locations[1:], None], strict=True):
        reducer = engine.Reducer(chosen, layers, len(texts))
        with LoadedModel(here, protocol, device, following) as model:
            for number in range(1 if once else reducer.views):

                def take(
                    layer: int,
                    rows: Any,
                    states: Any,
                    mask: Any,
                    reducer: Any = reducer,
                    number: int = number,
                ) -> None:
                    pooled = pool(states, mask, protocol.pooling)
                    reducer.add(layer, rows, states, mask, pooled, number)
                    for further in range(1, reducer.views) if once else ():
                        near = pooled + 0.01 * pooled.roll(further, -1)
                        reducer.add(layer, rows, near[:, None], mask[:, :1], near, further)

                seen = [views.view(text, 0, number) for text in texts] if number else texts
                model.read(seen, layers, take)
        found.append(reducer.finish().values)
    return found


def bare(network: Any, tokens: Any, batch_tokens: int) -> None:
    """Only the network, on the same tokens in the same batches."""
    import torch

    from daskmetrics.models import pad_batch, plan_batches

    with torch.inference_mode():
        for rows in plan_batches(list(map(len, tokens)), batch_tokens):
            ids, mask = pad_batch([tokens[row] for row in rows], 0, "right")
            ids, mask = ids.to(network.device), mask.to(network.device)
            network(input_ids=ids, attention_mask=mask.long(), use_cache=False)


def replaced(
    location: Any,
    texts: Sequence[str],
    layer: int,
    metrics: Sequence[str],
    protocol: Any,
    size: int,
    own: Any = None,
) -> np.ndarray:
    """One layer of one checkpoint with its own load and pass, in batches of ``size`` texts in their
    order.

    With ``own``, a function of unit vectors (texts, D), in place of our metrics.
    """
    import torch
    from transformers import AutoModel, AutoTokenizer

    from daskmetrics.metrics import engine as engine
    from daskmetrics.metrics import resolve
    from daskmetrics.models import pool

    tokenizer = AutoTokenizer.from_pretrained(location.path)
    network = AutoModel.from_pretrained(location.path, dtype=torch.float32).eval()
    reducer = engine.Reducer(resolve(metrics), [layer], len(texts))
    vectors = []
    with torch.inference_mode():
        for start in range(0, len(texts), size):
            chunk = list(texts[start : start + size])
            read = tokenizer(
                chunk,
                padding=True,
                truncation=True,
                max_length=protocol.max_length,
                return_tensors="pt",
            )
            mask = read["attention_mask"].bool()
            hidden = network(
                input_ids=read["input_ids"],
                attention_mask=read["attention_mask"],
                output_hidden_states=True,
                use_cache=False,
            ).hidden_states
            pooled = pool(hidden[layer], mask, protocol.pooling)
            if own is None:
                reducer.add(
                    layer, torch.arange(start, start + len(chunk)), hidden[layer], mask, pooled
                )
            else:
                vectors.append(torch.nn.functional.normalize(pooled).numpy())
    if own is None:
        return reducer.finish().values[0]
    return own(np.concatenate(vectors))


def cpu_seconds(call: Callable[[], Any]) -> tuple[float, Any]:
    started = time.process_time()
    value = call()
    return time.process_time() - started, value


def overhead(
    shape: Shape, texts: Sequence[str], metrics: Sequence[str], repeats: int, state_norm: str
) -> float:
    """Time of the engine divided by that of a bare forward pass: median ratio of interleaved
    repeats.
    """
    import torch
    from transformers import AutoModel

    from daskmetrics.config import Protocol
    from daskmetrics.models._tokens import Tokenizer

    protocol = Protocol(pooling="mean", state_norm=state_norm)
    with tempfile.TemporaryDirectory() as folder:
        (location,) = build(Path(folder), shape, 1)
        network = AutoModel.from_pretrained(location.path, dtype=torch.float32).eval()
        tokens = Tokenizer(location)(texts, protocol.max_length)
        layers, ratios = range(shape.depth + 1), []
        for _ in range(repeats + 1):
            ours, _values = cpu_seconds(
                lambda: engine([location], texts, layers, metrics, protocol, once=metrics == ALL)
            )
            floor, _nothing = cpu_seconds(lambda: bare(network, tokens, protocol.batch_tokens))
            ratios.append(ours / floor)
    return statistics.median(ratios[1:])  # the first one warms up


def against_replaced(
    shape: Shape, texts: Sequence[str], sizes: Sequence[int], repeats: int, own: Any = None
) -> list[tuple[float, float, float]]:
    """(speedup, that with its own metrics, largest relative difference) for each batch size of the
    replaced code.

    Two layers are measured the replaced way and their cost is multiplied: each layer costs one full
    pass.
    """
    from daskmetrics.config import Protocol

    # as the replaced code reads them
    protocol = Protocol(pooling="mean", state_norm="hidden_states")
    layers, sampled = list(range(shape.depth + 1)), (1, shape.depth)
    with tempfile.TemporaryDirectory() as folder:
        locations = build(Path(folder), shape, 2)
        engine(locations[:1], texts, layers, BASE, protocol)  # a first checkpoint that is not timed
        ratios: list[list[float]] = [[] for _ in sizes]
        with_own: list[list[float]] = [[] for _ in sizes]
        worst = [0.0] * len(sizes)
        for _ in range(repeats):
            ours, values = cpu_seconds(lambda: engine(locations, texts, layers, BASE, protocol))
            for i, size in enumerate(sizes):
                for layer in sampled:
                    one, theirs = cpu_seconds(
                        lambda: replaced(locations[0], texts, layer, BASE, protocol, size)  # noqa: B023
                    )
                    ratios[i].append(one * len(layers) / (ours / len(locations)))
                    # takes a minute at d=512
                    if own is not None and (size, layer) == (
                        sizes[0],
                        sampled[-1],
                    ):
                        one, _ = cpu_seconds(
                            lambda: replaced(locations[0], texts, layer, BASE, protocol, size, own)  # noqa: B023
                        )
                        with_own[i].append(one * len(layers) / (ours / len(locations)))
                    worst[i] = max(
                        worst[i], float(np.nanmax(np.abs(theirs / values[0][layer] - 1)))
                    )
    medians = [
        [statistics.median(each or [np.nan]) for each in both] for both in (ratios, with_own)
    ]
    return list(zip(*medians, worst, strict=True))


def _run_alone(
    how: str, location: Any, texts: Sequence[str], depth: int, metrics: Sequence[str], pipe: Any
) -> None:
    import torch
    import transformers  # noqa: F401 - so that 'nothing' has the same libraries

    from daskmetrics.config import Protocol

    torch.set_num_threads(1)
    protocol = Protocol(pooling="mean", state_norm="hidden_states")
    if how == "engine":
        engine([location], texts, range(depth + 1), metrics, protocol)
    elif how == "replaced":
        replaced(location, texts, depth, metrics, protocol, len(texts))
    pipe.send(_peak_of_this_process())


def _peak_of_this_process() -> float:
    """Peak memory in GiB. On Linux getrusage starts at the memory of the parent, so the value of
    the kernel is read.
    """
    status = Path("/proc/self/status")
    marks = (
        [line for line in status.read_text().splitlines() if line.startswith("VmHWM")]
        if status.exists()
        else []
    )
    return (
        int(marks[0].split()[1]) / 2**20
        if marks
        else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    )


def peak_memory(how: str, shape: Shape, count: int, metrics: Sequence[str] = BASE) -> float:
    """Peak resident GiB of a new process: 'engine', 'replaced' (all texts at once), or 'nothing'
    (libraries only).
    """
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    with tempfile.TemporaryDirectory() as folder:
        (location,) = build(Path(folder), shape, 1)
        process = context.Process(
            target=_run_alone,
            args=(how, location, short_texts(count), shape.depth, metrics, theirs),
        )
        process.start()
        value = float(ours.recv())
        process.join()
    return value


def whole_grid(device: str, counts: Sequence[int], small: bool, out: Path | None) -> None:
    """Print wall seconds per checkpoint at 256 tokens, for each number of prompts, as they are
    measured.

    In float16 on a GPU, in float32 on a CPU.
    """
    import torch

    shapes = (
        {"tiny": Shape(2, 32, 2)}
        if small
        else {n: Shape(*each, 50_304) for n, each in PYTHIA.items()}
    )
    name = torch.cuda.get_device_name() if device == "cuda" else "CPU"
    print(f"{name}, torch {torch.__version__}", flush=True)
    if device == "cuda":
        time_solvers()
    with tempfile.TemporaryDirectory() as folder:
        kind = torch.float16 if device == "cuda" else torch.float32
        suites = {
            name: build(Path(folder) / name, shape, 3, kind) for name, shape in shapes.items()
        }
        for prompts in counts:
            texts, total = long_texts(prompts), 0.0
            for name, shape in shapes.items():
                found = seconds_per_checkpoint(suites[name], shape, texts, device)
                total += found["engine"]
                print(
                    f"{name:>5}, {prompts} prompts: "
                    + ", ".join(f"{k} {v:.4g}" for k, v in found.items()),
                    flush=True,
                )
                if out is not None:
                    with out.open("a", encoding="utf-8") as file:
                        file.write(json.dumps({"shape": name, "prompts": prompts, **found}) + "\n")
            minutes = total * REVISIONS / 60
            arms = REVISIONS * sum(shape.depth for shape in shapes.values())
            print(
                f"{REVISIONS} checkpoints of each shape, {arms:,} arms, {prompts} prompts: {minutes:.1f} min "
                "(goal with 1,000: H200 5, L40S 10)",
                flush=True,
            )


def time_solvers() -> None:
    """Print milliseconds for each Gram matrix of a batch by each solver."""
    import torch

    from daskmetrics.metrics import _eigenvalues as eigenvalues

    for size in (48, 128, 256):
        rows = torch.randn(64, size, 2 * size, device="cuda")
        matrices, times = rows @ rows.mT, {}
        for solve in (eigenvalues.by_torch, eigenvalues.by_lapack):
            solve(matrices)  # a first call prepares
            torch.cuda.synchronize()
            started = time.perf_counter()
            eigenvalues.checked(matrices, solve(matrices))
            torch.cuda.synchronize()
            times[solve.__name__] = 1000 * (time.perf_counter() - started) / len(rows)
        print(
            f"eigenvalues, m = {size}: "
            + ", ".join(f"{n} {each:.3f} ms" for n, each in times.items()),
            flush=True,
        )


def seconds_per_checkpoint(
    locations: Sequence[Any], shape: Shape, texts: Sequence[str], device: str
) -> dict[str, float]:
    """Of the engine with its load, with metrics that need no eigenvalues, and of the bare forward
    pass; tokens/s.
    """
    import torch
    from transformers import AutoModel

    from daskmetrics.config import Protocol
    from daskmetrics.models._tokens import Tokenizer

    on_cpu = device == "cpu"
    dtype, budget = ("float32", 1024) if on_cpu else ("float16", 65_536)
    protocol = Protocol(pooling="mean", dtype=dtype, batch_tokens=budget)
    tokens = Tokenizer(locations[0])(texts, protocol.max_length)
    network = (
        AutoModel.from_pretrained(locations[0].path, dtype=getattr(torch, dtype)).eval().to(device)
    )
    layers = range(1, shape.depth + 1)

    def seconds(call: Callable[[Sequence[Any]], Any]) -> float:
        call(locations[:1])
        synchronize = (lambda: None) if on_cpu else torch.cuda.synchronize
        synchronize()
        started = time.perf_counter()
        call(locations[1:])
        synchronize()
        return (time.perf_counter() - started) / (len(locations) - 1)

    few = ("curvature", "anisotropy")
    found = {
        "engine": seconds(lambda places: engine(places, texts, layers, BASE, protocol, device)),
        "without eigenvalues": seconds(
            lambda places: engine(places, texts, layers, few, protocol, device)
        ),
        "bare forward": seconds(lambda places: [bare(network, tokens, budget) for _ in places]),
    }
    found["engine / bare forward"] = found["engine"] / found["bare forward"]
    total = sum(map(len, tokens))
    found["tokens/s"] = total / found["engine"]
    length = total / len(texts)
    found["TFLOP/s"] = (
        found["tokens/s"] * shape.depth * (24 * shape.width**2 + 4 * length * shape.width) / 1e12
    )
    return found


def beside_bare_forward(shapes: Sequence[Shape], prompts: int, repeats: int) -> None:
    """Print the cost of metrics and everything else beside the forward pass."""
    print("engine / bare forward of the same tokens: CPU time, median of interleaved repeats")
    kinds = (("short texts", short_texts(prompts)), ("T=256", long_texts(max(4, prompts // 8))))
    for shape in shapes:
        for (what, texts), goal in zip(kinds, GOALS.get(shape.width, GOALS[128]), strict=True):
            name = f"  {shape!s:>20}, {what:>11}"
            for norm in ("raw", "final_ln"):
                ratio = overhead(shape, texts, METRICS, repeats, norm)
                print(f"{name}, {norm:>8}, {'+'.join(METRICS)}: {ratio:.2f} (goal {goal:.2f})")
            print(
                f"{name}, {'raw':>8}, anisotropy only: {overhead(shape, texts, ('anisotropy',), repeats, 'raw'):.2f}"
            )


def beside_replaced(shapes: Sequence[Shape], prompts: int, repeats: int, own: Any = None) -> None:
    """Print the cost of one load and pass per (checkpoint, layer)."""
    print(
        "one load and pass per (checkpoint, layer), unsorted padded batches / engine with swapped weights"
    )
    texts = short_texts(prompts)
    for shape in shapes:
        sizes = sorted({min(32, prompts), prompts})
        found = against_replaced(shape, texts, sizes, repeats, own)
        for size, (times, with_own, error) in zip(sizes, found, strict=True):
            agreed = f"differing by {error:.0e} (goal below 1e-5)"
            print(
                f"  {shape!s:>20}, {prompts} texts in batches of {size:>3}: {times:6.1f}x, {agreed}"
            )
            if not np.isnan(with_own):
                print(
                    f"  {'':>20}  with its own metrics in place of ours: {with_own:6.1f}x",
                    flush=True,
                )
            if not error < 1e-5:
                sys.exit("The two ways do not agree.")
        gib = {how: peak_memory(how, shape, prompts) for how in ("nothing", "engine", "replaced")}
        print(
            f"  {'':>20}  peak memory: "
            + ", ".join(f"{how} {value:.2f} GiB" for how, value in gib.items())
        )


def on_cpu(
    shapes: Sequence[Shape], only: str | None, prompts: int, repeats: int, own: Any = None
) -> None:
    """Print all ratios."""
    if only in (None, "forward"):
        beside_bare_forward(shapes, prompts, repeats)
    if only in (None, "all"):
        print("engine with all nineteen metrics, views without passes of their own / bare forward")
        for shape in shapes:
            ratio = overhead(shape, short_texts(prompts), ALL, repeats, "raw")
            print(f"  {shape!s:>20}, {prompts} short texts: {ratio:.2f} (goal 2.00)", flush=True)
    if only in (None, "replaced"):
        beside_replaced(shapes, prompts // 4, 1, own)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--small", action="store_true", help="tiny models and few texts")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument(
        "--corpus", type=int, metavar="N", help="only the peak memory of a corpus of N texts"
    )
    parser.add_argument(
        "--prompts", type=int, help="number of texts (256 on a CPU, 200 and 1,000 on a GPU)"
    )
    parser.add_argument(
        "--out", type=Path, help="file to which --device cuda appends each result as JSON"
    )
    parser.add_argument(
        "--only",
        choices=("forward", "all", "replaced", "grid"),
        help="one of the comparisons on a CPU",
    )
    parser.add_argument(
        "--own", type=Path, help="the replaced code's own metrics: its src/layer_time/metrics.py"
    )
    parser.add_argument("--width", type=int, help="only the models of this width on a CPU")
    parser.add_argument("--metrics", nargs="+", default=BASE, help="of --corpus")
    parser.add_argument("--repeats", type=int, default=5)
    chosen = parser.parse_args(arguments)

    import torch

    torch.set_num_threads(1)
    own = runpy.run_path(str(chosen.own))["compute_representation_metrics"] if chosen.own else None
    if chosen.corpus:
        shape = Shape(6, 32) if chosen.small else Shape(6, 128)
        gib = peak_memory("engine", shape, chosen.corpus, chosen.metrics)
        what = f"{chosen.corpus} texts through {shape}, {', '.join(chosen.metrics)}"
        print(f"{what}: peak memory {gib:.2f} GiB (goal: under 2)")
        if gib >= 2:
            sys.exit("Too much.")
    elif chosen.device == "cuda":
        device, counts = ("cpu", [8]) if chosen.small else ("cuda", [200, 1000])
        whole_grid(device, [chosen.prompts] if chosen.prompts else counts, chosen.small, chosen.out)
    elif chosen.only == "grid":
        whole_grid("cpu", [chosen.prompts] if chosen.prompts else [4, 16], chosen.small, chosen.out)
    else:
        shapes = [Shape(2, 32)] if chosen.small else [Shape(6, 128), Shape(6, 512), Shape(24, 256)]
        prompts, repeats = (16, 1) if chosen.small else (256, chosen.repeats)
        on_cpu(
            [shape for shape in shapes if chosen.width in (None, shape.width)],
            chosen.only,
            chosen.prompts or prompts,
            repeats,
            own,
        )


if __name__ == "__main__":
    main()

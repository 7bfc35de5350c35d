"""Short measurements by the ranks of a training, small."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks.training_probes import exposed

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "training_probes.py"
SMALL = ("--width", "32", "--depth", "1", "--heads", "2", "--context", "16", "--batch", "2")


def probed(name: str, ranks: int, *options: str) -> subprocess.CompletedProcess[str]:
    launch = ("-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}")
    words = [sys.executable, *launch, str(SCRIPT), name, *SMALL, *options]
    return subprocess.run(words, capture_output=True, text=True, check=False)


def test_a_gpu_hides_the_exchange_behind_its_backward_pass():
    link = {1024: 0.0, 64 * 2**20: 0.064}
    cpu, gpu = (exposed(link, 128 * 2**20, 0.03, overlaps) for overlaps in (False, True))
    assert (cpu, gpu) == (pytest.approx(0.128), pytest.approx(0.108))


@pytest.mark.benchmark
@pytest.mark.parametrize(
    ("name", "ranks", "facts"),
    [
        ("allreduce", 2, ("65,536 KiB", "all-reduce of 2 ranks, gloo", "share of a step")),
        ("loader", 1, ("loaders  samples/s", "recommended: loaders: ")),
        ("precision", 1, ("float32", "bfloat16", "half the batch", "peak memory")),
    ],
)
def test_ranks_measure_what_a_training_depends_on(tmp_path, name, ranks, facts):
    np.save(tmp_path / "tokens.npy", np.arange(5000, dtype=np.uint16))
    done = probed(name, ranks, "--tokens", str(tmp_path / "tokens.npy"))
    assert done.returncode == 0, done.stderr
    assert all(fact in done.stdout for fact in facts)


@pytest.mark.benchmark
@pytest.mark.parametrize(
    ("name", "ranks", "remedy"), [("allreduce", 1, "--ranks 2"), ("precision", 2, "--ranks 1")]
)
def test_a_wrong_number_of_ranks_is_refused(name, ranks, remedy):
    done = probed(name, ranks)
    assert done.returncode and remedy in done.stderr

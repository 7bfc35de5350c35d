"""An example for `daskmetrics map`: one iteration of a performance test, seeded.

daskmetrics map benchmarks/iterations.py:iteration --iterations 500 --workers 2 --output results.parquet

Each iteration multiplies random matrices on the worker's GPU, or on its CPU threads, and tells how fast that was. The
checksum depends on the seed alone: `--verify 20 --ignore gflops` finds it again.
"""

from __future__ import annotations

import functools
import time

SIZE = 384
REPEATS = 4


@functools.cache
def device() -> str:
    """Where this worker computes; what is found once is kept from batch to batch, as a model would be."""
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def iteration(index: int, *, seed: int) -> dict[str, float | str]:
    """The speed of a matrix product in GFLOP/s, and a checksum of its result."""
    import torch

    generator = torch.Generator().manual_seed(seed)
    matrix = torch.randn(SIZE, SIZE, generator=generator, dtype=torch.float32).to(device())
    started = time.perf_counter()
    product = matrix
    for _ in range(REPEATS):
        product = matrix @ product / SIZE**0.5
    checksum = float(product.abs().mean())  # a copy to the host: it waits for the GPU
    seconds = time.perf_counter() - started
    return {"gflops": REPEATS * 2 * SIZE**3 / seconds / 1e9, "checksum": checksum, "device": device()}

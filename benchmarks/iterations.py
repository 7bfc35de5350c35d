"""An example for `daskmetrics map`: one iteration of a performance test, with a seed.

daskmetrics map benchmarks/iterations.py:iteration --iterations 500 --workers 2 --output
results.parquet

Each iteration multiplies random matrices on the worker's GPU, or on its CPU threads, and returns
the speed. The checksum depends only on the seed: `daskmetrics runs verify
runs/iteration --ignore gflops` reproduces it.
"""

from __future__ import annotations

import functools
import time

SIZE = 384
REPEATS = 4


@functools.cache
def device() -> str:
    """Device of this worker; the cached result is kept between batches, as a model would be."""
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
    checksum = float(product.abs().mean())  # the copy to the host waits for the GPU
    seconds = time.perf_counter() - started
    return {
        "gflops": REPEATS * 2 * SIZE**3 / seconds / 1e9,
        "checksum": checksum,
        "device": device(),
    }

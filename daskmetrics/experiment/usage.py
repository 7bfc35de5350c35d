"""What a worker's process has used so far; asked of every worker at the end of a run."""

from __future__ import annotations

import os
import resource
import sys
from typing import Any

from distributed import Client


def used() -> dict[str, Any]:
    """CPU seconds and largest memory of this process, in bytes; of a GPU only what torch took there."""
    own = resource.getrusage(resource.RUSAGE_SELF)
    return {
        "cpu_seconds": own.ru_utime + own.ru_stime,
        "memory": own.ru_maxrss * 1024,
        "cpus": len(os.sched_getaffinity(0)),
        "gpu_memory": _gpu_memory(),
    }


def _gpu_memory() -> int | None:
    torch = sys.modules.get("torch")  # not imported for this
    return int(torch.cuda.max_memory_reserved()) if torch and torch.cuda.is_initialized() else None


def entry(client: Client) -> dict[str, Any]:
    """What the workers that are there have used, as a line of the journal; one that goes away meanwhile is left out."""
    from daskmetrics.cluster import workers

    names = {address: str(worker["name"]) for address, worker in workers(client).items()}
    told = client.run(used, on_error="ignore")
    return {"type": "usage", "workers": {names[a]: own for a, own in told.items() if a in names}}

"""Whether workers that a user gives can run the units."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from distributed import Client

from daskmetrics.cluster.shared_folder import appears, marker
from daskmetrics.core.errors import ConfigError
from daskmetrics.core.machine import workers
from daskmetrics.execution.runner import PLAIN


def require_workers(client: Client, folder: Path, paths: Sequence[str], patience: float) -> str:
    """Check given workers; return the resource that scoring occupies.

    That is ``CPU``; or ``GPU`` if no worker offers ``CPU``, since a machine with a GPU can score,
    too. The other way round there is no substitute: a worker that offers only ``CPU`` may stand
    beside GPU workers that come later.

    The workers must see the run's ``folder`` and these ``paths`` of this machine. The first is
    awaited for ``patience`` seconds. Each reason that they cannot run the units is a `ConfigError`.
    """
    try:
        client.wait_for_workers(1, timeout=patience)
    except TimeoutError:
        raise ConfigError(
            f"No worker arrived within {patience:.0f} s: start some, for instance cluster.scale(2),"
            " or cluster.adapt(minimum=1) where their number follows the work."
        ) from None
    offered: set[str] = set()
    for worker in workers(client).values():
        resources = worker["resources"]
        if not resources.keys() & PLAIN.keys():
            resources = PLAIN
        offered |= {name for name, amount in resources.items() if amount}
    if "GPU" not in offered:
        raise ConfigError(
            "No worker offers the resource GPU, which models need. Start workers without resources,"
            ' or with: dask worker ... --resources "GPU=1 CPU=1" (also on machines without a GPU).'
            " If they have not arrived yet, wait for them first: client.wait_for_workers(N)."
        )
    # a folder of the same name on another disk does not count: workers look for a new file in it
    with marker(folder) as (file, text):
        first_unseen = client.run(_first_unseen, file, text, list(paths), on_error="ignore")
    for address, path in first_unseen.items():
        if path:
            raise ConfigError(
                f"The worker at {address} does not see '{path}' of this machine. Put"
                " the run, its models and its texts into a folder that all machines share."
            )
    return "CPU" if "CPU" in offered else "GPU"


def _first_unseen(marker: Path, text: str, paths: Sequence[str]) -> str | None:
    try:
        if appears(marker, text):
            return next((path for path in paths if not Path(path).exists()), None)
    except OSError:  # it is there, but this user cannot read it
        pass
    return str(marker.parent)

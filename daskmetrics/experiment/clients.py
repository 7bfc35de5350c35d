"""What a run needs of workers that it did not start, checked before anything is submitted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from distributed import Client

from daskmetrics.cluster.selftest import appears, marker
from daskmetrics.core.errors import ConfigError
from daskmetrics.core.machine import workers
from daskmetrics.execution import handshake as handshake
from daskmetrics.execution.runner import PLAIN


def require_workers(client: Client, folder: Path, paths: Sequence[str], patience: float) -> str:
    """Check that workers can run the units; returns the resource that scoring occupies.

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
    arrived = workers(client)
    offered: set[str] = set()
    for worker in arrived.values():
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
    names = {address: str(worker["name"]) for address, worker in arrived.items()}
    for address, answer in client.run(eval, handshake.question(), on_error="return").items():
        if not isinstance(answer, BaseException):
            answer = answer["versions"]
        handshake.require_same(names.get(address, address), answer)
    for name, path in unseen(client, folder, paths).items():
        raise ConfigError(
            f"Worker {name} does not see '{path}' of this machine. Put the run, its models and its"
            " texts into a folder that all machines share."
        )
    return "CPU" if "CPU" in offered else "GPU"


def unseen(client: Client, folder: Path, paths: Sequence[str]) -> Mapping[str, str]:
    """For each worker that does not see all of these, by name: the first that it does not see.

    A folder of the same name on another disk does not count: the workers look for a file that is
    written into it now.
    """
    names = {address: str(worker["name"]) for address, worker in workers(client).items()}
    with marker(folder) as (file, text):
        answers = client.run(_first_unseen, file, text, list(paths), on_error="ignore")
    return {names.get(address, address): path for address, path in answers.items() if path}


def _first_unseen(marker: Path, text: str, paths: Sequence[str]) -> str | None:
    try:
        if appears(marker, text):
            return next((path for path in paths if not Path(path).exists()), None)
    except OSError:  # it is there, but this user cannot read it
        pass
    return str(marker.parent)

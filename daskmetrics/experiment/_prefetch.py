"""What a configuration needs from the network: checkpoints and data sets that are not on this machine yet."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from daskmetrics.core.errors import ConfigError
from daskmetrics.experiment._prepare import Experiment
from daskmetrics.tasks import Task
from daskmetrics.tasks._mteb import MtebTask

#: What of a model's repository is loaded: weights, configuration, tokenizer.
FILES = ("*.safetensors", "*.json", "*.txt", "*.model")
PICKLED = ("*.bin",)


@dataclass(frozen=True)
class Need:
    """One thing to fetch.

    Attributes
    ----------
    kind : {"model", "data"}
    name : str
    get : callable
        Fetches it; what a broken download left is gone on with.
    measure : callable
        Its bytes, as the hub tells; raises where it cannot.
    """

    kind: str
    name: str
    get: Callable[[], Any]
    measure: Callable[[], int]

    def size(self) -> int | None:
        """Bytes to fetch; None where the hub does not tell."""
        try:
            return self.measure()
        except Exception:  # whatever a proxy, a firewall or the client makes of "no network"
            return None


def needs(experiment: Experiment) -> list[Need]:
    """The checkpoints and data sets of an experiment that are not here."""
    sources = {model.name: model for model in experiment.config.models}
    found = []
    for name, revisions in experiment.missing.items():
        model = sources[name]
        files = (*FILES, *(PICKLED if model.pickled else ()))
        found += [_checkpoint(str(model.source), revision, files) for revision in revisions]
    return found + data(experiment.tasks)


def data(tasks: Iterable[Task]) -> list[Need]:
    """The data sets of these tasks that are not here."""
    return [
        Need("data", task.name, task.fetch, lambda task=task: _data_bytes(task))  # type: ignore[misc]
        for task in tasks
        if isinstance(task, MtebTask) and not task.is_local
    ]


def require_room(sizes: Sequence[int | None], folder: Path) -> None:
    """Make sure that the disk of the hub's cache holds what is going to be fetched.

    Raises
    ------
    ConfigError
        If not.
    """
    there = next(parent for parent in (folder, *folder.parents) if parent.exists())
    wanted, free = sum(size or 0 for size in sizes), shutil.disk_usage(there).free
    if wanted > free:
        raise ConfigError(
            f"{wanted / 1e9:,.1f} GB are to be fetched into '{folder}', where {free / 1e9:,.1f} GB are free. Set "
            "HF_HOME to a folder on a larger disk, here and for the run."
        )


def fetch(wanted: Sequence[Need], done: Callable[[Need, str | None], None]) -> Mapping[str, str]:
    """Fetch one after the other, and go on after a failure; the reasons of those that failed, by name.

    Parameters
    ----------
    wanted : sequence of Need
    done : callable
        Called after each, with the reason if it failed.
    """
    failed = {}
    for need in wanted:
        reason = None
        try:
            need.get()
        except Exception as error:  # of the network, the hub, the disk or the benchmark: said, and the rest goes on
            reason = failed[need.name] = " ".join(str(error).split())[:400] or type(error).__name__
        done(need, reason)
    return failed


def cache() -> Path:
    """Where the hub's client keeps what it fetches."""
    from huggingface_hub.constants import HF_HUB_CACHE

    return Path(HF_HUB_CACHE)


def _checkpoint(source: str, revision: str, files: tuple[str, ...]) -> Need:
    def get() -> None:
        from huggingface_hub import snapshot_download

        snapshot_download(source, revision=revision, allow_patterns=list(files))

    def measure() -> int:
        from fnmatch import fnmatch

        from huggingface_hub import HfApi

        siblings = HfApi().model_info(source, revision=revision, files_metadata=True, timeout=10).siblings or []
        return sum(each.size or 0 for each in siblings if any(fnmatch(each.rfilename, pattern) for pattern in files))

    return Need("model", f"{source}@{revision}", get, measure)


def _data_bytes(task: MtebTask) -> int:
    from huggingface_hub import HfApi

    from daskmetrics.tasks import _mteb_run as benchmark

    about = benchmark.make(task.target).metadata.dataset
    if Path(about["path"]).exists():
        return 0
    info = HfApi().dataset_info(about["path"], revision=about["revision"], files_metadata=True, timeout=10)
    return sum(each.size or 0 for each in info.siblings or [])

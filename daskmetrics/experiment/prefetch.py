"""Downloads that a configuration needs: checkpoints and data sets that are not on this machine yet."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path

from daskmetrics.checkpoints.download import TRIES
from daskmetrics.core.errors import ConfigError
from daskmetrics.core.retry import Fault, GiveUp
from daskmetrics.core.text import unsigned
from daskmetrics.experiment.preparation import Experiment
from daskmetrics.tasks import Task
from daskmetrics.tasks.mteb import MtebTask

#: Files of a model's repository that are loaded: weights, configuration, tokenizer.
FILES = ("*.safetensors", "*.json", "*.txt", "*.model")
PICKLED = ("*.bin",)


@dataclass(frozen=True)
class MissingFiles:
    """A checkpoint (``model``) or data set (``data``) to download."""

    kind: str
    name: str
    fetch: Callable[[], object]  # resumes an interrupted download
    measure: Callable[[], int]  # its bytes; raises if the hub does not answer

    def size(self) -> int | None:
        """Bytes to download; None if the hub does not report them."""
        try:
            return self.measure()
        # a proxy, a firewall or the client may raise anything when there is no network
        except Exception:
            return None


def downloads(experiment: Experiment) -> list[MissingFiles]:
    """The missing checkpoints and data sets, without the checkpoints that the run downloads when it
    needs them.
    """
    models = {model.name: model for model in experiment.config.models if not model.disk}
    missing: list[MissingFiles] = []
    for name, revisions in experiment.missing.items():
        if name in models:
            model = models[name]
            files = FILES + PICKLED if model.pickled else FILES
            missing += [checkpoint(str(model.source), revision, files) for revision in revisions]
    return missing + data_sets(experiment.tasks)


def data_sets(tasks: Iterable[Task]) -> list[MissingFiles]:
    """The missing data sets of these tasks."""
    return [
        MissingFiles("data", task.name, task.fetch, partial(_data_bytes, task))
        for task in tasks
        if isinstance(task, MtebTask) and not task.is_local
    ]


def require_space(sizes: Sequence[int | None], folder: Path) -> None:
    """Check that the disk of the hub's cache has space for the downloads."""
    existing = next(parent for parent in (folder, *folder.parents) if parent.exists())
    needed, free = sum(size or 0 for size in sizes), shutil.disk_usage(existing).free
    if needed > free:
        raise ConfigError(
            f"The downloads need {needed / 1e9:,.1f} GB in '{folder}', where {free / 1e9:,.1f} GB are free. Set "
            "HF_HOME to a folder on a larger disk, here and for the run."
        )


def fetch(
    missing: Sequence[MissingFiles], done: Callable[[MissingFiles, str | None], None]
) -> Mapping[str, str]:
    """Download one after the other, and continue after a failure; return the reasons of failures,
    by name.

    ``done`` is called after each, with the reason if it failed.
    """
    failed = {}
    for download in missing:
        reason = None
        try:
            _persist(download.fetch)
        # of the network, the hub, the disk or the benchmark: report it and continue
        except Exception as error:
            reason = unsigned(" ".join(str(error).split()))[:400] or type(error).__name__
            failed[download.name] = reason
        done(download, reason)
    return failed


def _persist(fetch: Callable[[], object]) -> None:
    """Call it again after an error of the hub's server, which its client passes on at once."""
    for failures in count(1):
        try:
            fetch()
            return
        except Exception as error:
            status = getattr(getattr(error, "response", None), "status_code", 0)
            decision = TRIES.after(Fault.EXCEPTION, failures)
            if status < 500 or isinstance(decision, GiveUp):
                raise
            time.sleep(decision.delay)


def cache() -> Path:
    """The folder of the hub's client for downloads."""
    from huggingface_hub.constants import HF_HUB_CACHE

    return Path(HF_HUB_CACHE)


def checkpoint(source: str, revision: str, files: tuple[str, ...]) -> MissingFiles:
    """The files of one revision of a hub repository."""

    def fetch() -> None:
        from huggingface_hub import snapshot_download

        snapshot_download(source, revision=revision, allow_patterns=list(files))

    def measure() -> int:
        from fnmatch import fnmatch

        from huggingface_hub import HfApi

        info = HfApi().model_info(source, revision=revision, files_metadata=True, timeout=10)
        size = 0
        for file in info.siblings or []:
            if any(fnmatch(file.rfilename, pattern) for pattern in files):
                size += file.size or 0
        return size

    return MissingFiles("model", f"{source}@{revision}", fetch, measure)


def _data_bytes(task: MtebTask) -> int:
    from huggingface_hub import HfApi

    from daskmetrics.tasks import mteb_run as benchmark

    dataset = benchmark.make(task.target).metadata.dataset
    if Path(dataset["path"]).exists():
        return 0
    info = HfApi().dataset_info(
        dataset["path"], revision=dataset["revision"], files_metadata=True, timeout=10
    )
    return sum(file.size or 0 for file in info.siblings or [])

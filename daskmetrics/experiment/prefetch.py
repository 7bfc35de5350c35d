"""Downloads that a configuration needs: checkpoints and data sets that are not on this machine yet;
and the rate of those of a run.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from daskmetrics.checkpoints import hub
from daskmetrics.checkpoints.layout import relevant
from daskmetrics.core.errors import ConfigError, DaskmetricsError, unsigned
from daskmetrics.domain.costs import DOWNLOAD_RATE
from daskmetrics.domain.events import measured
from daskmetrics.domain.record import Record
from daskmetrics.experiment.preparation import Experiment
from daskmetrics.tasks import Task
from daskmetrics.tasks.mteb import MtebTask

if TYPE_CHECKING:
    from huggingface_hub.hf_api import RepoSibling


@dataclass(frozen=True)
class MissingFiles:
    """A checkpoint (``model``) or data set (``data``) to download."""

    kind: str
    name: str
    fetch: Callable[[], object]  # resumes an interrupted download
    about: Callable[[], Iterable[RepoSibling]]  # its files; raises if the hub does not answer

    def size(self) -> int | None:
        """Bytes to download; None if the hub does not report them."""
        try:
            with hub.client_errors():
                return sum(file.size or 0 for file in self.about())
        except DaskmetricsError:
            return None


def downloads(experiment: Experiment) -> list[MissingFiles]:
    """The missing checkpoints and data sets.

    Checkpoints that the run downloads when it needs them are left out.
    """
    limited = {model.name for model in experiment.config.models if model.disk}
    missing: list[MissingFiles] = []
    for name, location in experiment.missing.items():
        if name.model not in limited:
            missing.append(checkpoint(location.path, name.revision, location.pickled))
    return missing + data_sets(experiment.tasks)


def data_sets(tasks: Iterable[Task]) -> list[MissingFiles]:
    """The missing data sets of these tasks."""
    return [
        MissingFiles("data", task.name, task.fetch, partial(_data_files, task))
        for task in tasks
        if isinstance(task, MtebTask) and not task.is_local
    ]


def free_space(folder: Path) -> int:
    """Free bytes on the disk of a folder, existing or not."""
    existing = next(parent for parent in (folder, *folder.parents) if parent.exists())
    return shutil.disk_usage(existing).free


def require_space(sizes: Sequence[int | None], folder: Path) -> None:
    """Check that the hub's cache has space for the downloads."""
    needed = sum(size or 0 for size in sizes)
    free = free_space(folder)
    if needed > free:
        raise ConfigError(
            f"The downloads need {needed / 1e9:,.1f} GB in '{folder}', where {free / 1e9:,.1f} GB"
            " are free. Set HF_HOME to a folder on a larger disk, here and for the run."
        )


def fetch(missing: Sequence[MissingFiles]) -> Iterator[tuple[MissingFiles, str | None]]:
    """Download one after the other, each with the reason of its failure.

    A failure ends only its own download.
    """
    for download in missing:
        reason = None
        try:
            download.fetch()
        # of the network, the hub, the disk or the benchmark: report it and continue
        except Exception as error:
            text = unsigned(" ".join(str(error).split()))
            reason = text[:400] or type(error).__name__
        yield download, reason


def cache() -> Path:
    """The folder of the hub's client for downloads."""
    from huggingface_hub.constants import HF_HUB_CACHE

    return Path(HF_HUB_CACHE)


def checkpoint(source: str, revision: str, pickled: bool = False) -> MissingFiles:
    """The needed files of one revision of a hub repository.

    They include pickled weights if these are allowed.
    """

    def about() -> Iterable[RepoSibling]:
        from huggingface_hub import HfApi

        info = HfApi().model_info(source, revision=revision, files_metadata=True, timeout=10)
        files = {file.rfilename: file for file in info.siblings or ()}
        return [files[name] for name in relevant(files, pickled)]

    fetch = partial(hub.fetch, source, revision, pickled)
    return MissingFiles("model", f"{source}@{revision}", fetch, about)


def _data_files(task: MtebTask) -> Iterable[RepoSibling]:
    from huggingface_hub import HfApi

    from daskmetrics.tasks import mteb_run as benchmark

    dataset = benchmark.make(task.target).metadata.dataset
    if Path(dataset["path"]).exists():
        return ()
    info = HfApi().dataset_info(
        dataset["path"], revision=dataset["revision"], files_metadata=True, timeout=10
    )
    return info.siblings or ()


def rate(records: Iterable[Record]) -> float:
    """Bytes per second of the recorded downloads.

    It is a power of two, so that equal networks decide alike.
    """
    downloads = [result.download for _, result in measured(records) if result.download]
    seconds = sum(download.seconds for download in downloads)
    if not seconds:
        return DOWNLOAD_RATE
    return 2.0 ** round(math.log2(sum(download.bytes for download in downloads) / seconds))
